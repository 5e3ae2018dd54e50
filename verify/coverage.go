package verify

import (
	"fmt"
	"slices"
	"sort"

	"github.com/gswarm/gswarm/table"
)

// excused are the reasons of absence that are the machine's own: what it does
// not have, nobody can keep. Of the others the first kind is always a loss; the
// rest is forgiven where it is little.
var (
	excused = map[string]bool{"not_supported": true, "no_permission": true, "not_found": true, "invalid_value": true, "no_driver": true}
	losses  = map[string]bool{"dropped": true, "node_lost": true}
)

// gap accounts for what is missing between a stream's last row and the next,
// which begins at begin;
// at the tail that is the node's end.
func (c *check) gap(n *node, cov *Coverage, s *stream, begin int64, tail bool) {
	interval := cov.IntervalNS
	hole := begin - s.hold
	missing := (hole+interval/2)/interval - 1
	least := gapTicks * interval
	if c.t.Shape == table.Windowed && !tail {
		// Windows follow each other; only the last may not have ended.
		missing, least = (hole+interval/2)/interval, 0
	}
	if missing < 1 || hole < least {
		return
	}
	c.missing(n, cov, s, s.hold, begin, missing)
}

// missing notes rows that are not there and finds out why.
func (c *check) missing(n *node, cov *Coverage, s *stream, begin, end, rows int64) {
	cov.tiles.lack(begin, end, rows, c.tile)
	reason, known := n.facts.why(c.t.Name, s.key, begin, end, max(2*cov.IntervalNS, int64(2e9)))
	if known {
		if cov.Absent == nil {
			cov.Absent = make(map[string]int64)
		}
		cov.Absent[reason] += rows
		c.find(Finding{
			Code: Absent, Incomplete: losses[reason], Node: n.Node.Node, Table: c.t.Name, Key: s.key, Reason: reason,
			Count: rows, BeginNS: begin, EndNS: end, Detail: "rows are missing for the reason given",
		})
		return
	}
	cov.Missing += rows
	c.find(Finding{
		Code: Gap, Incomplete: true, Node: n.Node.Node, Table: c.t.Name, Key: s.key,
		Count: rows, BeginNS: begin, EndNS: end, Detail: "rows are missing and no row of absence says why",
	})
}

// close accounts for what is missing at each stream's end, and judges whether a
// node lacks more than it may.
func (c *check) close() {
	for n, byKey := range c.streams {
		cov := n.coverage[c.t.Name]
		if cov == nil || cov.IntervalNS == 0 {
			continue
		}
		for _, s := range byKey {
			if n.samplers == 1 {
				c.gap(n, cov, s, n.facts.end, true)
			}
		}
		cov.Expected = cov.Rows + cov.Missing
		forgiven := int64(0)
		for reason, rows := range cov.Absent {
			cov.Expected += rows
			if !excused[reason] && !losses[reason] {
				forgiven += rows
			}
		}
		allowed := max(int64(c.opts.Allow*float64(cov.Expected)), int64(cov.Keys)*int64(1e9)/cov.IntervalNS)
		if forgiven > allowed {
			c.find(Finding{
				Code: Absent, Incomplete: true, Node: n.Node.Node, Table: c.t.Name, Reason: "too_many", Count: forgiven,
				Detail: fmt.Sprintf("%d of %d rows are absent for reasons of the moment, %d may be", forgiven, cov.Expected, allowed),
			})
		}
	}
}

// account compares what the samplers say they delivered with what is there.
func (v *verifier) account() {
	lost := make(map[string]int64)
	for _, n := range v.meta.Nodes {
		for _, l := range n.Losses {
			lost[n.Node] += max(l.Rows, 0)
		}
	}
	for name, n := range v.nodes {
		if n.samplers > 1 {
			continue // each counts its own drops
		}
		var delivered, found int64
		tables := make(map[string]bool)
		for source, rows := range n.facts.delivered {
			if n.facts.fedBy[source] == nil {
				continue
			}
			delivered += rows
			for _, t := range n.facts.fedBy[source] {
				tables[t] = true
			}
		}
		// Sources deliver events, too.
		tables[table.Event.Name] = true
		for t := range tables {
			if c := n.coverage[t]; c != nil {
				found += c.Rows
			}
		}
		if d := delivered - found - n.facts.dropped - lost[name]; d > 0 {
			v.find(Finding{Code: Unaccounted, Incomplete: true, Node: name, Count: d,
				Detail: fmt.Sprintf("the sampler delivered %d rows, %d are there, %d were dropped, %d lost", delivered, found, n.facts.dropped, lost[name])})
		}
	}
}

// ranks looks for ranks of the job that never came, or went without a word.
func (v *verifier) ranks() {
	size := int64(0)
	started, ended, where := map[int64]bool{}, map[int64]bool{}, map[int64]string{}
	for name, n := range v.nodes {
		size = max(size, n.facts.size)
		for r := range n.facts.started {
			started[r], where[r] = true, name
		}
		for r := range n.facts.ended {
			ended[r] = true
		}
	}
	v.report.RanksSeen, v.report.RanksExpected = len(started), int(size)
	const most = 1 << 20
	for r := range min(size, most) {
		if !started[r] {
			v.find(Finding{Code: RankMissing, Incomplete: true, Key: fmt.Sprint(r), Detail: fmt.Sprintf("the job had %d ranks, and this one was not seen", size)})
		}
	}
	for r := range started {
		if !ended[r] {
			v.find(Finding{Code: RankNoEnd, Node: where[r], Key: fmt.Sprint(r), Detail: "it began, and how it ended nobody saw: its wrap was killed, or its node went down"})
		}
	}
}

// tileRows counts rows by tile.
type tileRows struct {
	base    int64
	rows    []int64
	lacking map[int64]int64
}

// maxTiles bounds how many tiles are told apart: ten years of five minutes.
const maxTiles = 1 << 20

func (t *tileRows) add(tile int64) {
	if len(t.rows) == 0 {
		t.base = tile
	}
	i := tile - t.base
	if i < 0 || i >= maxTiles {
		return
	}
	for int64(len(t.rows)) <= i {
		t.rows = append(t.rows, 0)
	}
	t.rows[i]++
}

// lack spreads missing rows over the tiles that a gap lies in.
func (t *tileRows) lack(begin, end, rows, length int64) {
	if t.lacking == nil {
		t.lacking = make(map[int64]int64)
	}
	first, last := floorDiv(begin, length), floorDiv(end, length)
	left := rows
	for k := first; k <= last && len(t.lacking) < maxTiles && left > 0; k++ {
		share := float64(min(end, (k+1)*length)-max(begin, k*length)) / float64(end-begin)
		n := min(left, int64(share*float64(rows)+0.5))
		if k == last {
			n = left
		}
		if n > 0 {
			t.lacking[k] += n
			left -= n
		}
	}
}

// maxLacking is how many lacking tiles a table of a node lists.
const maxLacking = 100

func (c *Coverage) finish(length int64) {
	seen := make(map[int64]bool)
	for i, n := range c.tiles.rows {
		if n > 0 {
			seen[c.tiles.base+int64(i)] = true
		}
	}
	for k, n := range c.tiles.lacking {
		seen[k] = true
		t := Tile{BeginNS: k * length, Missing: n}
		if i := k - c.tiles.base; i >= 0 && i < int64(len(c.tiles.rows)) {
			t.Rows = c.tiles.rows[i]
		}
		c.Lacking = append(c.Lacking, t)
	}
	c.Tiles = len(seen)
	sort.Slice(c.Lacking, func(i, j int) bool { return c.Lacking[i].BeginNS < c.Lacking[j].BeginNS })
	if len(c.Lacking) > maxLacking {
		c.LackingMore = len(c.Lacking) - maxLacking
		c.Lacking = slices.Clip(c.Lacking[:maxLacking])
	}
}
