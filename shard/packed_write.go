package shard

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// appendLevels appends definition levels of at most 1.
func appendLevels(dst []byte, valid []bool) []byte {
	all := true
	for _, v := range valid {
		if v != valid[0] {
			all = false
			break
		}
	}
	if all {
		dst = binary.AppendUvarint(dst, uint64(len(valid))<<1)
		if valid[0] {
			return append(dst, 1)
		}
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64((len(valid)+7)/8)<<1|1)
	return packBits(dst, valid)
}

// appendHybrid appends indices of the given width as runs and packed groups of
// eight.
func appendHybrid(dst []byte, v []int32, width int) []byte {
	const least = 8 // equal values in a row from which a run is shorter
	bytes := (width + 7) / 8
	for i := 0; i < len(v); {
		if n := run(v[i:]); n >= least || i+n == len(v) {
			dst = binary.AppendUvarint(dst, uint64(n)<<1)
			for b := range bytes {
				dst = append(dst, byte(v[i]>>(8*b)))
			}
			i += n
			continue
		}
		// Whole groups of eight, until a run begins at a group's end.
		j := i
		for j < len(v) {
			if j > i && run(v[j:]) >= least {
				break
			}
			j += 8
		}
		groups := (j - i) / 8
		dst = binary.AppendUvarint(dst, uint64(groups)<<1|1)
		var acc uint64
		n := 0
		for k := range groups * 8 {
			x := uint64(0)
			if i+k < len(v) {
				x = uint64(v[i+k])
			}
			acc |= x << n
			for n += width; n >= 8; n -= 8 {
				dst = append(dst, byte(acc))
				acc >>= 8
			}
		}
		i = min(j, len(v))
	}
	return dst
}

// run returns how many values at the beginning are equal.
func run(v []int32) int {
	n := 1
	for n < len(v) && v[n] == v[0] {
		n++
	}
	return n
}

// The shape of delta encoding that everybody writes.
const (
	deltaBlock = 128
	deltaMinis = 4
	deltaMini  = deltaBlock / deltaMinis
)

// appendDelta appends values, of which there is one at least, delta-encoded.
// Differences wrap around, as the format says. Even ones count from the least
// difference of all and are whole bytes wide: longer before compression, and
// often shorter behind it, since bytes of one meaning then stand at equal
// distances.
func appendDelta(dst []byte, v []int64, even bool) []byte {
	floor := int64(math.MaxInt64)
	if even {
		for i := 1; i < len(v); i++ {
			floor = min(floor, v[i]-v[i-1])
		}
	}
	dst = binary.AppendUvarint(dst, deltaBlock)
	dst = binary.AppendUvarint(dst, deltaMinis)
	dst = binary.AppendUvarint(dst, uint64(len(v)))
	dst = binary.AppendUvarint(dst, zigzag(v[0]))
	var d [deltaBlock]int64
	for from := 1; from < len(v); from += deltaBlock {
		n := min(deltaBlock, len(v)-from)
		least := int64(math.MaxInt64)
		for k := range n {
			d[k] = v[from+k] - v[from+k-1]
			least = min(least, d[k])
		}
		if even {
			least = floor
		}
		dst = binary.AppendUvarint(dst, zigzag(least))
		widths := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		for m := 0; m*deltaMini < n; m++ {
			part := d[m*deltaMini : min((m+1)*deltaMini, n)]
			or := uint64(0)
			for k := range part {
				part[k] -= least
				or |= uint64(part[k])
			}
			w := bits.Len64(or)
			if even {
				w = (w + 7) / 8 * 8
			}
			dst[widths+m] = byte(w)
			dst = appendPacked(dst, part, w)
		}
	}
	return dst
}

// appendPacked appends a miniblock: values of the given width, filled up with
// zeros.
func appendPacked(dst []byte, v []int64, width int) []byte {
	if width == 0 {
		return dst
	}
	begin := len(dst)
	var acc uint64
	n := 0
	for _, x := range v {
		u := uint64(x)
		acc |= u << n
		if n+width >= 64 {
			dst = le.AppendUint64(dst, acc)
			// A shift by 64 gives 0 in Go, which is what is left of a
			// value that fitted exactly.
			acc = u >> (64 - n)
			n += width - 64
		} else {
			n += width
		}
	}
	for ; n > 0; n -= 8 {
		dst = append(dst, byte(acc))
		acc >>= 8
	}
	for len(dst)-begin < deltaMini*width/8 {
		dst = append(dst, 0)
	}
	return dst
}
