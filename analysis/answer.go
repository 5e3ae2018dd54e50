package analysis

import (
	"cmp"
	"math"
	"slices"
)

// answer fills in what the run's course shows: phases, steps, who was late, why,
// and what bounded the work.
func (m *model) answer(r *Result) {
	m.marks = m.markedSteps()
	stages := make([]*stage, 0)
	for i, span := range m.findPhases() {
		stages = append(stages, m.stage(i, span))
	}
	for _, st := range stages {
		r.Findings = append(r.Findings, m.lateFindings(st)...)
		r.Findings = append(r.Findings, m.jobFindings(st)...)
		r.Findings = append(r.Findings, m.slowLinks(st)...)
		for i, s := range st.suspects {
			late := s.straggler()
			late.Cause = st.causes[i]
			r.Stragglers = append(r.Stragglers, late)
		}
		r.Phases = append(r.Phases, st.Phase)
	}
	r.Findings = append(r.Findings, m.aloneFindings(stages)...)
	r.Findings = append(r.Findings, m.pressedFindings(m.findPressed())...)
	r.Findings = mergeFindings(append(r.Findings, m.runFindings(stages)...))
	slices.SortStableFunc(r.Stragglers, func(a, b Straggler) int {
		return cmp.Compare(b.Excess*b.Seconds(), a.Excess*a.Seconds())
	})
	r.Overall = overall(r.Phases)
	r.Steps = m.steps(stages)
	r.Remaining = m.remaining(stages)
}

// stage finds out what a phase was.
func (m *model) stage(i int, span Span) *stage {
	st := &stage{Phase: Phase{Index: i, Span: span, Metrics: map[string]float64{}}}
	st.all = m.spanShares(span)
	worked := 0.0
	for _, s := range st.all {
		if !s.known {
			continue
		}
		busy := 1 - s.idle
		worked = max(worked, busy)
		if busy > someWork {
			st.GPUs++
		}
	}
	st.period = m.findPeriod(span, worked)
	st.StepNote = st.period.note
	if st.period.ns > 0 {
		st.StepNS = ptr(int64(st.period.ns))
		st.Steps = int(math.Round(float64(span.EndNS-span.BeginNS) / st.period.ns))
	}
	if worked >= someWork {
		byUtil, bySM := m.waits(span, st.period.ns)
		st.suspects = m.findSuspects(i, span, st.period.ns, byUtil, bySM)
		st.findTurns(byUtil, bySM)
		st.suspects = append(st.suspects, m.findOneOffs(st, byUtil)...)
	}
	st.lost = m.lost(span, st.all, st.suspects)
	st.Bottleneck = m.bottleneck(span, st.all, st.lost)
	m.phaseMetrics(&st.Phase)
	return st
}

// phaseMetrics are means over GPUs and time, by column.
func (m *model) phaseMetrics(p *Phase) {
	sums := map[string]*moments{}
	for _, d := range m.workers {
		u := m.usage(d, p.Span)
		for name, v := range map[string]float64{
			utilColumn: u.util * 100, smColumn: u.sm * 100, "tensor_pct": u.tensor * 100, "dram_pct": u.dram * 100,
			powerColumn: u.power * 1e3, "clock_sm_mhz": u.clock, "pcie_rx_mib_s": u.rx, "pcie_tx_mib_s": u.tx,
			"nvlink_tx_mib_s": u.link,
		} {
			if !math.IsNaN(v) {
				if sums[name] == nil {
					sums[name] = &moments{}
				}
				sums[name].add(v)
			}
		}
	}
	for name, s := range sums {
		p.Metrics[name] = s.stat().Mean
	}
}
