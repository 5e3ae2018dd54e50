package shard

import (
	"math"

	"github.com/gswarm/gswarm/table"
)

// stats gathers a column chunk's statistics.
type stats struct {
	kind     table.Type
	any      bool
	nulls    int64
	lo, hi   int64
	flo, fhi float64
	slo, shi string
}

func newStats(kind table.Type) *stats { return &stats{kind: kind} }

// deltaSpan is the span of 32-bit values up to which they are delta-encoded:
// beyond it readers disagree on differences that do not fit 32 bits.
const deltaSpan = 1 << 30

// integers gathers the statistics and chooses an encoding: integers are
// counters, times, and levels that move little, so differences suit them all.
func (s *stats) integers(v []int64, valid []bool) byte {
	lo, hi, nulls := int64(math.MaxInt64), int64(math.MinInt64), 0
	for r, x := range v {
		if valid[r] {
			lo, hi = min(lo, x), max(hi, x)
		} else {
			nulls++
		}
	}
	s.nulls, s.any = int64(nulls), nulls < len(v)
	s.lo, s.hi = lo, hi
	if !s.any || s.kind == table.Int32 && hi-lo > deltaSpan {
		return encodingPlain
	}
	return encodingDelta
}

func (s *stats) floats(v []float64, valid []bool) {
	lo, hi := math.Inf(1), math.Inf(-1)
	for r, x := range v {
		if !valid[r] {
			s.nulls++
			continue
		}
		if x != x { // not a number: no order has a place for it
			continue
		}
		s.any = true
		if x < lo {
			lo = x
		}
		if x > hi {
			hi = x
		}
	}
	// Readers tell the zeros apart and compare them as equal.
	if lo == 0 {
		lo = math.Copysign(0, -1)
	}
	if hi == 0 {
		hi = 0
	}
	s.flo, s.fhi = lo, hi
}

func (s *stats) strings(v []string, valid []bool) {
	for r, x := range v {
		if !valid[r] {
			s.nulls++
			continue
		}
		if !s.any {
			s.slo, s.shi, s.any = x, x, true
			continue
		}
		if x < s.slo {
			s.slo = x
		}
		if x > s.shi {
			s.shi = x
		}
	}
}

// statsText is the length of strings up to which they stand in the footer.
const statsText = 256

// thrift is the statistics as the footer has them.
func (s *stats) thrift() []byte {
	w := &thriftWriter{}
	w.i64(3, s.nulls)
	if s.any {
		var lo, hi []byte
		switch s.kind {
		case table.Int32:
			lo, hi = le.AppendUint32(nil, uint32(s.lo)), le.AppendUint32(nil, uint32(s.hi))
		case table.Float64:
			lo, hi = le.AppendUint64(nil, math.Float64bits(s.flo)), le.AppendUint64(nil, math.Float64bits(s.fhi))
		case table.Float32:
			lo, hi = le.AppendUint32(nil, math.Float32bits(float32(s.flo))), le.AppendUint32(nil, math.Float32bits(float32(s.fhi)))
		case table.String:
			if len(s.slo) <= statsText && len(s.shi) <= statsText {
				lo, hi = []byte(s.slo), []byte(s.shi)
				if lo == nil {
					lo = []byte{}
				}
			}
		default:
			lo, hi = le.AppendUint64(nil, uint64(s.lo)), le.AppendUint64(nil, uint64(s.hi))
		}
		if lo != nil {
			w.bytes(5, hi)
			w.bytes(6, lo)
		}
	}
	w.end()
	return w.b
}
