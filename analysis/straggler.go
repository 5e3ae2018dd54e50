package analysis

import (
	"cmp"
	"math"
	"slices"
)

// When a GPU is one that others wait for.
const (
	// lowestExcess is the share of the time that the others must wait for it.
	// Equal GPUs under one power limit differ by up to 2 % in the recorded
	// job: their silicon does.
	lowestExcess = 0.045
	// naturalSpread is that deviation: an excess is good to no less.
	naturalSpread = 0.01
	// excessFloor is what a block must exceed to lengthen a stretch.
	excessFloor = 0.025
	// likeTheWorst is the share of the worst one's excess that another one of
	// the same time must have to be named beside it.
	likeTheWorst = 0.5
	// shortestStretch is how long a GPU must be slow to be chronically so.
	shortestStretch = int64(5e9)
	// confirms is the share of an excess by utilisation that the SMs must show,
	// too: they may hold fewer of them than was taken.
	confirms = 0.3
	// clearOfBound is how many times what it is good to an excess must be.
	clearOfBound = 2
	// fewSteps is how many steps a stretch must hold.
	fewSteps = 8
	// steadily is the share of blocks of a stretch in which a GPU must be late
	// to be so chronically.
	steadily = 0.7
	// scaleError is how well the level of work, and the SMs that a collective
	// holds, are known, as a share.
	scaleError = 0.08
	// takesPart is the utilisation below which a GPU takes no part in steps,
	// unless nobody does anything and all wait for it.
	takesPart = 0.10
)

// suspect is a GPU that others waited for, over a stretch of time.
type suspect struct {
	m      *model
	phase  int
	span   Span
	device *device
	others []*device
	excess float64
	bound  float64
	// steady is the share of blocks in which it was so.
	steady float64

	// once says that it was late in a few steps only, by lengths.
	once    bool
	lengths []float64

	own, rest       usage  // rest is the median of the others, value by value
	shares, typical shares // likewise
	period          float64
}

// findSuspects finds who was waited for in a phase.
func (m *model) findSuspects(phase int, span Span, period float64, byUtil, bySM *waiting) []*suspect {
	var out []*suspect
	for _, w := range []*waiting{bySM, byUtil} {
		if len(w.who) < 2 {
			continue
		}
		for i := range w.who {
			for _, s := range m.late(w, i, period) {
				if w == bySM && byUtil.meanExcess(s) < -naturalSpread || w == byUtil && bySM.meanExcess(s) < confirms*s.excess {
					continue
				}
				s.phase, s.period = phase, period
				s.toBorders(span)
				s.compare(w.who)
				known := slices.ContainsFunc(out, func(o *suspect) bool { return o.device == s.device && overlap(o.span, s.span) > 0 })
				if !known && s.takesPart() {
					out = append(out, s)
				}
			}
		}
	}
	return worst(out)
}

// meanExcess is the excess that a suspect has by this way of looking; infinite
// where it is none.
func (w *waiting) meanExcess(s *suspect) float64 {
	i := slices.Index(w.who, s.device)
	if i < 0 {
		return math.Inf(1)
	}
	from, to := s.span.BeginNS/s.m.block-w.first, s.span.EndNS/s.m.block-w.first
	from, to = max(0, from), min(to, int64(len(w.excess[i])))
	if from >= to {
		return math.Inf(1)
	}
	return mean(w.excess[i][from:to])
}

// late lists when a worker was late.
func (m *model) late(w *waiting, i int, period float64) []*suspect {
	var out []*suspect
	x := w.excess[i]
	shortest := max(4, int(max(shortestStretch, int64(fewSteps*period))/m.block))
	for _, s := range stretches(x, w.sd, excessFloor, lowestExcess, shortest) {
		spread := w.spread(i, s)
		if s.excess < unlike(len(w.who))*spread {
			continue
		}
		bound := 2*s.deviates + max(spread, naturalSpread) + scaleError*s.excess
		if s.excess < clearOfBound*bound {
			continue
		}
		over := 0
		for _, e := range x[s.from:s.to] {
			if e > s.excess/3 {
				over++
			}
		}
		out = append(out, &suspect{
			m: m, device: w.who[i], excess: min(1, s.excess), bound: bound,
			steady: float64(over) / float64(s.to-s.from),
			span:   Span{(w.first + int64(s.from)) * m.block, (w.first + int64(s.to)) * m.block},
		})
	}
	return out
}

// unlike is how many deviations of the others the excess of one of n must have:
// the largest of n normal values lies at about the root, and 1.5 more is no
// chance.
func unlike(n int) float64 { return math.Sqrt(2*math.Log(float64(n))) + 1.5 }

// toBorders lengthens a span that comes near a border of the phase to it: the
// blocks at the border were not looked at.
func (s *suspect) toBorders(phase Span) {
	if s.span.BeginNS-phase.BeginNS <= 3*s.m.block {
		s.span.BeginNS = phase.BeginNS
	}
	if phase.EndNS-s.span.EndNS <= 3*s.m.block {
		s.span.EndNS = phase.EndNS
	}
}

func overlap(a, b Span) int64 { return max(0, min(a.EndNS, b.EndNS)-max(a.BeginNS, b.BeginNS)) }

// worst keeps, of suspects of the same time, those that come near the worst.
func worst(all []*suspect) []*suspect {
	slices.SortStableFunc(all, func(a, b *suspect) int { return cmp.Compare(b.cost(), a.cost()) })
	var kept []*suspect
	for _, s := range all {
		shadowed := slices.ContainsFunc(kept, func(k *suspect) bool {
			return 2*overlap(k.span, s.span) > s.span.EndNS-s.span.BeginNS && s.excess < likeTheWorst*k.excess
		})
		if !shadowed {
			kept = append(kept, s)
		}
	}
	return kept
}

// cost is the time that others waited for it, in seconds of each.
func (s *suspect) cost() float64 { return s.excess * s.span.Seconds() }

// compare holds the suspect against the others in its span.
func (s *suspect) compare(who []*device) {
	from, to := s.m.inner(s.span)
	var uses []usage
	var all []shares
	levels := s.m.allLevels(from, to)
	for i, d := range s.m.workers {
		if !slices.Contains(who, d) {
			continue
		}
		u := s.m.usageOf(d, from, to)
		sh := s.m.shares(u, levels[i])
		if d == s.device {
			s.own, s.shares = u, sh
			continue
		}
		s.others = append(s.others, d)
		uses = append(uses, u)
		all = append(all, sh)
	}
	s.rest, s.typical = medianUsage(uses), medianShares(all)
}

// takesPart says whether the GPU is one of those that meet in steps, and whether
// there are any: others that neither work nor wait for it are not late.
func (s *suspect) takesPart() bool {
	if s.serial() {
		return true
	}
	busy := s.typical.work + s.typical.copying + s.typical.tiny + s.typical.link
	return busy >= someWork && (math.IsNaN(s.own.util) || s.own.util >= takesPart) && s.typical.wait >= s.excess-s.bound
}

// serial says that all others did little but wait while the suspect's GPU did no
// more than theirs. In steps that come again that is a late rank like any other,
// unless there is nothing but waiting.
func (s *suspect) serial() bool {
	if s.typical.wait <= 0.5 || s.excess <= 0.5 {
		return false
	}
	return s.typical.work < someWork || s.period == 0 && s.extraWork() < s.excess/5
}

func medianUsage(all []usage) usage {
	of := func(f func(usage) float64) float64 {
		v := make([]float64, len(all))
		for i, u := range all {
			v[i] = f(u)
		}
		return median(v)
	}
	return usage{
		utilKnown: true, unitsKnown: true, powerKnown: true,
		util: of(func(u usage) float64 { return u.util }), sm: of(func(u usage) float64 { return u.sm }),
		tensor: of(func(u usage) float64 { return u.tensor }), fp: of(func(u usage) float64 { return u.fp }),
		dram: of(func(u usage) float64 { return u.dram }), link: of(func(u usage) float64 { return u.link }),
		rx: of(func(u usage) float64 { return u.rx }), tx: of(func(u usage) float64 { return u.tx }),
		work: of(func(u usage) float64 { return u.work }), memory: of(func(u usage) float64 { return u.memory }),
		copying: of(func(u usage) float64 { return u.copying }), tiny: of(func(u usage) float64 { return u.tiny }),
		maxWork: of(func(u usage) float64 { return u.maxWork }), maxLink: of(func(u usage) float64 { return u.maxLink }),
		maxPCIe: of(func(u usage) float64 { return u.maxPCIe }), power: of(func(u usage) float64 { return u.power }),
		clock: of(func(u usage) float64 { return u.clock }), loadClock: of(func(u usage) float64 { return u.loadClock }),
		capped: of(func(u usage) float64 { return u.capped }), thermal: of(func(u usage) float64 { return u.thermal }),
		brake: of(func(u usage) float64 { return u.brake }), temperature: of(func(u usage) float64 { return u.temperature }),
	}
}

func medianShares(all []shares) shares {
	of := func(f func(shares) float64) float64 {
		v := make([]float64, len(all))
		for i, s := range all {
			v[i] = f(s)
		}
		return median(v)
	}
	return shares{
		known: true,
		work:  of(func(s shares) float64 { return s.work }), memory: of(func(s shares) float64 { return s.memory }),
		copying: of(func(s shares) float64 { return s.copying }), tiny: of(func(s shares) float64 { return s.tiny }),
		wait: of(func(s shares) float64 { return s.wait }), link: of(func(s shares) float64 { return s.link }),
		idle: of(func(s shares) float64 { return s.idle }),
	}
}

// straggler puts the suspect as the Result has it.
func (s *suspect) straggler() Straggler {
	out := Straggler{
		Place: s.device.Place, Span: s.span, Phase: s.phase, Chronic: s.steady >= steadily, Excess: s.excess,
	}
	if s.once {
		out.Chronic, out.Steps = false, len(s.lengths)
		out.ExcessNS, out.BoundNS = int64(median(s.lengths)), s.m.block
		return out
	}
	length := s.period
	if length > 0 {
		out.Steps = int(math.Round(float64(s.span.EndNS-s.span.BeginNS) / length * s.steady))
		out.ExcessNS, out.BoundNS = int64(s.excess*length), int64(s.bound*length)
	}
	return out
}

// lost is, for each worker, the share of the phase that it waited for suspects.
func (m *model) lost(span Span, all []shares, suspects []*suspect) []float64 {
	out := make([]float64, len(all))
	for i, d := range m.workers {
		for _, s := range suspects {
			if s.device == d {
				out[i] = 0
				break
			}
			if s.once {
				continue
			}
			part := s.span.Seconds() / span.Seconds()
			out[i] = max(out[i], part*clamp(all[i].wait-s.shares.wait, 0, s.excess+s.bound))
		}
	}
	return out
}
