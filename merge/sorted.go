package merge

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// Sizes of the merge into one order. A run of a thousand nodes has a thousand
// cursors at a time, each with a page of every column and cursorRows rows.
const (
	sortedRows = 64 << 10 // rows of a row group
	cursorRows = 128
	// sortedWorkers encode at a time, each a row group of its own. One
	// goroutine merges, for about as long as one encodes.
	sortedWorkers = 3
)

// sortedParts divides a table into files by time, at the ends of tiles. A piece
// that lies on both sides of one is in both parts.
func (m *merger) sortedParts(t *table.Table, pieces []piece) []part {
	parts := []part{{table: t, from: math.MinInt64, to: math.MaxInt64}}
	for i := range pieces {
		p := &parts[len(parts)-1]
		if i > 0 && pieces[i].tile != pieces[i-1].tile && p.rows >= partRows {
			cut := pieces[i].tile * m.tile
			p.to = cut
			parts = append(parts, part{table: t, from: cut, to: math.MaxInt64})
			p = &parts[len(parts)-1]
		}
		p.rows += pieces[i].Rows
	}
	slices.SortStableFunc(pieces, func(a, b piece) int {
		if c := cmp.Compare(a.first, b.first); c != 0 {
			return c
		}
		return cmp.Compare(a.node.name, b.node.name)
	})
	for i := range parts {
		p := &parts[i]
		g := group{}
		for _, x := range pieces {
			if x.first < p.to && x.last >= p.from {
				g = append(g, x)
			}
		}
		if len(g) > 0 {
			p.groups = []group{g}
		}
	}
	return named(parts)
}

// disorderError says that a piece's rows are not in order once they are
// corrected, as after a step of its clock.
type disorderError struct{ piece *piece }

func (e *disorderError) Error() string {
	return fmt.Sprintf("rows of %s fall back in time", e.piece.node.name)
}

// source gives a piece's rows, a few at a time; none are left where it appends
// none.
type source interface {
	Next(b, sub *table.Batch, n int) error
	Close()
}

// inMemory is rows that are held.
type inMemory struct {
	b  *table.Batch
	at int
}

// Next implements source.
func (s *inMemory) Next(b, _ *table.Batch, n int) error {
	to := min(s.at+n, s.b.Rows())
	b.AppendRange(s.b, s.at, to)
	s.at = to
	return nil
}

// Close implements source.
func (s *inMemory) Close() {}

// cursor goes through the rows of one piece.
type cursor struct {
	piece  *piece
	rank   int
	stream source
	// conv corrects what is read beside the rows; nil where the stream has
	// the timeline's form. names are the columns that come of it.
	conv  *converter
	names []string
	b     *table.Batch
	at    int
	last  int64
}

// time is that of the cursor's row.
func (c *cursor) time() int64 { return c.b.Ints(table.TLTimeNS)[c.at] }

// cursors is a heap by time; rows of one time come in the order of the pieces.
type cursors []*cursor

func (h cursors) Len() int { return len(h) }
func (h cursors) Less(i, j int) bool {
	a, b := h[i].time(), h[j].time()
	return a < b || a == b && h[i].rank < h[j].rank
}
func (h cursors) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *cursors) Push(x any) { *h = append(*h, x.(*cursor)) }

// Pop implements heap.Interface.
func (h *cursors) Pop() any {
	old := *h
	c := old[len(old)-1]
	*h = old[:len(old)-1]
	return c
}

// sorter is the merge of one part into one order.
type sorter struct {
	m        *merger
	part     *part
	src, dst *table.Table
	scratch  string // what the names of scratch files begin with
	beside   *table.Batch
	active   cursors
	// from and rows are the rows that come next in the output and have not
	// been copied yet.
	from    []*table.Batch
	rows    []int32
	written map[*node]int64
	line    *line
	spare   chan *table.Batch
}

// sorted writes the part's rows in order of time, node and GPU.
func (m *merger) sorted(ctx context.Context, p *part, w *shard.ParquetWriter) (map[*node]int64, error) {
	s := &sorter{
		m: m, part: p, src: p.table, dst: table.Timeline(p.table), scratch: w.Path() + ".scratch-",
		written: make(map[*node]int64),
	}
	if len(p.groups) == 0 {
		return s.written, nil
	}
	n := min(workers(), sortedWorkers)
	s.spare = make(chan *table.Batch, n+1)
	var err error
	if s.line, err = newLine(ctx, w, n); err != nil {
		return nil, err
	}
	merr := s.merge()
	for _, c := range s.active {
		c.stream.Close()
	}
	if err := s.line.close(); err != nil {
		return nil, err
	}
	return s.written, merr
}

func (s *sorter) merge() error {
	pieces := s.part.groups[0]
	next := 0
	b, last := s.batch(), int64(math.MinInt64)
	for {
		for next < len(pieces) && (len(s.active) == 0 || pieces[next].first <= s.active[0].time()) {
			if err := s.open(&pieces[next], next); err != nil {
				return err
			}
			next++
		}
		if len(s.active) == 0 {
			if next < len(pieces) {
				continue
			}
			s.gather(b)
			return s.emit(b)
		}
		top := s.active[0]
		now := top.time()
		if n := b.Rows() + len(s.rows); n >= sortedRows && (now != last || n >= shard.MaxRowGroup-cursorRows) {
			s.gather(b)
			if err := s.emit(b); err != nil {
				return err
			}
			b = s.batch()
		}
		to := top.run(s.limit(pieces, next))
		last = top.b.Ints(table.TLTimeNS)[to-1]
		for r := top.at; r < to; r++ {
			s.from, s.rows = append(s.from, top.b), append(s.rows, int32(r))
		}
		s.written[top.piece.node] += int64(to - top.at)
		top.at = to
		if top.at == top.b.Rows() {
			s.gather(b) // the cursor's rows give way to the next ones
			if err := s.fill(top); err != nil {
				return err
			}
		}
		if top.at == top.b.Rows() {
			top.stream.Close()
			heap.Pop(&s.active)
		} else {
			heap.Fix(&s.active, 0)
		}
	}
}

// gather copies the rows that come next.
func (s *sorter) gather(b *table.Batch) {
	b.Gather(s.from, s.rows)
	clear(s.from)
	s.from, s.rows = s.from[:0], s.rows[:0]
}

// limit is the time up to which the first cursor's rows come before all
// others'.
func (s *sorter) limit(pieces []piece, next int) int64 {
	limit := int64(math.MaxInt64)
	for i := 1; i < min(3, len(s.active)); i++ {
		limit = min(limit, s.active[i].time())
	}
	if next < len(pieces) {
		limit = min(limit, pieces[next].first)
	}
	return limit
}

// run returns where the rows before limit end; one at least is.
func (c *cursor) run(limit int64) int {
	t := c.b.Ints(table.TLTimeNS)
	to := c.at + 1
	for to < len(t) && t[to] < limit {
		to++
	}
	return to
}

// open begins a piece. Those that cannot be streamed are written down in order
// first: there may be a thousand of them at a time.
func (s *sorter) open(p *piece, rank int) error {
	c := &cursor{piece: p, rank: rank, b: table.NewBatch(s.dst, cursorRows), last: math.MinInt64}
	if p.memory == nil && p.Paged() && !p.scratch {
		sub, names := corrected(p.node, s.src)
		stream, ok := p.node.data.Stream(p.Unit, s.src, s.dst, names, sub)
		if !ok {
			return nil
		}
		c.stream, c.names = stream, names
		c.conv = newConverter(p.node, sub, table.NewBatch(table.Timeline(sub), cursorRows))
	} else {
		all := table.NewBatch(s.dst, int(p.Rows))
		if err := p.read(s.src, s.dst, all); err != nil {
			return err
		}
		if all.Rows() == 0 {
			return nil
		}
		all.SortByTime(table.TLTimeNS, -1)
		var err error
		if c.stream, err = s.writeDown(all, rank); err != nil {
			return err
		}
	}
	if err := s.fill(c); err != nil {
		c.stream.Close()
		return err
	}
	if c.at == c.b.Rows() {
		c.stream.Close()
		return nil
	}
	heap.Push(&s.active, c)
	return nil
}

// heldRows is the number of rows up to which a piece is held in memory.
const heldRows = 2 * cursorRows

func (s *sorter) writeDown(b *table.Batch, rank int) (source, error) {
	if b.Rows() <= heldRows {
		return &inMemory{b: b}, nil
	}
	path := fmt.Sprintf("%s%d", s.scratch, rank)
	w, err := shard.CreateParquet(path, s.dst, nil)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	if err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	defer os.Remove(path)  // it lives on as long as it is open
	if w.RowGroups() > 1 { // texts of many megabytes
		return &inMemory{b: b}, nil
	}
	return shard.OpenStream(path, s.dst, 0)
}

// fill reads the cursor's next rows that are the part's.
func (s *sorter) fill(c *cursor) error {
	for {
		c.at = 0
		c.b.Reset()
		var beside *table.Batch
		if c.conv != nil {
			if s.beside == nil || len(s.beside.Table.Columns) != len(c.conv.src.Columns) {
				s.beside = table.NewBatch(c.conv.src, cursorRows)
			}
			beside = s.beside
			beside.Reset()
		}
		if err := c.stream.Next(c.b, beside, cursorRows); err != nil {
			c.b.Reset()
			if c.conv != nil {
				c.piece.node.data.Undecodable(c.piece.Unit, s.src, err)
				return nil
			}
			return err
		}
		if c.b.Rows() == 0 {
			return nil
		}
		if c.conv != nil {
			own := c.conv.convert(beside)
			for _, name := range c.names {
				c.b.CopyColumn(s.dst.Index(name), own, own.Table.Index(name))
			}
		}
		t := c.b.Ints(table.TLTimeNS)
		for _, x := range t {
			if x < c.last {
				return &disorderError{c.piece}
			}
			c.last = x
		}
		from, _ := slices.BinarySearch(t, s.part.from)
		to := len(t)
		if s.part.to != math.MaxInt64 {
			to, _ = slices.BinarySearch(t, s.part.to)
		}
		if to < len(t) {
			c.b.Truncate(to)
		}
		if c.at = from; from < to {
			return nil
		}
		if to < len(t) { // all that follows is later still
			c.at = c.b.Rows()
			return nil
		}
	}
}

func (s *sorter) batch() *table.Batch {
	select {
	case b := <-s.spare:
		b.Reset()
		return b
	default:
		return table.NewBatch(s.dst, sortedRows+cursorRows)
	}
}

// emit passes a row group on, rows of one time in order of node and GPU.
func (s *sorter) emit(b *table.Batch) error {
	if b.Rows() == 0 {
		return nil
	}
	t, gpu := b.Ints(table.TLTimeNS), s.dst.Index(gpuColumn)
	for from := 0; from < len(t); {
		to := from + 1
		for to < len(t) && t[to] == t[from] {
			to++
		}
		if to-from > 1 {
			b.SortTies(from, to, table.TLNode, gpu)
		}
		from = to
	}
	return s.line.put(func(wk *worker, j *job) error {
		err := wk.enc.Encode(&j.group, b)
		s.spare <- b
		return err
	}, func(j *job) { s.m.progress(s.part.table, int64(j.group.Rows())) })
}
