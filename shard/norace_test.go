//go:build !race

package shard

// stride is how many bytes a test of damage goes on at a time.
const stride = 1
