package analysis

import "math"

// answer fills in what the run's course shows: phases, steps, bottleneck.
func (m *model) answer(r *Result) {
	for i, span := range m.findPhases() {
		r.Phases = append(r.Phases, m.phase(i, span))
	}
	r.Overall = overall(r.Phases)
	r.Steps = m.steps(r.Phases)
}

func (m *model) phase(i int, span Span) Phase {
	p := Phase{Index: i, Span: span, Metrics: map[string]float64{}}
	all := m.spanShares(span)
	worked := 0.0
	for _, s := range all {
		busy := 1 - s.idle
		if s.known {
			worked = max(worked, busy)
			if busy > someWork {
				p.GPUs++
			}
		}
	}
	p.Bottleneck = m.bottleneck(span, all, make([]float64, len(all)))
	t := m.findPeriod(span, worked)
	p.StepNote = t.note
	if t.ns > 0 {
		p.StepNS = ptr(int64(t.ns))
		p.Steps = int(math.Round(float64(span.EndNS-span.BeginNS) / t.ns))
	}
	m.phaseMetrics(&p)
	return p
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
