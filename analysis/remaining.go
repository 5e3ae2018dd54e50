package analysis

import "fmt"

// fewToGoOn is how many steps the last phase must hold for its rate to be the
// run's.
const fewToGoOn = 10

// remaining estimates, for a run that still goes on, how much is left of its
// time and how many steps fit into that; nil for a run that has ended.
func (m *model) remaining(stages []*stage) *Remaining {
	if !m.facts.Running {
		return nil
	}
	var last *stage
	for _, st := range stages {
		if st.period.ns > 0 && st.Steps >= fewToGoOn {
			last = st
		}
	}
	r := &Remaining{}
	if m.facts.LimitNS > 0 {
		r.LimitNS = ptr(m.facts.LimitNS)
	}
	if last == nil {
		r.Note = "no steps were found: how long the run still takes cannot be said"
		return r
	}
	r.StepRate = 1e9 / last.period.ns
	r.Note = fmt.Sprintf("%.2f steps a second, as in the last %.0f s with steps", r.StepRate, last.Seconds())
	switch left := m.facts.LimitNS - m.span.EndNS; {
	case m.facts.LimitNS == 0:
		r.Note += "; the scheduler sets no limit that is known"
	case left <= 0:
		r.StepsUntilLimit = ptr(int64(0))
		r.Note += "; the limit has passed"
	default:
		r.StepsUntilLimit = ptr(int64(float64(left) / last.period.ns))
		r.Note += fmt.Sprintf("; %.0f min are left until the limit", float64(left)/60e9)
	}
	return r
}
