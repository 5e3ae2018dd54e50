package verify

import (
	"context"
	"hash/maphash"
	"math"
	"slices"
	"strconv"

	"github.com/gswarm/gswarm/table"
)

// gapTicks is how many intervals may lie between two rows before those between
// them count as missing. It is wider than what the agent calls missed, which
// leaves room for a read's length.
const gapTicks = 3

// volatile are keys that come and go with what they name, so that no row of
// them is due.
var volatile = map[string]bool{"pid": true, "rank": true, "peer": true, "kind": true, "table_name": true}

// mayBeNull are columns whose null means that there is nothing to say.
var mayBeNull = map[string][]string{
	table.Event.Name:        {"gpu", "rank", "detail"},
	table.Absence.Name:      {"column_name", "key", "detail"},
	table.ClockBracket.Name: {"adj_status", "adj_maxerror_ns", "adj_esterror_ns", "adj_freq", "tai_offset_s", "clocksource"},
	table.GPUProcess.Name:   {"rank", "sm_util_pct"},
	table.Rank.Name: {
		"rank", "local_rank", "gpu", "gpu_source", "gpu_numa_node",
		// No limit is set, where others have one.
		"cgroup_periods_count", "cgroup_throttled_count", "cgroup_throttled_ns", "cgroup_mem_limit_bytes",
	},
	table.Sampler.Name: {"agent_cpu_ns", "agent_rss_bytes", "spool_bytes", "dropped_rows_count"},
}

// mixed are tables whose rows are of several kinds, each with columns of its
// own: a null there says nothing by itself.
var mixed = map[string]bool{table.GPUCounter.Name: true, table.Rank.Name: true}

// check is the passage over one table.
type check struct {
	*verifier
	t, tl   *table.Table
	keyCol  int // -1 where the table has no key
	regular bool
	// nullable are the own columns that ought to have a value.
	nullable []int
	streams  map[*node]map[string]*stream
	seed     maphash.Seed

	// The row before's.
	node     *node
	nodeName string
	ints     map[int64]string
}

// stream is the rows of one key of a node.
type stream struct {
	key string
	any bool
	// last is the last row's time, hold until when its window held.
	last, hold int64
	// same are the rows at the last instant, where a key alone does not tell
	// rows apart.
	same map[uint64]bool
	// absent tells, column by column, up to when a null is known to be
	// explained.
	explained []int64
}

func (v *verifier) rows(ctx context.Context, t *table.Table) error {
	c := &check{
		verifier: v, t: t, tl: table.Timeline(t), keyCol: -1, regular: true,
		streams: make(map[*node]map[string]*stream), seed: maphash.MakeSeed(), ints: make(map[int64]string),
	}
	if len(t.Keys) > 0 {
		c.keyCol = c.tl.Index(t.Keys[0])
	}
	for _, k := range t.Keys {
		c.regular = c.regular && !volatile[k]
	}
	// What the kernel does not tell of its clocks, it does not tell.
	clocks := t == table.ClockBracket || t == table.ClockExchange
	for i := own(t, len(t.Columns)-1); i > table.TLRead && !clocks; i-- {
		if col := c.tl.Columns[i]; !col.Required && !mixed[t.Name] && !slices.Contains(mayBeNull[t.Name], col.Name) {
			c.nullable = append(c.nullable, i)
		}
	}
	err := v.read(ctx, t, func(b *table.Batch) error {
		for r := range b.Rows() {
			c.row(b, r)
		}
		c.nulls(b)
		return nil
	})
	if err != nil {
		return err
	}
	c.close()
	return nil
}

// of returns the node of a row; files name none that the timeline's metadata
// does not.
func (c *check) of(b *table.Batch, r int) *node {
	if name := b.Strings(table.TLNode)[r]; c.node == nil || name != c.nodeName {
		c.node, c.nodeName = c.nodes[name], name
	}
	return c.node
}

// key returns the row's first key as text.
func (c *check) key(b *table.Batch, r int) string {
	switch {
	case c.keyCol < 0:
		return ""
	case c.tl.Columns[c.keyCol].Type == table.String:
		return b.Strings(c.keyCol)[r]
	}
	n := b.Ints(c.keyCol)[r]
	s, ok := c.ints[n]
	if !ok {
		s = strconv.FormatInt(n, 10)
		if len(c.ints) < 1<<16 {
			c.ints[n] = s
		}
	}
	return s
}

func (c *check) stream(n *node, key string) *stream {
	if !c.regular {
		key = ""
	}
	byKey := c.streams[n]
	if byKey == nil {
		byKey = make(map[string]*stream)
		c.streams[n] = byKey
	}
	s := byKey[key]
	if s == nil {
		s = &stream{key: key, explained: make([]int64, len(c.tl.Columns))}
		byKey[key] = s
	}
	return s
}

func (c *check) coverage(n *node) *Coverage {
	cov := n.coverage[c.t.Name]
	if cov == nil {
		cov = &Coverage{Table: c.t.Name}
		if c.regular {
			cov.IntervalNS = n.facts.interval[c.t.Name]
		}
		n.coverage[c.t.Name] = cov
	}
	return cov
}

func (c *check) row(b *table.Batch, r int) {
	n := c.of(b, r)
	if n == nil {
		c.find(Finding{Code: FileUnlisted, Incomplete: true, Node: b.Strings(table.TLNode)[r], Table: c.t.Name, Count: 1, Detail: "rows of a node that the timeline does not know"})
		return
	}
	t := b.Ints(table.TLTimeNS)[r]
	begin := t
	if c.t.Shape == table.Windowed {
		begin = b.Ints(table.TLBegin)[r]
	}
	c.times(n, b, r, begin)
	cov := c.coverage(n)
	cov.Rows++
	cov.tiles.add(floorDiv(t, c.tile))
	s := c.stream(n, c.key(b, r))
	switch {
	case !s.any:
		s.any = true
		cov.Keys++
	case t < s.last && n.samplers == 1:
		c.find(Finding{Code: OutOfOrder, Incomplete: true, Node: n.Node.Node, Table: c.t.Name, Key: s.key, Count: 1, BeginNS: t, EndNS: t, Detail: "its time runs backwards"})
	case cov.IntervalNS > 0 && n.samplers == 1:
		c.gap(n, cov, s, begin, false)
	}
	c.duplicate(n, s, b, r, t)
	s.last, s.hold = t, max(s.hold, t)
}

// times checks a row's times and bound against each other.
func (c *check) times(n *node, b *table.Batch, r int, begin int64) {
	t, read := b.Ints(table.TLTimeNS)[r], b.Ints(table.TLRead)[r]
	f := Finding{Node: n.Node.Node, Table: c.t.Name, Count: 1, BeginNS: t, EndNS: t, Incomplete: true}
	if b.Ints(table.TLTime)[r] != floorDiv(t, 1000) || begin > t || read < 0 {
		f.Code, f.Detail = TimeMismatch, "time is not time_ns in microseconds, or a window or a read is longer than nothing"
		c.find(f)
	}
	bounded := b.Valid(table.TLBound)[r]
	switch bound := b.Ints(table.TLBound)[r]; {
	case !bounded && c.t.Foreign.Column != "":
		// A stamp that could not be carried over leaves the row no bound.
	case bounded != n.aligned:
		f.Code, f.Detail = BoundMissing, "a bound is there and the node is unaligned, or the other way round"
		c.find(f)
	case bounded && bound < (read+1)/2 && c.t.Foreign.Column == "":
		f.Code, f.Detail = BoundImpossible, "the bound is smaller than the read's half"
		c.find(f)
	}
}

// duplicate looks for a row that is there twice.
func (c *check) duplicate(n *node, s *stream, b *table.Batch, r int, t int64) {
	first := s.same == nil
	if first {
		s.same = make(map[uint64]bool, 1)
	}
	if t != s.last {
		clear(s.same)
	}
	h := c.hash(b, r)
	if s.same[h] && !first {
		c.find(Finding{Code: Duplicate, Incomplete: true, Node: n.Node.Node, Table: c.t.Name, Key: s.key, Count: 1, BeginNS: t, EndNS: t, Detail: "the row is there twice"})
	}
	s.same[h] = true
}

// hash is of a regular table's key, which alone must tell rows of one instant
// apart, and of all values of another's.
func (c *check) hash(b *table.Batch, r int) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	if c.regular {
		for _, k := range c.t.Keys {
			c.hashValue(&h, b, r, c.tl.Index(k))
		}
		return h.Sum64()
	}
	for i := range c.tl.Columns {
		c.hashValue(&h, b, r, i)
	}
	return h.Sum64()
}

func (c *check) hashValue(h *maphash.Hash, b *table.Batch, r, i int) {
	var v uint64
	switch c.tl.Columns[i].Type {
	case table.String:
		h.WriteString(b.Strings(i)[r])
		h.WriteByte(0)
		return
	case table.Float32, table.Float64:
		v = math.Float64bits(b.Floats(i)[r])
	default:
		v = uint64(b.Ints(i)[r])
	}
	var buf [8]byte
	for j := range buf {
		buf[j] = byte(v >> (8 * j))
	}
	h.Write(buf[:])
}

// nulls looks for values that are null and no absence says why.
func (c *check) nulls(b *table.Batch) {
	for _, i := range c.nullable {
		for r, ok := range b.Valid(i) {
			if !ok {
				c.null(b, r, i)
			}
		}
	}
}

func (c *check) null(b *table.Batch, r, i int) {
	n := c.of(b, r)
	if n == nil {
		return
	}
	t := b.Ints(table.TLTimeNS)[r]
	key := c.key(b, r)
	s := c.stream(n, key)
	if t < s.explained[i] && c.regular {
		return
	}
	// An absence is written after the read that found it.
	slack := max(int64(2e9), 2*n.facts.interval[c.t.Name])
	k := absentKey{c.t.Name, c.tl.Columns[i].Name, key}
	if n.facts.covers(k, t, slack) || !n.facts.clean && n.facts.covers(k, t, extendEvery) {
		s.explained[i] = t + slack
		return
	}
	c.find(Finding{
		Code: NullNoWhy, Incomplete: true, Node: n.Node.Node, Table: c.t.Name, Column: k.column, Key: key,
		Count: 1, BeginNS: t, EndNS: t, Detail: "null, and no row of absence says why",
	})
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
