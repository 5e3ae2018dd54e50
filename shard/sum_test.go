package shard

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func TestCombine(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	whole := crc32.Checksum(b, castagnoli)
	for range 200 {
		cut := rng.IntN(len(b) >> rng.IntN(20))
		if rng.IntN(2) == 0 {
			cut = len(b) - cut
		}
		head, tail := crc32.Checksum(b[:cut], castagnoli), crc32.Checksum(b[cut:], castagnoli)
		if got := combine(head, tail, int64(len(b)-cut)); got != whole {
			t.Fatalf("cut at %d: combined %08x, whole %08x", cut, got, whole)
		}
	}
	// Longer than any test's bytes: zeros behind a sum, step by step and at once.
	zeros := make([]byte, 1<<20)
	zero := crc32.Checksum(zeros, castagnoli)
	byStep, n := whole, int64(0)
	all := uint32(0)
	for range 5000 {
		byStep = crc32.Update(byStep, castagnoli, zeros)
		all = combine(all, zero, int64(len(zeros)))
		n += int64(len(zeros))
	}
	if got := combine(whole, all, n); got != byStep {
		t.Fatalf("%d bytes behind: combined %08x, whole %08x", n, got, byStep)
	}
}
