package shard

import "hash/crc32"

// castagnoli is the polynomial of all checksums of gswarm's own.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// combine returns the CRC32C of bytes whose CRC32C is a, followed by n bytes
// whose CRC32C is b. Bytes that are copied are summed once: what is written of
// them is summed from their parts' sums.
func combine(a, b uint32, n int64) uint32 {
	// n bytes behind a multiply its polynomial by x^8n.
	for k := 3; n > 0 && a != 0; k, n = k+1, n>>1 {
		if n&1 == 1 {
			a = multiply(squares[k], a)
		}
	}
	return a ^ b
}

// multiply multiplies polynomials modulo Castagnoli's. The highest bit is the
// coefficient of x^0.
func multiply(a, b uint32) (p uint32) {
	for ; a != 0; a <<= 1 {
		if a>>31 == 1 {
			p ^= b
		}
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return p
}

// squares are x^(2^k).
var squares = func() (s [64]uint32) {
	s[0] = 1 << 30
	for k := 1; k < len(s); k++ {
		s[k] = multiply(s[k-1], s[k-1])
	}
	return s
}()
