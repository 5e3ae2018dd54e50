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
	// signal is what they were found in.
	signal *signal
}

// findPeriod looks for the period of the steps in a phase: in power every 20 ms
// where there is any, else in the SMs' activity.
func (m *model) findPeriod(span Span, worked float64) period {
	if worked < someWork {
		return period{note: "no steps: the GPUs had next to no work"}
	}
	note := "no period was found: steps of different lengths, or of work that neither power nor SM activity shows"
	for _, s := range []*signal{&m.tables.power.fine, &m.tables.activity.fine} {
		x := s.between(span)
		if len(x) < 16 {
			continue
		}
		bins, short := periodOfLong(x, s.window(m))
		switch {
		case short > 0:
			note = fmt.Sprintf("steps too short for telemetry: something repeats every %.0f ms, windows are %.0f ms long",
				short*float64(s.dt)/1e6, float64(s.window(m))*float64(s.dt)/1e6)
		case bins > 0:
			return period{ns: bins * float64(s.dt), signal: s}
		}
	}
	if m.tables.power.fine.sum == nil && m.tables.activity.fine.sum == nil {
		note = "no steps: neither gpu_power nor gpu_activity was read"
	}
	return period{note: note}
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
	var found []float64
	for i := range pieces {
		if p, _ := periodOf(x[i*size : (i+1)*size]); p > 0 {
			found = append(found, p)
		}
	}
	if 2*len(found) < pieces || len(found) == 0 {
		return 0, 0
	}
	p := median(found)
	if p < float64(max(shortestBins, 2*window)) {
		return 0, p
	}
	return p, 0
}

// steps sums up the phases' steps.
func (m *model) steps(phases []Phase) Steps {
	s := Steps{Ranks: []RankSteps{}, List: []Step{}, ListEvery: 1}
	type group struct{ ns, n float64 }
	var groups []group
	for _, p := range phases {
		if p.StepNS != nil {
			s.Count += p.Steps
			groups = append(groups, group{float64(*p.StepNS), float64(p.Steps)})
		}
	}
	if s.Count == 0 {
		s.Note = "no steps were found in any phase"
		for _, p := range phases {
			if p.Bottleneck.Name != string(Idle) && p.StepNote != "" {
				s.Note = p.StepNote
			}
		}
		return s
	}
	s.Method = "activity"
	slices.SortFunc(groups, func(a, b group) int {
		if a.ns < b.ns {
			return -1
		}
		return 1
	})
	at := func(q float64) *int64 {
		left := q * float64(s.Count)
		for _, g := range groups {
			if left -= g.n; left <= 0 {
				return ptr(int64(g.ns))
			}
		}
		return ptr(int64(groups[len(groups)-1].ns))
	}
	s.MedianNS, s.P95NS = at(0.5), at(0.95)
	return s
}
