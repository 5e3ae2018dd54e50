package verify

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

// verifier is one verification under way.
type verifier struct {
	dir   rundir.Dir
	meta  *merge.Meta
	job   *rundir.Run
	opts  Options
	tile  int64
	nodes map[string]*node
	good  map[string][]merge.FileMeta // files that are as merged, by table

	// versions are those of the agents that wrote rows.
	versions map[string]bool

	report   *Report
	findings map[findingKey]*Finding
	more     map[Code]int64
	byCode   map[Code]int
}

type findingKey struct {
	code                                   Code
	node, table, column, key, file, reason string
}

// node is what is known of one node of the timeline.
type node struct {
	*Node
	aligned bool
	// samplers is how many the node had; with several, tables that each of
	// them writes are not in order of time.
	samplers int
	facts    facts
	coverage map[string]*Coverage
}

// maxFindings bounds how many findings of one code are listed.
const maxFindings = 200

func newVerifier(d rundir.Dir, meta *merge.Meta, opts Options) *verifier {
	v := &verifier{
		dir: d, meta: meta, opts: opts, tile: meta.TileNS,
		nodes: make(map[string]*node), good: make(map[string][]merge.FileMeta),
		versions: make(map[string]bool),
		report:   &Report{Dir: string(d), Format: meta.Format, TileNS: meta.TileNS, Findings: []Finding{}},
		findings: make(map[findingKey]*Finding), more: make(map[Code]int64), byCode: make(map[Code]int),
	}
	if v.tile <= 0 {
		v.tile = int64(5 * time.Minute)
		v.find(Finding{Code: MetaUnread, Incomplete: true, File: "timeline/meta.yaml", Detail: fmt.Sprintf("it gives %d ns as the length of a tile: merge again", meta.TileNS)})
	}
	for _, n := range meta.Nodes {
		if have := v.nodes[n.Node]; have != nil {
			have.samplers++
			continue
		}
		nd := &node{
			Node: &Node{Node: n.Node, Clock: n.Clock.Method}, samplers: 1,
			aligned: n.Clock.Method != "" && n.Clock.Method != clock.Unaligned,
			facts:   newFacts(), coverage: make(map[string]*Coverage),
		}
		if n.Clock.BoundNS != nil {
			nd.BoundMaxNS = &n.Clock.BoundNS.Max
		}
		v.nodes[n.Node] = nd
	}
	return v
}

// find adds a finding, or adds to the one of its kind.
func (v *verifier) find(f Finding) {
	k := findingKey{f.Code, f.Node, f.Table, f.Column, f.Key, f.File, f.Reason}
	f.Times = max(f.Times, 1)
	if have := v.findings[k]; have != nil {
		have.Count += f.Count
		have.Times += f.Times
		have.Incomplete = have.Incomplete || f.Incomplete
		if f.BeginNS != 0 {
			have.BeginNS, have.EndNS = min(have.BeginNS, f.BeginNS), max(have.EndNS, f.EndNS)
		}
		return
	}
	// Beyond the limit only the first of each code stays incomplete, which
	// is all that counts.
	if v.byCode[f.Code] >= maxFindings {
		v.more[f.Code]++
		return
	}
	v.byCode[f.Code]++
	v.findings[k] = &f
}

func (v *verifier) run(ctx context.Context) error {
	v.readRun()
	for _, m := range v.meta.Missing {
		v.find(Finding{Code: Code(m.Code), Incomplete: true, Node: m.Node, Detail: m.Detail, Key: m.Detail})
	}
	v.clocks()
	if err := v.timelineFiles(ctx); err != nil {
		return err
	}
	if err := v.shards(ctx); err != nil {
		return err
	}
	// What the events and absences say comes before the rows that they
	// explain.
	for _, t := range []*table.Table{table.Event, table.Absence, table.Sampler} {
		if err := v.gather(ctx, t); err != nil {
			return err
		}
	}
	for _, n := range v.nodes {
		n.facts.settle()
	}
	for _, t := range table.All() {
		if err := v.rows(ctx, t); err != nil {
			return err
		}
	}
	v.account()
	v.ranks()
	if len(v.versions) > 1 {
		all := slices.Sorted(maps.Keys(v.versions))
		v.find(Finding{Code: Versions, Count: int64(len(all)), Detail: "agents of several versions wrote this run: " + strings.Join(all, ", ")})
	}
	return nil
}

// finish sorts and sums up.
func (v *verifier) finish() *Report {
	r := v.report
	r.Complete = true
	for k, f := range v.findings {
		if k.key == f.Detail {
			f.Key = "" // only told two findings apart
		}
		r.Complete = r.Complete && !f.Incomplete
		r.Findings = append(r.Findings, *f)
	}
	sort.Slice(r.Findings, func(i, j int) bool {
		a, b := r.Findings[i], r.Findings[j]
		if a.Incomplete != b.Incomplete {
			return a.Incomplete
		}
		return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Table, b.Table),
			cmp.Compare(a.Column, b.Column), cmp.Compare(a.Key, b.Key), cmp.Compare(a.File, b.File),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Detail, b.Detail)) < 0
	})
	if len(v.more) > 0 {
		r.FindingsMore = v.more
	}
	for _, n := range v.nodes {
		for _, t := range table.All() {
			if c := n.coverage[t.Name]; c != nil {
				c.finish(v.tile)
				n.Tables = append(n.Tables, c)
				r.Rows += c.Rows
			}
		}
		n.BeginNS, n.EndNS = n.facts.begin, n.facts.end
		r.Nodes = append(r.Nodes, n.Node)
	}
	slices.SortFunc(r.Nodes, func(a, b *Node) int { return cmp.Compare(a.Node, b.Node) })
	r.NodesSeen = len(r.Nodes)
	return r
}

// clocks reports what the clocks' fit could not reconcile.
func (v *verifier) clocks() {
	for _, n := range v.meta.Nodes {
		for _, c := range n.Clock.Contradictions {
			v.find(Finding{
				Code: Contradiction, Incomplete: n.Clock.Suspect, Node: n.Node, Key: c.String(),
				Count: int64(c.Count), Detail: c.String(),
			})
		}
	}
}
