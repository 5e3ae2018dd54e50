package analysis

import (
	"fmt"
	"math"
	"slices"
)

// shortestBins is how many bins of a signal a step must last: two windows, and
// one more since bins and windows do not begin together.
const shortestBins = 3

// period is what is known of the steps of a phase.
type period struct {
	ns   float64 // 0 where none was found
	note string  // why not
	// begins are when the steps began, with the end of the last.
	begins []int64
	marked bool
}

// findPeriod looks for the period of the steps in a phase: in the job's own
// marks, in power every 20 ms, in the SMs' activity.
func (m *model) findPeriod(span Span, worked float64) period {
	if p := m.markedPeriod(span); p.ns > 0 {
		return p
	}
	if worked < someWork {
		return period{note: "no steps: the GPUs had next to no work"}
	}
	note := "no period was found: steps of different lengths, or of work that neither power nor SM activity shows"
	for _, s := range []*signal{&m.tables.power.fine, &m.tables.activity.fine} {
		x := s.between(span)
		if len(x) < 16 {
			continue
		}
		window := s.window(m)
		switch bins, short := periodOfLong(x, window); {
		case short > 0:
			// A coarser signal would show a multiple at best.
			return period{note: fmt.Sprintf("steps too short for telemetry: something repeats every %.0f ms, windows are %.0f ms long",
				short*float64(s.dt)/1e6, float64(window)*float64(s.dt)/1e6)}
		case bins > 0:
			p := period{ns: bins * float64(s.dt)}
			first := float64(max(floorDiv(span.BeginNS+s.dt-1, s.dt), s.first) * s.dt)
			for _, b := range trackSteps(x, bins) {
				p.begins = append(p.begins, int64(first+b*float64(s.dt)))
			}
			return p
		}
	}
	if len(m.tables.power.fine.sum) == 0 && len(m.tables.activity.fine.sum) == 0 {
		note = "no steps: neither gpu_power nor gpu_activity was read"
	}
	return period{note: note}
}

// markedPeriod is the median time between the job's own marks in a phase.
func (m *model) markedPeriod(span Span) period {
	var p period
	for _, t := range m.marks {
		if t >= span.BeginNS && t < span.EndNS {
			p.begins = append(p.begins, t)
		}
	}
	if len(p.begins) < 3 {
		return period{}
	}
	var d []float64
	for i := 1; i < len(p.begins); i++ {
		d = append(d, float64(p.begins[i]-p.begins[i-1]))
	}
	p.ns, p.marked = median(d), true
	return p
}

// window is the length in bins of the windows that the signal was made of.
func (s *signal) window(m *model) int {
	if s == &m.tables.power.fine {
		return 1
	}
	var lengths []float64
	for _, d := range m.devices {
		if d.units != nil && d.units.windows.n > 0 {
			lengths = append(lengths, d.units.windows.stat().Mean)
		}
	}
	if len(lengths) == 0 {
		return 1
	}
	return max(1, int(math.Ceil(median(lengths)*1e9/float64(s.dt)-0.1)))
}

// periodOfLong finds the period of a signal of any length, in bins: the median
// of the periods of its pieces. A period shorter than two windows of the signal
// is returned as short.
func periodOfLong(x []float64, window int) (bins, short float64) {
	pieces := max(1, len(x)/chunkBins)
	size := len(x) / pieces
	least := float64(max(shortestBins, 2*window))
	var found []float64
	for i := range pieces {
		p, part := periodOf(x[i*size : (i+1)*size])
		if part > 0 && part < least {
			p = part
		}
		if p > 0 {
			found = append(found, p)
		}
	}
	if 2*len(found) < pieces || len(found) == 0 {
		return 0, 0
	}
	p := median(found)
	if p < least {
		return 0, p
	}
	return p, 0
}

// maxSteps is how many steps a Result lists at most.
const maxSteps = 5000

// steps sums up the phases' steps.
func (m *model) steps(stages []*stage) Steps {
	s := Steps{Ranks: m.rankSteps(stages), List: []Step{}, ListEvery: 1}
	var lengths []float64
	marked := false
	for _, st := range stages {
		p := st.period
		if p.ns == 0 {
			continue
		}
		marked = marked || p.marked
		s.Count += st.Steps
		listed := 0
		for i := 1; i < len(p.begins); i++ {
			s.List = append(s.List, Step{Span: Span{p.begins[i-1], p.begins[i]}, Phase: st.Index})
			lengths = append(lengths, float64(p.begins[i]-p.begins[i-1]))
			listed++
		}
		for ; listed < st.Steps; listed++ { // what could not be followed
			lengths = append(lengths, p.ns)
		}
	}
	if s.Count == 0 {
		s.Note = "no steps were found in any phase"
		longest := int64(0)
		for _, st := range stages {
			if l := st.EndNS - st.BeginNS; st.Bottleneck.Name != string(Idle) && l > longest && st.StepNote != "" {
				s.Note, longest = st.StepNote, l
			}
		}
		return s
	}
	s.Method = "activity"
	if marked {
		s.Method = "marks"
	}
	s.MedianNS, s.P95NS = ptr(int64(median(lengths))), ptr(int64(quantile(lengths, 0.95)))
	for len(s.List) > maxSteps*s.ListEvery {
		s.ListEvery++
	}
	kept := s.List[:0]
	for i := 0; i < len(s.List); i += s.ListEvery {
		kept = append(kept, s.List[i])
	}
	s.List = kept
	return s
}

// turn is how a worker fared in the steps of a stage, as shares of a step.
type turn struct {
	device           *device
	busy, lag, bound float64
	slow             float64
}

// turns says how the workers fared in a stage; nil without steps.
func (st *stage) findTurns(byUtil, bySM *waiting) {
	w := bySM
	if len(w.who) < 2 {
		w = byUtil
	}
	if st.period.ns == 0 || len(w.who) < 2 || math.IsInf(w.sd, 1) {
		return
	}
	n := len(w.wait[0])
	last := make([]int, len(w.who))
	bound := surely * w.sd / math.Sqrt(float64(n))
	for b := range n {
		at, most := -1, max(2*w.sd, naturalSpread)
		for i := range w.who {
			if e := w.excess[i][b]; e > most {
				at, most = i, e
			}
		}
		if at >= 0 {
			last[at]++
		}
	}
	for i, d := range w.who {
		st.turns = append(st.turns, turn{
			device: d, busy: clamp(1-mean(w.wait[i]), 0, 1), lag: mean(w.excess[i]), bound: bound + naturalSpread,
			slow: float64(last[i]) / float64(n),
		})
	}
}

// rankSteps is how each rank fared in all steps: the mean over the phases with
// steps, by their number.
func (m *model) rankSteps(stages []*stage) []RankSteps {
	out := []RankSteps{}
	for _, d := range m.workers {
		var steps, busy, lag, bound, slow float64
		for _, st := range stages {
			i := slices.IndexFunc(st.turns, func(t turn) bool { return t.device == d })
			if i < 0 {
				continue
			}
			t, n := st.turns[i], float64(st.Steps)
			steps += n
			busy += n * t.busy * st.period.ns
			lag += n * t.lag * st.period.ns
			bound += n * t.bound * st.period.ns
			slow += n * t.slow
		}
		if steps == 0 {
			continue
		}
		out = append(out, RankSteps{
			Place: d.Place, BusyNS: ptr(int64(busy / steps)), LagNS: ptr(int64(lag / steps)), BoundNS: int64(bound / steps),
			SlowShare: ptr(slow / steps),
		})
	}
	return out
}
