package analysis

import (
	"cmp"
	"fmt"
	"slices"
)

// hosts lists the nodes that the facts or any rows name.
func (m *model) hosts() []Host {
	byName := map[string]*Host{}
	get := func(node string) *Host {
		if byName[node] == nil {
			byName[node] = &Host{Node: node}
		}
		return byName[node]
	}
	for _, n := range m.facts.Nodes {
		h := get(n.Node)
		h.CPUs, h.MemoryBytes, h.Aligned, h.BoundNS, h.Missing = n.CPUs, n.MemoryBytes, n.Aligned, n.BoundNS, n.Missing
	}
	for _, d := range m.devices {
		get(d.Node)
	}
	each(&m.tables.host.tracks, func(node string, _ int, c *counterTrack) {
		h := get(node)
		busy, idle := c.since(nodeBusy, m.all()), c.since(nodeIdle, m.all())+c.since(nodeIOWait, m.all())
		if busy+idle > 0 {
			h.CPUShare = ptr(busy / (busy + idle))
		}
		if used := m.tables.host.used[node]; used > 0 {
			h.MemoryUsedBytes = &used
		}
		if h.MemoryBytes == 0 {
			h.MemoryBytes = m.tables.host.size[node]
		}
	})
	out := make([]Host, 0, len(byName))
	for _, h := range byName {
		out = append(out, *h)
	}
	slices.SortFunc(out, func(a, b Host) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// all is a span that holds every row.
func (m *model) all() Span { return Span{-1 << 62, 1 << 62} }

// rankUse lists the ranks that the job's processes or the GPUs' holders name.
func (m *model) rankUse() []Rank {
	byRank := map[int]*Rank{}
	for _, d := range m.devices {
		for _, k := range d.ranks {
			if byRank[k] == nil {
				p := d.Place
				p.Rank = ptr(k)
				byRank[k] = &Rank{Place: p}
			}
		}
	}
	for _, f := range m.tables.ranks.known.list {
		r := byRank[f.rank]
		if r == nil {
			r = &Rank{Place: Place{Node: f.node, GPU: f.gpu, Rank: ptr(f.rank)}}
			byRank[f.rank] = r
		}
		r.LocalRank = f.local
		if f.rss > 0 {
			r.RSSBytes = ptr(f.rss)
		}
		c := m.tables.ranks.lookup(f.node, f.rank)
		if v, ok := c.share(rankCPU, m.all()); ok {
			r.CPUShare = &v
		}
		if v, ok := c.share(rankDelay, m.all()); ok {
			r.RunDelayShare = &v
		}
	}
	out := make([]Rank, 0, len(byRank))
	for _, r := range byRank {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Rank) int { return cmp.Compare(*a.Rank, *b.Rank) })
	return out
}

// plural is a count with its noun.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// joinNotes puts two notes, of which either may be empty, into one.
func joinNotes(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
