package merge

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// Bounds on what a merge holds in memory, in rows.
const (
	// flushRows is how many rows of one node's tile are gathered before
	// those are passed on that nothing can come before any more.
	flushRows = 256 << 10
	// carryRows is how many rows of later tiles all nodes together may keep;
	// beyond it they are read again when their tile comes.
	carryRows = 512 << 10
)

// stream is the rows of one table of one node, tile by tile.
type stream struct {
	node    *node
	src     *table.Table
	dst     *table.Table
	tile    int64
	read    func(unit, func(*table.Batch) error) error
	units   []unit // by the time of their first row
	next    int
	carried []carried
	conv    *converter
	cur     *table.Batch
}

// unit is a shard.Unit, or rows in memory.
type unit struct {
	shard.Unit
	memory *table.Batch
	// first is the time of its earliest row, firstTile the tile of that: no
	// row of the unit goes into an earlier one.
	first     int64
	firstTile int64
	lastTile  int64
}

// carried is a unit that has been read and has rows in later tiles.
type carried struct {
	unit unit
	// tile is the earliest of them.
	tile int64
	// rows are those rows, nil where they have to be read again.
	rows *table.Batch
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// newStream lists a node's units; it returns nil where there are none.
func newStream(n *node, src, dst *table.Table, tile int64) *stream {
	s := &stream{node: n, src: src, dst: dst, tile: tile}
	s.read = func(u unit, fn func(*table.Batch) error) error {
		if u.memory != nil {
			return fn(u.memory)
		}
		return n.data.Read(u.Unit, src, fn)
	}
	for _, u := range n.data.Units(src) {
		s.units = append(s.units, s.place(unit{Unit: u}))
	}
	if src == table.Absence && n.lost != nil && n.lost.Rows() > 0 {
		lo, hi := n.lost.Ints(table.ColT)[0], n.lost.Ints(table.ColT)[0]
		for _, t := range n.lost.Ints(table.ColT) {
			lo, hi = min(lo, t), max(hi, t)
		}
		u := unit{memory: n.lost}
		u.Rows, u.TMin, u.TMax = int64(n.lost.Rows()), clock.NodeTime(lo), clock.NodeTime(hi)
		s.units = append(s.units, s.place(u))
	}
	if len(s.units) == 0 {
		return nil
	}
	slices.SortStableFunc(s.units, func(a, b unit) int { return cmp.Compare(a.first, b.first) })
	s.conv = newConverter(n, src, dst)
	s.cur = table.NewBatch(dst, 0)
	return s
}

func (s *stream) place(u unit) unit {
	if u.TMin == math.MinInt64 { // a file without statistics
		u.first, u.firstTile, u.lastTile = math.MinInt64, math.MinInt64, math.MaxInt64
		return u
	}
	lo, _, _ := s.node.model.At(u.TMin)
	hi, _, _ := s.node.model.At(u.TMax)
	u.first, u.firstTile, u.lastTile = int64(lo), floorDiv(int64(lo), s.tile), floorDiv(int64(hi), s.tile)
	return u
}

// nextTile returns the earliest tile that may have rows.
func (s *stream) nextTile() (int64, bool) {
	best, ok := int64(math.MaxInt64), false
	if s.next < len(s.units) {
		best, ok = s.units[s.next].firstTile, true
	}
	for _, c := range s.carried {
		best, ok = min(best, c.tile), true
	}
	return best, ok
}

func (s *stream) tileOf(ns int64, u unit) int64 {
	return max(floorDiv(ns, s.tile), u.firstTile)
}

// emitTile passes the rows of tile k to emit, in order of their time. Budget
// is what may still be carried to later tiles, by all streams together.
func (s *stream) emitTile(ctx context.Context, k int64, budget *int64, emit func(*table.Batch) error) error {
	s.cur.Reset()
	old := s.carried
	s.carried = nil
	for _, c := range old {
		var err error
		switch {
		case c.tile > k:
			s.carried = append(s.carried, c)
		case c.rows == nil:
			err = s.load(c.unit, k, budget)
		default:
			*budget += int64(c.rows.Rows())
			d := dealer{stream: s, unit: c.unit, k: k, budget: budget}
			d.deal(c.rows)
			d.close()
		}
		if err != nil {
			return err
		}
	}
	for s.next < len(s.units) && s.units[s.next].firstTile <= k {
		if err := ctx.Err(); err != nil {
			return err
		}
		u := s.units[s.next]
		s.next++
		if err := s.load(u, k, budget); err != nil {
			return err
		}
		if s.cur.Rows() >= flushRows && s.next < len(s.units) {
			if err := s.flushBefore(s.units[s.next].first, emit); err != nil {
				return err
			}
		}
	}
	return s.flushBefore(math.MaxInt64, emit)
}

// load reads a unit, converts its rows and deals them out.
func (s *stream) load(u unit, k int64, budget *int64) error {
	d := dealer{stream: s, unit: u, k: k, budget: budget}
	err := s.read(u, func(b *table.Batch) error {
		d.deal(s.conv.convert(b))
		return nil
	})
	d.close()
	return err
}

// dealer deals the rows of one unit out: those of tile k into the stream's cur,
// those of later tiles into what is carried. Rows of earlier tiles have been
// passed on before.
type dealer struct {
	*stream
	unit   unit
	k      int64
	budget *int64

	later *table.Batch
	any   bool
	tile  int64 // the earliest later tile, where there is any
	over  bool  // the budget did not suffice
}

func (d *dealer) deal(b *table.Batch) {
	times := b.Ints(table.TLTimeNS)
	for from := 0; from < len(times); {
		t := d.tileOf(times[from], d.unit)
		to := from + 1
		for to < len(times) && d.tileOf(times[to], d.unit) == t {
			to++
		}
		if t == d.k {
			d.cur.AppendRange(b, from, to)
		} else if t > d.k {
			d.carry(b, from, to, t)
		}
		from = to
	}
}

func (d *dealer) carry(b *table.Batch, from, to int, tile int64) {
	if !d.any || tile < d.tile {
		d.any, d.tile = true, tile
	}
	if d.over {
		return
	}
	if d.later == nil {
		d.later = table.NewBatch(d.dst, to-from)
	}
	d.later.AppendRange(b, from, to)
	if *d.budget -= int64(to - from); *d.budget < 0 {
		*d.budget += int64(d.later.Rows())
		d.later, d.over = nil, true
	}
}

func (d *dealer) close() {
	if d.any {
		d.carried = append(d.carried, carried{unit: d.unit, tile: d.tile, rows: d.later})
	}
}

// flushBefore passes on the gathered rows before the given time.
func (s *stream) flushBefore(limit int64, emit func(*table.Batch) error) error {
	if s.cur.Rows() == 0 {
		return nil
	}
	sorted := sortByTime(s.cur)
	times := sorted.Ints(table.TLTimeNS)
	n := len(times)
	if limit != math.MaxInt64 {
		n, _ = slices.BinarySearch(times, limit)
	}
	if n == len(times) {
		err := emit(sorted)
		s.cur.Reset()
		return err
	}
	out, rest := table.NewBatch(s.dst, n), table.NewBatch(s.dst, len(times)-n)
	out.AppendRange(sorted, 0, n)
	rest.AppendRange(sorted, n, len(times))
	s.cur = rest
	if n == 0 {
		return nil
	}
	return emit(out)
}
