package plant

import (
	"math/rand/v2"

	"github.com/gswarm/gswarm/analysis"
)

// Clean puts a run together in which nothing is wrong: a cut of the recording
// as it was, or a job of steps with other healthy work among them, or one that leaves some GPUs unused; with noise of
// random strength added, readings missed, and clock bounds of random width.
func (m *Material) Clean(seed uint64) *Case {
	rng := rand.New(rand.NewPCG(seed, 9)) //nolint:gosec // made-up data
	nodes := 1
	if rng.Float64() < 0.4 {
		nodes = 2 + rng.IntN(3)
	}
	j := newJob(m, rng, nodes, 60e9+rng.Int64N(120e9))
	c := &Case{Variant: "steps", Seed: seed}
	idle := rng.Int64N(10e9)
	switch roll := rng.IntN(10); {
	case roll < 3:
		c.Variant = "cut of the recording"
		cutOf(j, idle)
	case roll < 7:
		c.Variant = "steps and other work"
		j.filler = otherWork(rng, j.begin+15e9)
	case roll < 8:
		c.Variant = "steps, some GPUs to spare"
		j.spare = map[int]bool{}
		for range 1 + rng.IntN(3) {
			j.spare[rng.IntN(j.ranks())] = true
		}
	}
	j.make(idle)
	c.Source, c.Facts, c.StepNS = j.source(), j.facts, j.base.length()
	for _, s := range j.steps {
		c.Steps = append(c.Steps, analysis.Span{BeginNS: s.begin, EndNS: s.end})
	}
	return c
}

// Long is a job of steps in which nothing is wrong on as many nodes and for as
// many nanoseconds as asked for.
func (m *Material) Long(seed uint64, nodes int, length int64) *Case {
	rng := rand.New(rand.NewPCG(seed, 10)) //nolint:gosec // made-up data
	j := newJob(m, rng, nodes, length)
	j.make(5e9)
	return &Case{Variant: "steps", Seed: seed, Source: j.source(), Facts: j.facts, StepNS: j.base.length()}
}

// cutOf makes the job what was recorded, from a random instant in a balanced
// phase on, after some time in which nothing happened yet.
func cutOf(j *job, idle int64) {
	phase := []string{"train", "train", "train2", "hbm", "power"}[j.rng.IntN(5)]
	p := j.m.truth.Phase(phase)
	length := int64(float64(p.EndNS-p.BeginNS-1e9) * (0.5 + 0.5*j.rng.Float64()))
	from := p.BeginNS + 500e6 + j.rng.Int64N(p.EndNS-p.BeginNS-1e9-length+1)
	j.end = j.begin + idle + length + j.rng.Int64N(2e9)
	j.facts.EndNS = j.end
	for _, n := range j.nodes {
		n.end = j.end
	}
	j.filler = func(j *job, t int64) int64 {
		for r := range j.ranks() {
			k := j.track(r)
			// Other nodes are the same job a little later in its recording.
			shift := min(int64(r/perNode)*130e6, p.EndNS-from-length)
			k.append(k.as, stretch{from + shift, from + shift + length}, length, nil)
		}
		j.filler = func(j *job, t int64) int64 {
			for r := range j.ranks() {
				j.idle(r, j.end-t)
			}
			return j.end
		}
		return t + length
	}
}

// otherWork now and then puts something healthy into the place of steps: another
// kind of kernel, a short checkpoint, a short pause.
func otherWork(rng *rand.Rand, first int64) func(j *job, t int64) int64 {
	next := first
	return func(j *job, t int64) int64 {
		if t < next {
			return t
		}
		next = t + 15e9 + rng.Int64N(30e9)
		kind := []string{"hbm", "power", "ckpt", "idle"}[rng.IntN(4)]
		length := 3e9 + rng.Int64N(8e9)
		if kind == "ckpt" || kind == "idle" {
			length = 300e6 + rng.Int64N(900e6)
		}
		for r := range j.ranks() {
			switch kind {
			case "ckpt":
				j.phaseOf(r, min(r, 1+r%(perNode-1)), kind, length, nil)
			case "idle":
				j.idle(r, length)
			default:
				j.phase(r, kind, length, nil)
			}
		}
		return t + length
	}
}
