package merge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// The shape of a timeline's files. It follows from the shards alone, so that
// several tasks may write it and any of them again.
const (
	// copyRows is the number of rows from which a shard's row group is
	// copied as it is. Smaller ones are gathered: a thousand row groups of a
	// few rows are slow to read and mostly metadata.
	copyRows = 4096
	// groupRows is the number of rows from which a gathered row group ends.
	groupRows = 16 << 10
	// partRows and partGroups are where a part ends. They keep a footer
	// below a few megabytes, and leave parts enough for several tasks.
	partRows   = 8 << 20
	partGroups = 512
)

// piece is a unit of a node in its place on the timeline.
type piece struct {
	shard.Unit
	node *node
	// memory holds rows that the merge itself adds.
	memory *table.Batch
	// tile is the one in which the middle of the unit lies: its agent cut it
	// at a tile's end by a clock that it knew less well than the merge does.
	tile int64
	// first and last are the unit's first and last time on the reference
	// clock.
	first, last int64
	// scratch is set where the rows turned out not to be in order.
	scratch bool
}

// copied says that the piece's row group can be copied as it is.
func (p *piece) copied() bool { return p.Whole && p.Rows >= copyRows }

// group is the pieces that become one row group.
type group []piece

func (g group) rows() (n int64) {
	for i := range g {
		n += g[i].Rows
	}
	return n
}

// part is a file of the timeline.
type part struct {
	table  *table.Table
	name   string
	groups []group
	rows   int64
	// from and to bound the part's time where all rows are in one order.
	from, to int64
}

// plan lays out all files.
func (m *merger) plan() {
	for _, t := range table.All() {
		pieces := m.pieces(t)
		if m.opts.Sort {
			m.parts = append(m.parts, m.sortedParts(t, pieces)...)
		} else {
			m.parts = append(m.parts, tiledParts(t, pieces)...)
		}
	}
	for i := range m.parts {
		m.total += m.parts[i].rows
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// pieces lists a table's units in the timeline's order.
func (m *merger) pieces(t *table.Table) []piece {
	var all []piece
	for _, n := range m.nodes { // in order of their names
		for _, u := range n.data.Units(t) {
			all = append(all, m.place(t, piece{Unit: u, node: n}))
		}
		if t == table.Absence && n.lost != nil && n.lost.Rows() > 0 {
			times := n.lost.Ints(table.ColT)
			u := shard.Unit{Rows: int64(n.lost.Rows()), TMin: clock.NodeTime(slices.Min(times)), TMax: clock.NodeTime(slices.Max(times))}
			all = append(all, m.place(t, piece{Unit: u, node: n, memory: n.lost}))
		}
	}
	slices.SortStableFunc(all, func(a, b piece) int {
		if c := cmp.Compare(a.tile, b.tile); c != 0 {
			return c
		}
		if a.node == b.node {
			return cmp.Compare(a.first, b.first)
		}
		return cmp.Compare(a.node.name, b.node.name)
	})
	return all
}

// fetched is how long before and behind the agent's own stamps those of others
// may lie.
const fetched = int64(time.Minute)

func (m *merger) place(t *table.Table, p piece) piece {
	if p.TMin == math.MinInt64 { // a file without statistics
		p.TMin, p.TMax = p.node.first, p.node.last
	}
	lo, _, _ := p.node.model.At(p.TMin)
	hi, _, _ := p.node.model.At(p.TMax)
	p.first, p.last = min(int64(lo), int64(hi)), max(int64(lo), int64(hi))
	mid, _, _ := p.node.model.At(p.TMin + (p.TMax-p.TMin)/2)
	p.tile = floorDiv(int64(mid), m.tile)
	if t.Foreign.Column != "" {
		p.first, p.last = p.first-fetched, p.last+fetched
	}
	return p
}

// tiledParts lays a table out by tile, then node.
func tiledParts(t *table.Table, pieces []piece) []part {
	parts := []part{{table: t}}
	var gathered group
	emit := func(g group) {
		p := &parts[len(parts)-1]
		if p.rows > 0 && (p.rows+g.rows() > partRows || len(p.groups) >= partGroups) {
			parts = append(parts, part{table: t})
			p = &parts[len(parts)-1]
		}
		p.groups = append(p.groups, g)
		p.rows += g.rows()
	}
	flush := func() {
		if len(gathered) > 0 {
			emit(gathered)
			gathered = nil
		}
	}
	for i, p := range pieces {
		if p.Rows >= copyRows {
			flush()
			emit(group{p})
			continue
		}
		gathered = append(gathered, p)
		whole := i+1 == len(pieces) || pieces[i+1].tile != p.tile || pieces[i+1].node != p.node
		if gathered.rows() >= groupRows && whole || gathered.rows() >= shard.MaxRowGroup-copyRows {
			flush()
		}
	}
	flush()
	return named(parts)
}

// named numbers a table's parts.
func named(parts []part) []part {
	for i := range parts {
		parts[i].name = fmt.Sprintf("%s/part-%04d.parquet", parts[i].table.Name, i)
	}
	return parts
}

// planID tells this plan from every other: tasks that share a directory agree
// on it, whatever machines they run on.
func (m *merger) planID() string {
	h := sha256.New()
	fmt.Fprintln(h, table.Version, layoutVersion, m.opts.Sort, m.tile, m.result.Reference, m.result.Anchor)
	for _, n := range m.nodes {
		fmt.Fprintln(h, n.dir, n.name, n.ordinals)
		for _, f := range n.data.Files() {
			fmt.Fprintln(h, f.Name, f.Bytes, f.Rows, f.TMin, f.TMax)
		}
	}
	for i := range m.parts {
		p := &m.parts[i]
		fmt.Fprintln(h, p.name, p.rows, len(p.groups), p.from, p.to)
		for _, g := range p.groups {
			for k := range g {
				fmt.Fprintln(h, g[k].node.dir, g[k].Rows, g[k].first, g[k].last)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// layoutVersion changes with anything that makes the same shards give other
// bytes, so that tasks of different programs never finish each other's work.
const layoutVersion = 3

// share returns which parts are a task's: the largest first, each to the task
// that has least so far.
func share(parts []part, task, tasks int) []int {
	order := make([]int, len(parts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(parts[b].rows, parts[a].rows) })
	load := make([]int64, tasks)
	var mine []int
	for _, i := range order {
		least := 0
		for t := range load {
			if load[t] < load[least] {
				least = t
			}
		}
		load[least] += parts[i].rows + 1000 // a file without rows costs something, too
		if least == task {
			mine = append(mine, i)
		}
	}
	slices.Sort(mine)
	return mine
}
