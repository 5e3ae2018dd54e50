package nvmltest

import (
	"math"
	"sort"
)

// Replay answers what the stand-in says at an instant. It is written apart from
// the stand-in's C code, so that a test may compare the two.
type Replay struct {
	cheap   [][]Row // by GPU
	windows [][]window
	begin   int64
	end     int64
	origin  int64
	start   int64
}

type window struct {
	begin, end int64
	row        Row
}

// NewReplay returns a replay that is start nanoseconds past the recording's
// begin when the raw clock shows origin.
func NewReplay(r *Recording, origin, start int64) *Replay {
	p := &Replay{
		cheap:   make([][]Row, len(r.GPUs)),
		windows: make([][]window, len(r.GPUs)),
		begin:   math.MinInt64, end: math.MaxInt64,
		origin: origin, start: start,
	}
	for _, row := range r.Cheap.Rows {
		p.cheap[row.GPU] = append(p.cheap[row.GPU], row)
	}
	last := make([]int64, len(r.GPUs))
	for _, row := range r.Activity.Rows {
		w := window{begin: last[row.GPU] + row.Value[ActGap], row: row}
		w.end = w.begin + row.Value[ActLength]
		last[row.GPU] = w.end
		p.windows[row.GPU] = append(p.windows[row.GPU], w)
	}
	for _, rows := range p.cheap {
		p.begin = max(p.begin, rows[0].Value[ColT])
		p.end = min(p.end, rows[len(rows)-1].Value[ColT])
	}
	return p
}

// Period is the time after which the replay repeats itself.
func (p *Replay) Period() int64 { return p.end - p.begin }

func (p *Replay) recorded(raw int64) int64 {
	at := (raw - p.origin + p.start) % p.Period()
	if at < 0 {
		at += p.Period()
	}
	return p.begin + at
}

// Cheap returns the values that a column of the cheap table takes while the raw
// clock goes from one instant to another.
func (p *Replay) Cheap(gpu, column int, from, to int64) []int64 {
	rows := p.cheap[gpu]
	index := func(raw int64) int {
		t := p.recorded(raw)
		return max(0, sort.Search(len(rows), func(i int) bool { return rows[i].Value[ColT] > t })-1)
	}
	first, last := index(from), index(to)
	values := []int64{rows[last].Value[column]}
	for i := first; i < last; i++ {
		values = append(values, rows[i].Value[column])
	}
	if first > last { // it looped
		values = append(values, rows[first].Value[column], rows[0].Value[column])
	}
	return values
}

// Average returns what GPM says of a column between two instants of the raw
// clock.
func (p *Replay) Average(gpu, column int, fromRaw, toRaw int64) float64 {
	const refresh = 100e6
	if toRaw-fromRaw < refresh {
		return math.NaN()
	}
	from, to := p.recorded(fromRaw), p.recorded(toRaw)
	if to < from {
		to = p.end
	}
	var sum, weight float64
	for _, w := range p.windows[gpu] {
		a, b := max(w.begin, from), min(w.end, to)
		if a >= b {
			continue
		}
		if w.row.Null>>column&1 != 0 {
			return math.NaN()
		}
		sum += float64(w.row.Value[column]) / 10000 * float64(b-a)
		weight += float64(b - a)
	}
	return sum / weight // NaN where there is no window
}
