package plant

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/table"
)

// Case is a made-up run and what is wrong with it.
type Case struct {
	// Cause is what was planted, empty in a clean run; Variant says in which
	// of its shapes.
	Cause   analysis.Cause
	Variant string
	Seed    uint64
	// Size is by how much the cause lengthens the steps while it is there, as a
	// share; for causes that lengthen none, the share of the run that it takes.
	Size float64
	// Active is when it was there.
	Active analysis.Span
	// Ranks and Nodes are whom it concerns; empty for the whole job.
	Ranks []int
	Nodes []string
	// StepNS is the length of a step where nothing is wrong, Steps what was
	// laid out.
	StepNS int64
	Steps  []analysis.Span
	// Excess is by how much the steps became longer while the cause was there,
	// over all of them; 0 where it lengthened none.
	Excess float64
	Source *Source
	Facts  analysis.Facts
}

func (c *Case) String() string {
	return fmt.Sprintf("%s (%s), %.0f %%, seed %d, ranks %v, nodes %v", c.Cause, c.Variant, c.Size*100, c.Seed, c.Ranks, c.Nodes)
}

// Causes are those that can be planted.
func Causes() []analysis.Cause {
	var all []analysis.Cause
	for c := range planters() {
		all = append(all, c)
	}
	slices.Sort(all)
	return all
}

// Make puts a run together into which a cause was planted. The same seed makes
// the same run.
func (m *Material) Make(cause analysis.Cause, size float64, seed uint64) *Case {
	p, ok := planters()[cause]
	if !ok {
		panic("no planter for " + cause)
	}
	rng := rand.New(rand.NewPCG(seed, 8)) //nolint:gosec // made-up data
	nodes := 1
	if roll := rng.Float64(); roll > 0.65 {
		nodes = 2 + rng.IntN(3)
	}
	if p.nodes > nodes {
		nodes = p.nodes + rng.IntN(3)
	}
	length := 80e9 + rng.Int64N(80e9)
	c := &caseMaker{
		job:  newJob(m, rng, nodes, length),
		idle: 2e9 + rng.Int64N(10e9),
		Case: &Case{Cause: cause, Size: size, Seed: seed},
	}
	c.active = c.span(p.whole)
	p.plant(c)
	c.make(c.idle)
	c.Source = c.source()
	c.Facts = c.facts
	c.Active = analysis.Span{BeginNS: c.active.begin, EndNS: c.active.end}
	c.StepNS = c.base.length()
	var longer, whole int64
	for _, s := range c.steps {
		c.Steps = append(c.Steps, analysis.Span{BeginNS: s.begin, EndNS: s.end})
		if s.begin >= c.active.begin && s.begin < c.active.end {
			longer, whole = longer+s.end-s.begin-s.length, whole+s.length
		}
	}
	c.Excess = float64(longer) / float64(max(1, whole))
	slices.Sort(c.Ranks)
	return c.Case
}

// caseMaker is what a planter works on.
type caseMaker struct {
	*Case
	*job
	active stretch
	idle   int64 // before the first step
}

// planter plants one cause.
type planter struct {
	plant func(c *caseMaker)
	// nodes is the least number of nodes that it takes; whole says that it is
	// there all the time.
	nodes int
	whole bool
}

// span draws from when to when a cause is there: in three of ten runs always,
// else for at least two fifths of what is left after its onset.
func (c *caseMaker) span(whole bool) stretch {
	all := stretch{c.begin, c.end}
	if whole || c.rng.Float64() < 0.3 {
		return all
	}
	all.begin += int64(float64(all.length()) * (0.1 + 0.4*c.rng.Float64()))
	all.end = all.begin + int64(float64(all.length())*(0.4+0.6*c.rng.Float64()))
	return all
}

// extra is by how much the size lengthens a step.
func (c *caseMaker) extra(p *planned) int64 {
	return int64(c.Size * float64(p.length) * (1 + 0.04*c.rng.NormFloat64()))
}

// one draws the rank that is concerned.
func (c *caseMaker) one() int {
	r := c.rng.IntN(c.ranks())
	c.Ranks = []int{r}
	c.Nodes = []string{c.nodes[r/perNode].name}
	return r
}

// oneNode draws the node that is concerned, with all its ranks.
func (c *caseMaker) oneNode() int {
	n := c.rng.IntN(len(c.nodes))
	c.Nodes = []string{c.nodes[n].name}
	for r := range perNode {
		c.Ranks = append(c.Ranks, n*perNode+r)
	}
	return n
}

// add plants something while the cause is there.
func (c *caseMaker) add(p planting) {
	p.active = c.active
	c.plant = append(c.plant, p)
}

// slow lengthens something of one rank.
func (c *caseMaker) slow(rank int, how func(r *rankStep, extra int64)) {
	c.add(planting{shape: func(p *planned) { how(&p.ranks[rank], c.lateBy(p, rank)) }})
}

// lateBy is how much longer a rank has to take so that it is the last by the
// size.
func (c *caseMaker) lateBy(p *planned, rank int) int64 {
	return c.extra(p) + p.last - p.ranks[rank].own()
}

// grown is how many seconds of a stretch had passed by t.
func (s stretch) grown(t int64) float64 { return float64(max(0, min(t, s.end)-s.begin)) / 1e9 }

// counts makes a counter of one GPU grow while the cause is there, by so much a
// second for each column.
func (c *caseMaker) counts(rank int, perSecond map[int]float64) {
	c.plant = append(c.plant, planting{counters: func(n, gpu int, t int64, column int) int64 {
		if n*perNode+gpu != rank {
			return 0
		}
		return int64(perSecond[column] * c.active.grown(t))
	}})
}

// event writes an event of a GPU.
func event(s *Source, n *node, kind string, t int64, gpu int, detail string) {
	r := cells{s.add(table.Event, n.name, n.stamp(t, 1e6))}
	r.string(table.EventKind, kind)
	r.int(table.EventGPU, int64(gpu))
	r.string(table.EventDetail, detail)
}
