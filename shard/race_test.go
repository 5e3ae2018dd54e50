//go:build race

package shard

// stride is how many bytes a test of damage goes on at a time. The race
// detector makes each step ten times as dear and has nothing to find there;
// without it every byte is tried.
const stride = 11
