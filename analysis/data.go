package analysis

import "fmt"

// data says how far the rest can be trusted.
func (m *model) data() Data {
	d := Data{Missing: append([]string{}, m.facts.Missing...), Unaligned: []string{}, Notes: []string{}}
	for _, n := range m.facts.Nodes {
		switch {
		case n.Missing:
			d.Missing = append(d.Missing, fmt.Sprintf("node %s was to be sampled and left nothing", n.Node))
		case !n.Aligned:
			d.Unaligned = append(d.Unaligned, n.Node)
		default:
			d.BoundNS = max(d.BoundNS, n.BoundNS)
		}
	}
	due, had := 0.0, 0.0
	for _, dev := range m.devices {
		if dev.readings != nil && m.facts.TickNS > 0 {
			had += float64(dev.readings.rows)
		}
		if m.facts.TickNS > 0 {
			due += float64(m.span.EndNS-m.span.BeginNS)/float64(m.facts.TickNS) + 1
		}
	}
	if due > 0 {
		d.Coverage = ptr(min(1, had/due))
	}
	switch {
	case len(m.devices) == 0:
		d.Notes = append(d.Notes, "no GPU was seen: balance, phases, steps and stragglers rest on GPU readings and are not known")
	case !m.anyRead():
		d.Notes = append(d.Notes, "all readings of the GPUs are null: what they did is not known")
	case m.span.EndNS-m.span.BeginNS < minPhaseNS:
		d.Notes = append(d.Notes, fmt.Sprintf("the readings span %.1f s: too short for phases, steps or stragglers to be told", m.span.Seconds()))
	case len(m.workers) == 1:
		d.Notes = append(d.Notes, "one GPU: there is none to compare it with, so no balance and no stragglers")
	}
	if m.facts.Running {
		d.Notes = append(d.Notes, "the run goes on: this is what was there when it was read")
	}
	return d
}

// anyRead says whether any GPU has a value of any metric.
func (m *model) anyRead() bool {
	for _, d := range m.devices {
		if d.readings != nil {
			for i := range d.readings.metrics {
				if d.readings.metrics[i].n > 0 {
					return true
				}
			}
		}
		if d.units != nil && d.units.rows > 0 {
			return true
		}
	}
	return false
}
