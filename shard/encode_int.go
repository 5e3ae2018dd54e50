package shard

import (
	"fmt"
	"math"
	"slices"

	"github.com/gswarm/gswarm/table"
)

// intPlan is how the integers of a chunk are encoded.
type intPlan struct {
	encoding byte
	even     bool // of delta encoding
}

// probe encodes one page both ways. Counters of many nodes in one order of time
// jump from one node's level to the next one's, and their differences are
// longer than they are. Plain values have to gain clearly: they take several
// times as long to compress and to read.
func (e *Encoder) probe(col table.Column, d columnData) (byte, error) {
	from := len(d.valid) / pageRows / 2 * pageRows
	size := [2]int{}
	for i, enc := range []byte{encodingDelta, encodingPlain} {
		var err error
		if size[i], err = e.tryPage(col, d, from, min(from+pageRows, len(d.valid)), enc, 0); err != nil {
			return enc, err
		}
	}
	if size[1] < size[0]*3/4 {
		return encodingPlain, nil
	}
	return encodingDelta, nil
}

// tryPage returns the length of a page, which goes nowhere.
func (e *Encoder) tryPage(col table.Column, d columnData, from, to int, enc byte, width int) (int, error) {
	e.try.reset()
	e.store = 0 // every try is compressed, and so is the chunk's first page
	_, _, err := e.dataPage(&e.try, col, d, from, to, enc, width)
	e.store = 0
	return len(e.try.own), err
}

// choose encodes one page in every way and takes the shortest for the chunk.
func (e *Encoder) choose(col table.Column, d columnData, plan intPlan) (intPlan, error) {
	page := len(d.valid) / pageRows / 2 * pageRows
	to := min(page+pageRows, len(d.valid))
	plans := []intPlan{{encoding: encodingPlain}}
	if plan.encoding == encodingDelta {
		plans = append(plans, intPlan{encoding: encodingDelta}, intPlan{encoding: encodingDelta, even: true})
	}
	dict := e.intDictionary(d, page, to)
	if dict {
		plans = append(plans, intPlan{encoding: encodingDict})
	}
	best, least := plan, math.MaxInt
	for _, p := range plans {
		e.plan = p
		size, err := e.tryPage(col, d, page, to, p.encoding, e.intWidth())
		if err != nil {
			return plan, err
		}
		if p.encoding == encodingDict {
			e.try.reset()
			e.intDictPage(&e.try, col)
			size += len(e.try.own) * (to - page) / len(d.valid)
		}
		if size < least {
			best, least = p, size
		}
	}
	return best, nil
}

// maxIntDict is the most distinct integers of a dictionary: two bytes tell them.
const maxIntDict = 1 << 16

// intDictionary gathers the distinct integers of a chunk in their order, and
// says whether they repeat enough to try; the rows [from, to) are looked at
// first.
func (e *Encoder) intDictionary(d columnData, from, to int) bool {
	if e.intDict == nil {
		e.intDict = make(map[int64]int32)
	}
	distinct := func(from, to, most int) bool {
		for r := from; r < to; r++ {
			if d.valid[r] {
				e.intDict[d.ints[r]] = 0
				if len(e.intDict) > most {
					return false
				}
			}
		}
		return true
	}
	clear(e.intDict)
	if !distinct(from, to, (to-from)*7/8) || !distinct(0, len(d.valid), min(maxIntDict, len(d.valid)/4)) || len(e.intDict) < 2 {
		return false
	}
	e.intValues = e.intValues[:0]
	for v := range e.intDict {
		e.intValues = append(e.intValues, v)
	}
	slices.Sort(e.intValues)
	for i, v := range e.intValues {
		e.intDict[v] = int32(i)
	}
	e.indices = e.indices[:0]
	for r, v := range d.valid {
		n := int32(-1)
		if v {
			n = e.intDict[d.ints[r]]
		}
		e.indices = append(e.indices, n)
	}
	return true
}

// intWidth is that of the indices, whole bytes, for the same reason as in even
// delta encoding.
func (e *Encoder) intWidth() int {
	if len(e.intValues) <= 1<<8 {
		return 8
	}
	return 16
}

func (e *Encoder) intDictPage(g *Group, col table.Column) int64 {
	e.page = appendPlain(e.page[:0], col, e.intValues)
	raw, _ := e.emit(g, pageDict, len(e.intValues), encodingPlain) // maxIntDict bounds it
	return raw
}

// intPage appends the values of one page and returns the encoding that they have
// got.
func (e *Encoder) intPage(col table.Column, v []int64, valid []bool, from, to int, enc byte, width int) (byte, error) {
	e.ints = pick(e.ints[:0], v, valid)
	if col.Type == table.Int32 {
		for _, v := range e.ints {
			if int64(int32(v)) != v {
				return enc, fmt.Errorf("%d does not fit its 32 bits", v)
			}
		}
	}
	switch {
	case enc == encodingDict:
		e.page = append(e.page, byte(width))
		e.picked = pickAt(e.picked[:0], e.indices[from:to])
		e.page = appendHybrid(e.page, e.picked, width)
	case enc == encodingDelta && len(e.ints) > 0:
		e.page = appendDelta(e.page, e.ints, e.plan.even)
	default:
		// Not every reader takes delta encoding of nothing.
		enc = encodingPlain
		e.page = appendPlain(e.page, col, e.ints)
	}
	return enc, nil
}

func appendPlain(dst []byte, col table.Column, v []int64) []byte {
	if col.Type == table.Int32 {
		for _, v := range v {
			dst = le.AppendUint32(dst, uint32(v))
		}
		return dst
	}
	for _, v := range v {
		dst = le.AppendUint64(dst, uint64(v))
	}
	return dst
}
