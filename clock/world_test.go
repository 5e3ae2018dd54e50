package clock

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
)

// world is a cluster whose truth is known: N nodes, the paths between them, and
// what they asked each other.
type world struct {
	r      *rand.Rand
	anchor Anchor
	nodes  []oscillator
	end    float64
	ev     []NodeEvidence
}

// worldPlan says what a world is like.
type worldPlan struct {
	nodes   int
	end     float64 // true ns
	path    func(r *rand.Rand) path
	fanOut  int
	peers   int
	stretch bool // bursts get rarer, as Loop does it
}

// wanderer is a clock such as the assumptions allow: a rate of up to 50 ppm, a
// thermal swing, and a random walk of the rate, held within 2 ppm of its mean.
func wanderer(r *rand.Rand, end float64) oscillator {
	o := oscillator{
		origin: r.Int64N(40 * 86400e9),
		skew:   (r.Float64()*100 - 50) * 1e-6,
		wander: r.Float64() * 0.3e-6,
		freq:   2 * math.Pi / (300e9 + r.Float64()*3300e9),
		ph:     r.Float64() * 2 * math.Pi,
	}
	// The walk: 1e-5 ppm^2/s, as the estimate takes it, or less.
	step := math.Max(1e9, end/4096)
	scale := r.Float64() * math.Sqrt(1e-5*step/1e9) * 1e-6
	rate, at := 0.0, 0.0
	for tau := 0.0; tau <= end+2*step; tau += step {
		o.walk = append(o.walk, at)
		at += rate * step
		rate = math.Max(-1e-6, math.Min(1e-6, rate+r.NormFloat64()*scale))
	}
	o.walkStep = step
	return o
}

func nodeName(i int) string { return fmt.Sprintf("n%04d", i) }

// newWorld makes a world. Node 0 is the reference; the others are a star, or a
// tree of the given fan-out, with links to random peers.
func newWorld(r *rand.Rand, p worldPlan) *world {
	w := &world{r: r, end: p.end}
	for range p.nodes {
		w.nodes = append(w.nodes, wanderer(r, p.end))
	}
	w.anchor = anchorOf(w.nodes[0])
	w.ev = append(w.ev, w.evidence(0, nil))
	for i := 1; i < p.nodes; i++ {
		parent := 0
		if p.fanOut > 0 {
			parent = (i - 1) / p.fanOut
		}
		pl := plan{from: 0.1e9, to: p.end, gap: 1e9, size: 8, stretch: p.stretch}
		xs := exchanges(r, w.nodes[i], w.nodes[parent], nodeName(parent), p.path(r), pl)
		for range p.peers {
			j := r.IntN(p.nodes)
			if j == i || j == parent {
				continue
			}
			pl := plan{from: 5e9, to: p.end, gap: 10e9, size: 8}
			xs = append(xs, exchanges(r, w.nodes[i], w.nodes[j], nodeName(j), p.path(r), pl)...)
		}
		// Recorded as they came, give or take a second.
		sort.SliceStable(xs, func(a, b int) bool { return xs[a].T1>>30 < xs[b].T1>>30 })
		w.ev = append(w.ev, w.evidence(i, xs))
	}
	return w
}

func (w *world) evidence(i int, xs []Exchange) NodeEvidence {
	o := w.nodes[i]
	return NodeEvidence{Node: nodeName(i), Exchanges: xs, First: NodeTime(o.read(0)), Last: NodeTime(o.read(w.end))}
}

func (w *world) fit() Result {
	return Fit(Input{Reference: nodeName(0), Anchor: w.anchor, Nodes: w.ev})
}

// score is what a model did at many instants.
type score struct {
	checked, broken, unaligned int
	errs, halves               []float64
	worst                      float64 // by how much the worst instant broke its bound
}

// ask compares a node's model with the truth.
func (w *world) ask(s *score, m *Model, i, n int) {
	for range n {
		tau := w.r.Float64() * w.end
		s.take(w, m, i, tau)
	}
}

func (s *score) take(w *world, m *Model, i int, tau float64) {
	ct, bound, ok := m.At(NodeTime(w.nodes[i].read(tau)))
	if !ok {
		s.unaligned++
		return
	}
	s.checked++
	d := math.Abs(float64(int64(ct) - cluster(w.nodes[0], w.anchor, tau)))
	if d > float64(bound)+1 {
		s.broken++
		s.worst = math.Max(s.worst, d-float64(bound))
	}
	s.errs, s.halves = append(s.errs, d), append(s.halves, float64(bound))
}

// quantile sorts v.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	sort.Float64s(v)
	return v[int(q*float64(len(v)-1))]
}

func (s *score) String() string {
	return fmt.Sprintf("%d instants, %d outside their bound; error p50 %.2f p99 %.2f max %.1f us; half-width p50 %.1f p99 %.1f us",
		s.checked, s.broken, quantile(s.errs, 0.5)/1e3, quantile(s.errs, 0.99)/1e3, quantile(s.errs, 1)/1e3,
		quantile(s.halves, 0.5)/1e3, quantile(s.halves, 0.99)/1e3)
}

// The paths of the table in docs/clocks.md: a floor of 12 us, queueing of 5 us
// on average, 2 % outliers; congested is one way, by 200 us, for 60 % of the
// time.
func quietPath(*rand.Rand) path {
	return path{there: 12000, back: 12000, queue: 5000, outlier: 0.02, outlierDelay: 300e3, duplicate: 0.01, reorder: 0.01, loss: 0.002}
}

func congestedPath(r *rand.Rand) path {
	p := quietPath(r)
	p.congested, p.congestedDelay, p.seed = 0.6, 200e3, r.Uint64()
	return p
}
