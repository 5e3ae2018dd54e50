package plant

import (
	"fmt"
	"math/rand/v2"

	"github.com/gswarm/gswarm/analysis"
)

const perNode = 8 // GPUs and ranks of each node

// job is a made-up run: what each rank's GPU does step after step, and on what
// nodes. What is planted changes the steps and the hosts while they are made.
type job struct {
	m     *Material
	rng   *rand.Rand
	begin int64
	end   int64
	nodes []*node
	base  base
	plant []planting
	// spare are GPUs that the job was given and does not use: they have no rank.
	spare map[int]bool
	// steps are the truth: when each began and what each rank's GPU did in it.
	steps []planned
	// filler, where it is set, makes what stands in the place of steps.
	filler func(j *job, t int64) int64
	facts  analysis.Facts
}

// node is one host of a job.
type node struct {
	nodeClock
	tracks [perNode]*track
	// first is the recorded step with which this node's noise begins.
	first int
	host  *hostState
	// noise and missed are those of its readings.
	noise, missed float64
	lost          [perNode]int64
}

// base is what a step of a job is when nothing is wrong, in nanoseconds.
type base struct {
	gap     int64   // the host works, the GPU waits
	h2d     int64   // input is copied to the GPU
	compute float64 // in relation to the recorded step
	comm    int64   // exchange at full speed
	// light kernels leave the clocks at their highest; others run into the
	// power limit as the recorded ones did.
	light *change
	// jitter is the relative deviation of each rank's compute from step to
	// step that is added to the recorded one.
	jitter float64
}

// planting is one thing that is wrong. Any of the functions may be nil.
type planting struct {
	active stretch
	// shape changes a step that begins while the planting is active.
	shape func(p *planned)
	// rates changes what host and ranks of a node do in a second.
	rates func(n int, t int64, h *nodeRates, ranks []rankRates)
	// counters is added to the counters of a GPU.
	counters func(n, gpu int, t int64, column int) int64
	// finish changes facts and rows when all else is made.
	finish func(j *job, s *Source)
}

func (a planting) on(t int64) bool { return t >= a.active.begin && t < a.active.end }

// planned is one step before it is laid onto the tracks: for each rank what its
// GPU does, in this order. All wait for the last before they exchange.
type planned struct {
	begin, end int64
	length     int64 // of the step if nothing were wrong
	last       int64 // when the last rank would then have arrived, from begin
	number     int
	ranks      []rankStep
	comm       int64 // how long the exchange takes
}

type rankStep struct {
	gap, h2d, compute int64
	// hole is further idle time, spread over the compute.
	hole int64
	// sends, where it is set, is for how long this rank really exchanges
	// something; the rest of the exchange it waits.
	sends                                   int64
	onGap, onH2D, onCompute, onComm, onWait *change
	arrives                                 int64
}

func (r *rankStep) own() int64 { return r.gap + r.h2d + r.compute + r.hole }

// newBase draws a kind of job.
func newBase(rng *rand.Rand) base {
	b := base{
		gap: 5e6 + rng.Int64N(35e6), compute: 1 + 2.5*rng.Float64()*rng.Float64(), comm: 12e6 + rng.Int64N(60e6),
		jitter: 0.002 + 0.004*rng.Float64(),
	}
	if rng.IntN(2) == 0 {
		b.h2d = 2e6 + rng.Int64N(20e6)
	}
	if rng.Float64() < 0.6 {
		b.light = lightKernels(rng)
	}
	return b
}

// rest is how a GPU is beside its kernels: where these are light its clock stays
// at its highest, where not it comes back to that as it was recorded.
func (b base) rest() change {
	c := unchanged()
	if b.light != nil {
		c.clockMHz, c.reasons = b.light.clockMHz, b.light.reasons
	}
	return c
}

func lightKernels(rng *rand.Rand) *change {
	c := unchanged()
	c.clockMHz, c.reasons, c.power = 1980, 0, 0.5+0.35*rng.Float64()
	return &c
}

// length of a step when nothing is wrong.
func (b base) length() int64 { return b.gap + b.h2d + int64(b.compute*recordedCompute) + b.comm }

// recordedCompute is about how long a recorded step computed.
const recordedCompute = 482e6

// newJob draws a job: its kind, length and nodes.
func newJob(m *Material, rng *rand.Rand, nodes int, length int64) *job {
	j := &job{m: m, rng: rng, begin: 1795206778e9 + rng.Int64N(1e15)}
	j.end = j.begin + length
	j.base = newBase(rng)
	j.facts = analysis.Facts{
		Run: fmt.Sprintf("gswarm-%d", 100000+rng.IntN(900000)), JobID: "1", Command: []string{"python", "train.py"},
		BeginNS: j.begin, EndNS: j.end, TickNS: 100e6, Exit: "exit code 0",
	}
	cpus := 8 * (8 + 4*rng.IntN(7))
	noise, missed := 0.002+0.015*rng.Float64(), 0.01*rng.Float64()*rng.Float64()
	bound := int64(1000)
	if nodes > 1 {
		bound = 20e3 + rng.Int64N(400e3)
	}
	host := newHostKind(rng, nodes, cpus)
	for i := range nodes {
		n := &node{first: rng.IntN(len(m.gpus[0].kernels)), noise: noise, missed: missed}
		n.nodeClock = nodeClock{name: fmt.Sprintf("node%02d", i+1), bound: bound, begin: j.begin + rng.Int64N(300e6), end: j.end}
		if i > 0 {
			// The true offset lies within the bound, and stays there.
			n.off = rng.Int64N(bound) - bound/2
			n.drift = (rng.Float64() - 0.5) * float64(bound) / (float64(length) / 1e9) * 0.8
		}
		as := rng.Perm(perNode)
		for g := range n.tracks {
			n.tracks[g] = &track{m: m, begin: j.begin - 2e9, as: as[g], watts: 1 + 0.02*rng.NormFloat64(), cool: 1 + 0.03*rng.NormFloat64()}
		}
		n.host = newHostState(m, rng, host, i)
		j.nodes = append(j.nodes, n)
		j.facts.Nodes = append(j.facts.Nodes, n.facts(rng))
	}
	return j
}

// facts are what is known of a node beside its rows.
func (n *node) facts(rng *rand.Rand) analysis.NodeFacts {
	f := analysis.NodeFacts{
		Node: n.name, Aligned: n.bound >= 0, BoundNS: n.bound + 300e3, Ended: "job ended", CPUs: n.host.kind.cpus, MemoryBytes: n.host.kind.memory,
	}
	for g, k := range n.tracks {
		is := k.identity()
		f.GPUs = append(f.GPUs, analysis.GPUFacts{
			GPU: g, UUID: fmt.Sprintf("GPU-%08x-%04x", rng.Uint32(), g), Name: is.name, PowerLimitMW: is.powerLimitMW, MemoryBytes: is.memory,
			ClockMaxMHz: 1980, NUMA: g / 4,
		})
	}
	return f
}

// ranks is how many there are: one for each GPU, node after node.
func (j *job) ranks() int { return len(j.nodes) * perNode }

func (j *job) track(rank int) *track { return j.nodes[rank/perNode].tracks[rank%perNode] }

// make lays the whole job onto the tracks: idle at first, then step after step.
func (j *job) make(idle int64) {
	for r := range j.ranks() {
		j.idle(r, 2e9+idle)
	}
	t := j.begin + idle
	for number := 0; t < j.end; number++ {
		if j.filler != nil {
			if next := j.filler(j, t); next > t {
				t = next
				continue
			}
		}
		t = j.step(t, number)
	}
	for r := range j.ranks() { // the readings that are read late need something to show
		j.idle(r, 2e9)
	}
}

// step lays one step onto the tracks and returns when it ended.
func (j *job) step(t int64, number int) int64 {
	p := planned{begin: t, number: number, comm: int64(float64(j.base.comm) * (1 + 0.02*j.rng.NormFloat64()))}
	for r := range j.ranks() {
		if j.spare[r] {
			p.ranks = append(p.ranks, rankStep{})
			continue
		}
		n := j.nodes[r/perNode]
		k := j.m.gpus[j.track(r).as].kernels
		recorded := k[(n.first+number)%len(k)].length()
		p.ranks = append(p.ranks, rankStep{
			gap: j.base.gap + int64(float64(j.base.gap)*0.1*j.rng.ExpFloat64()), h2d: int64(float64(j.base.h2d) * (1 + 0.03*j.rng.NormFloat64())),
			compute: int64(float64(recorded) * j.base.compute * (1 + j.base.jitter*j.rng.NormFloat64())), onCompute: j.base.light,
		})
	}
	for i := range p.ranks {
		p.last = max(p.last, p.ranks[i].own())
	}
	p.length = p.last + p.comm
	for _, a := range j.plant {
		if a.shape != nil && a.on(t) {
			a.shape(&p)
		}
	}
	last := int64(0)
	for i := range p.ranks {
		r := &p.ranks[i]
		r.arrives = r.own()
		last = max(last, r.arrives)
	}
	p.end = t + last + p.comm
	for r := range p.ranks {
		j.lay(r, &p, last)
	}
	j.steps = append(j.steps, p)
	return p.end
}

// lay puts one rank's part of a step onto its track.
func (j *job) lay(rank int, p *planned, last int64) {
	r := &p.ranks[rank]
	k := j.track(rank)
	if j.spare[rank] {
		j.phase(rank, "idle", p.end-k.end(), nil)
		return
	}
	if j.base.light != nil {
		rest := j.base.rest()
		for _, c := range []**change{&r.onGap, &r.onH2D, &r.onComm, &r.onWait} {
			if *c == nil {
				*c = &rest
			}
		}
	}
	j.idleAs(rank, r.gap, r.onGap)
	j.phase(rank, "h2d", r.h2d, r.onH2D)
	first := j.nodes[rank/perNode].first + p.number
	if r.hole == 0 {
		j.kernels(k, first, r.compute, r.onCompute)
	} else {
		const parts = 4
		for i := range int64(parts) {
			j.kernels(k, first, r.compute/parts, r.onCompute)
			if i < parts-1 {
				j.idleAs(rank, r.hole/(parts-1), r.onGap)
			}
		}
	}
	j.waitAs(rank, p.begin+last-k.end(), r.onWait)
	sends := p.comm
	if r.sends > 0 {
		sends = min(sends, r.sends)
	}
	j.phase(rank, "comm", sends, r.onComm)
	j.waitAs(rank, p.end-k.end(), r.onWait)
}

// kernels adds a step's computing: the recorded one as it is where the length is
// about the same, else its begin and end, and between them the middles of as many
// steps as it takes.
func (j *job) kernels(k *track, step int, length int64, c *change) {
	const head, tail = 100e6, 60e6
	all := j.m.gpus[k.as].kernels
	of := func(i int) stretch { return all[i%len(all)] }
	s := of(step)
	if ratio := float64(length) / float64(s.length()); ratio < 1.3 {
		k.append(k.as, s, length, c)
		return
	}
	k.append(k.as, stretch{s.begin, s.begin + head}, head, c)
	rest := length - head - tail
	parts := max(1, (rest+160e6)/320e6)
	for i := range parts {
		m := of(step + int(i))
		k.append(k.as, stretch{m.begin + head, m.end - tail}, rest/parts, c)
	}
	k.append(k.as, stretch{s.end - tail, s.end}, length-head-rest/parts*parts, c)
}

// wait adds time in which the GPU waits in a collective: what was recorded when
// seven ranks waited for the eighth.
func (j *job) wait(rank int, length int64) { j.waitAs(rank, length, nil) }

func (j *job) waitAs(rank int, length int64, c *change) {
	k := j.track(rank)
	as := k.as
	if len(j.m.gpus[as].spins) == 0 {
		as = (as + 1) % perNode // the recorded straggler did not wait
	}
	for head := true; length > 0; head = false {
		s := j.m.gpus[as].spins[j.rng.IntN(len(j.m.gpus[as].spins))]
		if !head {
			s.begin += 50e6 // the power of the computing before has died away
		}
		part := min(length, s.length())
		k.append(as, stretch{s.begin, s.begin + part}, part, c)
		length -= part
	}
}

// idle adds time in which the GPU has nothing to do.
func (j *job) idle(rank int, length int64) { j.idleAs(rank, length, nil) }

// idleAs takes it from the recorded gaps of the input stall.
func (j *job) idleAs(rank int, length int64, c *change) {
	k := j.track(rank)
	steps := j.m.truth.In(k.as, "train_input_stall")
	for length > 0 {
		b := steps[1+j.rng.IntN(len(steps)-4)].Begin // the first and the last are not known as well
		part := min(length, 340e6)
		k.append(k.as, stretch{b + 70e6, b + 70e6 + part}, part, c)
		length -= part
	}
}

// phase adds a stretch of one of the recording's steady phases.
func (j *job) phase(rank int, name string, length int64, c *change) {
	j.phaseOf(rank, j.track(rank).as, name, length, c)
}

// phaseOf takes it from another recorded GPU than the track's own.
func (j *job) phaseOf(rank, gpu int, name string, length int64, c *change) {
	if length > 0 {
		p := j.m.truth.Phase(name)
		j.track(rank).tile(j.rng, gpu, stretch{p.BeginNS + 1e9, p.EndNS - 1e9}, length, c)
	}
}

// source reads the whole job as agents would have.
func (j *job) source() *Source {
	s := newSource()
	for i, n := range j.nodes {
		for g, k := range n.tracks {
			r := gpuReader{
				track: k, out: s, rng: j.rng, node: &n.nodeClock, gpu: g, uuid: j.facts.Nodes[i].GPUs[g].UUID, noise: n.noise, missed: n.missed, lost: n.lost[g],
				base: counterBase{j.rng.Int64N(1e12), j.rng.Int64N(1e15), j.rng.Int64N(3), j.rng.Int64N(40)},
			}
			r.counters = func(t int64, column int) (v int64) {
				for _, a := range j.plant {
					if a.counters != nil {
						v += a.counters(i, g, t, column)
					}
				}
				return v
			}
			r.read()
		}
		j.hostRows(s, i)
	}
	for _, a := range j.plant {
		if a.finish != nil {
			a.finish(j, s)
		}
	}
	s.sort()
	return s
}
