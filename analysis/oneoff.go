package analysis

import (
	"cmp"
	"math"
	"slices"
)

// A step is long where it takes longSteps times the median of its phase and
// longerNS more: less does not show in blocks of a second.
const (
	longStep = 1.3
	longerNS = 0.3e9
	// fewLong is the share of a phase's steps that may be long for them to be
	// one-offs.
	fewLong = 0.2
	// oneOffExcess is the share of the long step that its rank must have
	// worked, or been held up, while the others waited.
	oneOffExcess = 0.25
)

// findOneOffs finds, of the steps that took much longer than the others of the
// phase, those in which the others waited for one GPU, which is not chronically
// late.
func (m *model) findOneOffs(st *stage, w *waiting) []*suspect {
	p := st.period
	if p.ns == 0 || len(w.who) < 3 || len(p.begins) < 10 {
		return nil
	}
	var lengths []float64
	for i := 1; i < len(p.begins); i++ {
		lengths = append(lengths, float64(p.begins[i]-p.begins[i-1]))
	}
	typical := median(lengths)
	var long []int
	for i, l := range lengths {
		if l >= longStep*typical && l >= typical+longerNS {
			long = append(long, i)
		}
	}
	if float64(len(long)) > fewLong*float64(len(lengths)) {
		return nil
	}
	by := map[*device]*suspect{}
	var out []*suspect
	for _, i := range long {
		step := Span{p.begins[i], p.begins[i+1]}
		from, to := floorDiv(step.BeginNS, m.block)-w.first, floorDiv(step.EndNS-1, m.block)+1-w.first
		from, to = max(from, 0), min(to, int64(len(w.wait[0])))
		at, most, second := -1, 0.0, 0.0
		for k := range w.who {
			if from >= to {
				break
			}
			e := orZero(mean(w.excess[k][from:to]))
			if e > most {
				at, most, second = k, e, most
			} else {
				second = max(second, e)
			}
		}
		if at < 0 || most < max(oneOffExcess, surely*w.sd/math.Sqrt(float64(to-from))) || second > most/2 {
			continue
		}
		d := w.who[at]
		if slices.ContainsFunc(st.suspects, func(s *suspect) bool { return s.device == d && overlap(s.span, step) > 0 }) {
			continue
		}
		if by[d] == nil {
			by[d] = &suspect{m: m, phase: st.Index, device: d, span: step, period: typical, bound: surely*w.sd + naturalSpread, once: true}
			out = append(out, by[d])
		}
		s := by[d]
		s.span.EndNS = step.EndNS
		s.lengths = append(s.lengths, lengths[i]-typical)
	}
	for _, s := range out {
		s.excess = clamp(median(s.lengths)/(median(s.lengths)+typical), 0, 1)
	}
	slices.SortFunc(out, func(a, b *suspect) int { return cmp.Compare(len(b.lengths), len(a.lengths)) })
	return out
}
