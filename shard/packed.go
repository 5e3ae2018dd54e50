package shard

import (
	"encoding/binary"
	"math"
)

// hybrid reads runs and packed groups of integers.
type hybrid struct {
	b      []byte
	width  int
	run    int // values left of a run
	packed int // values left of packed groups
	same   uint32
	acc    uint64
	have   int
}

func (h *hybrid) open() error {
	n, k := binary.Uvarint(h.b)
	if k <= 0 || n>>1 == 0 || n>>1 > math.MaxInt32 {
		return errPage
	}
	h.b = h.b[k:]
	if n&1 == 1 {
		// The last group may stand for fewer values than it has bits.
		h.packed, h.acc, h.have = int(n>>1)*8, 0, 0
		return nil
	}
	size := (h.width + 7) / 8
	if len(h.b) < size {
		return errPage
	}
	h.same = 0
	for i := range size {
		h.same |= uint32(h.b[i]) << (8 * i)
	}
	h.b, h.run = h.b[size:], int(n>>1)
	return nil
}

func (h *hybrid) value() (uint32, error) {
	if h.run == 0 && h.packed == 0 {
		if err := h.open(); err != nil {
			return 0, err
		}
	}
	if h.run > 0 {
		h.run--
		return h.same, nil
	}
	for h.have < h.width {
		if len(h.b) == 0 {
			return 0, errPage
		}
		h.acc |= uint64(h.b[0]) << h.have
		h.b, h.have = h.b[1:], h.have+8
	}
	v := uint32(h.acc & (1<<h.width - 1))
	h.acc >>= h.width
	h.have -= h.width
	h.packed--
	return v, nil
}

// bools reads levels of at most 1.
func (h *hybrid) bools(dst []bool) error {
	for i := 0; i < len(dst); {
		if h.run > 0 {
			n := min(h.run, len(dst)-i)
			set := h.same == 1
			for k := range n {
				dst[i+k] = set
			}
			h.run -= n
			i += n
			continue
		}
		if h.packed == 0 {
			if err := h.open(); err != nil {
				return err
			}
			continue
		}
		v, err := h.value()
		if err != nil {
			return err
		}
		dst[i] = v == 1
		i++
	}
	return nil
}

// delta reads delta-encoded integers.
type delta struct {
	b      []byte
	narrow bool
	block  int // values of a block
	minis  int
	total  int // values not yet read
	first  bool
	value  int64
	least  int64
	widths []byte
	left   int // values left of the miniblock
	mini   int // the next miniblock of the block
	width  int
	acc    uint64
	have   int
	packed []byte // the miniblock's, not yet in acc
}

func (d *delta) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.b, d.minis = nil, -1
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *delta) open(b []byte) error {
	d.b, d.first = b, true
	block, minis, total := d.uvarint(), d.uvarint(), d.uvarint()
	d.value = unzigzag(d.uvarint())
	if d.minis < 0 || block == 0 || block > 1<<16 || minis == 0 || minis > 256 || block%minis != 0 || block/minis%32 != 0 || total > MaxRowGroup {
		return errPage
	}
	d.block, d.minis, d.total = int(block), int(minis), int(total)
	d.mini = d.minis
	return nil
}

// step begins a miniblock.
func (d *delta) step() error {
	if d.mini == d.minis {
		d.least = unzigzag(d.uvarint())
		if d.minis < 0 || len(d.b) < d.minis {
			return errPage
		}
		d.widths, d.b = d.b[:d.minis], d.b[d.minis:]
		d.mini = 0
	}
	d.width = int(d.widths[d.mini])
	d.mini++
	d.left = d.block / d.minis
	if d.width > 64 {
		return errPage
	}
	// The last miniblock may be cut behind its last value.
	need := min(d.left*d.width/8, len(d.b))
	d.packed, d.b = d.b[:need], d.b[need:]
	d.acc, d.have = 0, 0
	return nil
}

func (d *delta) read(dst []int64, valid []bool) error {
	for i, v := range valid {
		if !v {
			continue
		}
		if d.total == 0 {
			return errPage
		}
		d.total--
		if d.first {
			d.first = false
			dst[i] = d.value
			continue
		}
		if d.left == 0 {
			if err := d.step(); err != nil {
				return err
			}
		}
		d.left--
		d.value += d.least + int64(d.bits())
		if d.narrow {
			d.value = int64(int32(d.value))
		}
		dst[i] = d.value
	}
	return nil
}

// dense is read where nothing is null.
func (d *delta) dense(dst []int64) error {
	if len(dst) > d.total {
		return errPage
	}
	d.total -= len(dst)
	if d.first && len(dst) > 0 {
		d.first = false
		dst[0], dst = d.value, dst[1:]
	}
	for len(dst) > 0 {
		if d.left == 0 {
			if err := d.step(); err != nil {
				return err
			}
		}
		n := min(d.left, len(dst))
		d.left -= n
		d.differences(dst[:n])
		d.add(dst[:n])
		dst = dst[n:]
	}
	return nil
}

// unpackWidth is the width up to which a value and the bits before it in its
// first byte fit 64 bits.
const unpackWidth = 57

// differences reads values of the miniblock.
func (d *delta) differences(dst []int64) {
	size := len(dst) * d.width / 8
	switch {
	case d.width == 0:
		clear(dst)
	case d.have == 0 && d.width <= unpackWidth && len(dst)%8 == 0 && size <= len(d.packed):
		unpack(dst, d.packed, d.width)
		d.packed = d.packed[size:]
	default:
		for i := range dst {
			dst[i] = int64(d.bits())
		}
	}
}

// unpack reads values of width bits from b, which holds them all.
func unpack(dst []int64, b []byte, width int) {
	mask := uint64(1)<<width - 1
	for i, bit := 0, 0; i < len(dst); i, bit = i+1, bit+width {
		rest := b[bit/8:]
		if len(rest) < 8 {
			var end [8]byte
			copy(end[:], rest)
			rest = end[:]
		}
		dst[i] = int64(le.Uint64(rest) >> (bit % 8) & mask)
	}
}

// add turns differences into values.
func (d *delta) add(dst []int64) {
	v := d.value
	if d.narrow {
		for i := range dst {
			v = int64(int32(v + d.least + dst[i]))
			dst[i] = v
		}
	} else {
		for i := range dst {
			v += d.least + dst[i]
			dst[i] = v
		}
	}
	d.value = v
}

// bits reads one value of the miniblock. What a cut one lacks is zero.
func (d *delta) bits() uint64 {
	w := d.width
	if w == 0 {
		return 0
	}
	if d.have >= w {
		v := d.acc & (1<<w - 1)
		d.acc >>= w
		d.have -= w
		return v
	}
	// Fill up: a miniblock has whole bytes, and 8 of them where it can.
	v, got := d.acc, d.have
	var next uint64
	n := 64
	if len(d.packed) >= 8 {
		next = le.Uint64(d.packed)
		d.packed = d.packed[8:]
	} else {
		n = max(8*len(d.packed), w-got)
		for k, x := range d.packed {
			next |= uint64(x) << (8 * k)
		}
		d.packed = nil
	}
	v |= next << got
	take := w - got
	d.acc, d.have = next>>take, n-take
	if w < 64 {
		v &= 1<<w - 1
	}
	return v
}
