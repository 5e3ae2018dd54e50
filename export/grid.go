package export

import (
	"context"
	"math"
	"time"

	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/table"
)

// DefaultEvery is the length of the frames of formats that have some.
const DefaultEvery = time.Second

// MinEvery is the least length of a frame.
const MinEvery = time.Millisecond

// gauge is a column of a GPU table that a format takes. Its values are
// multiplied by scale.
type gauge struct {
	table  *table.Table
	column string
	scale  float64
}

// frame is what all GPUs read in a stretch of time. GPUs are read one after the
// other, so a frame holds for each the mean of what was read of it within the
// stretch; a value that stands for a window counts by how much of the window lies
// there. It is valid until the next.
type frame struct {
	// number counts from 0; begin and end are nanoseconds since the Unix epoch.
	number     int64
	begin, end int64
	// bound is the widest bound of the readings' times, -1 where one has none;
	// it says nothing where there are no readings.
	bound    int64
	readings int64
	gpus     int
	cells    []cell // by gauge, then GPU
}

type cell struct{ sum, weight float64 }

// value returns the mean of a gauge, ok is false where nothing was read.
func (f *frame) value(gauge, gpu int) (v float64, ok bool) {
	c := f.cells[gauge*f.gpus+gpu]
	return c.sum / c.weight, c.weight > 0
}

// grid cuts the time into frames that begin at multiples of every since the Unix
// epoch.
type grid struct {
	source *Source
	gpus   []dataset.GPU
	gauges []gauge
	every  int64
	// reading, if not nil, gets each single reading before it goes into a
	// frame.
	reading func(gauge, gpu int, v float64)
	slots   map[thingKey]int
}

func (s *Source) grid(ctx context.Context, gauges []gauge, every time.Duration) (*grid, error) {
	gpus, err := s.gpus(ctx)
	if err != nil {
		return nil, err
	}
	g := &grid{source: s, gpus: gpus, gauges: gauges, every: int64(every), slots: make(map[thingKey]int)}
	for i, gpu := range gpus {
		g.slots[thingKey{node: gpu.Node, number: gpu.Index, name: gpu.UUID}] = i
	}
	return g, nil
}

// maxCells bounds the frames that are filled at a time: 64 MB.
const maxCells = 4 << 20

// windowMax is a length that no window exceeds: a row stands at its window's end,
// so the rows of a stretch are looked for that much further.
const windowMax = int64(time.Minute)

// frames passes the frames on, in order and without a gap from the first reading
// to the last. It reads the tables once for every so many frames as memory
// allows.
func (g *grid) frames(ctx context.Context, fn func(*frame) error) error {
	first, last, ok, err := g.span()
	if err != nil || !ok {
		return err
	}
	size := len(g.gpus) * len(g.gauges)
	chunk := min(max(int64(g.source.cells/max(size, 1)), 1), last-first+1)
	all := make([]frame, chunk)
	cells := make([]cell, chunk*int64(size))
	for from := first; from <= last; from += chunk {
		n := min(chunk, last-from+1)
		clear(cells)
		for i := range all[:n] {
			number := from + int64(i)
			all[i] = frame{
				number: number - first, begin: number * g.every, end: (number + 1) * g.every,
				gpus: len(g.gpus), cells: cells[i*size:][:size],
			}
		}
		if err := g.fill(ctx, all[:n]); err != nil {
			return err
		}
		for i := range all[:n] {
			if err := fn(&all[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// span returns the numbers of the first and the last frame.
func (g *grid) span() (first, last int64, ok bool, err error) {
	for _, t := range g.tables() {
		from, to, timed, err := g.source.timeline.Span(t)
		if err != nil {
			return 0, 0, false, err
		}
		if !timed {
			continue
		}
		from, to = max(from, g.source.from), min(to, g.source.until-1)
		if from > to {
			continue
		}
		from, to = floorDiv(from, g.every), floorDiv(to, g.every)
		if !ok {
			first, last, ok = from, to, true
		}
		first, last = min(first, from), max(last, to)
	}
	return first, last, ok, nil
}

// tables are those of the gauges, each once.
func (g *grid) tables() (all []*table.Table) {
	seen := make(map[*table.Table]bool)
	for _, q := range g.gauges {
		if !seen[q.table] {
			seen[q.table] = true
			all = append(all, q.table)
		}
	}
	return all
}

// The columns that are read before the gauges'.
const (
	gridTime = iota
	gridBound
	gridNode
	gridGPU
	gridUUID
	gridBegin // as gridTime where rows cover no window
	gridOwn
)

// fill reads the rows of a stretch of frames.
func (g *grid) fill(ctx context.Context, frames []frame) error {
	begin, end := frames[0].begin, frames[len(frames)-1].end
	for _, t := range g.tables() {
		names := []string{table.TimeNS, table.TimeBound, table.Node, "gpu", "gpu_uuid", table.TimeNS}
		until := end
		if t.Shape == table.Windowed {
			names[gridBegin] = table.TimeBegin
			until += windowMax
		}
		var gauges []int
		for i, q := range g.gauges {
			if q.table == t {
				gauges = append(gauges, i)
				names = append(names, q.column)
			}
		}
		err := g.source.timeline.Between(ctx, table.Timeline(t).Select(names...), begin, until, func(b *table.Batch) error {
			g.take(b, gauges, frames)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// take adds a batch's rows to the frames.
func (g *grid) take(b *table.Batch, gauges []int, frames []frame) {
	times, begins, bounds, bounded := b.Ints(gridTime), b.Ints(gridBegin), b.Ints(gridBound), b.Valid(gridBound)
	node, index, uuid := b.Strings(gridNode), b.Ints(gridGPU), b.Strings(gridUUID)
	begin, end := frames[0].begin, frames[len(frames)-1].end
	var last thingKey
	slot, known := 0, false
	for r := range b.Rows() {
		window := begins[r] < times[r]
		if times[r] < begin || begins[r] >= end || window && times[r] == begin {
			continue
		}
		if k := (thingKey{node[r], index[r], uuid[r]}); k != last {
			slot, known = g.slots[k]
			last = k
		}
		if !known { // of a node that is not wanted
			continue
		}
		bound := int64(-1)
		if bounded[r] {
			bound = bounds[r]
		}
		if !window {
			f := &frames[(times[r]-begin)/g.every]
			g.add(b, r, gauges, slot, f, 1, bound, true)
			continue
		}
		at := max(begins[r], begin)
		for at < min(times[r], end) {
			f := &frames[(at-begin)/g.every]
			to := min(times[r], f.end)
			// A window counts as a reading where it ends.
			g.add(b, r, gauges, slot, f, float64(to-at), bound, to == times[r])
			at = to
		}
	}
}

// add adds a row to a frame.
func (g *grid) add(b *table.Batch, row int, gauges []int, slot int, f *frame, weight float64, bound int64, reading bool) {
	any := false
	for i, q := range gauges {
		col := gridOwn + i
		if !b.Valid(col)[row] {
			continue
		}
		var v float64
		if b.Table.Columns[col].Type == table.Float32 || b.Table.Columns[col].Type == table.Float64 {
			v = b.Floats(col)[row]
		} else {
			v = float64(b.Ints(col)[row])
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		v *= g.gauges[q].scale
		c := &f.cells[q*f.gpus+slot]
		c.sum += v * weight
		c.weight += weight
		any = true
		if reading && g.reading != nil {
			g.reading(q, slot, v)
		}
	}
	if !any {
		return
	}
	f.readings++
	switch {
	case f.bound < 0:
	case bound < 0:
		f.bound = -1
	default:
		f.bound = max(f.bound, bound)
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
