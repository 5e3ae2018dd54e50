// Package shard keeps rows on disk: it writes the spool that an agent appends
// to, seals a spool into Parquet shards, reads both back whatever happened to
// them, and writes and reads the timeline's Parquet files. docs/format.md
// describes every byte.
//
// It is the only importer of Arrow, and no decoder of Arrow's sees bytes whose
// checksum was not verified before. It knows rows and files; what a value means
// and how a node's clock runs is for others to know.
package shard
