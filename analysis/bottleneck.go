package analysis

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// What a phase must show to be called so.
const (
	// someWork is the share of time with work, copies or waiting from which on
	// a phase is not idle.
	someWork = 0.10
	// powerBound is the share of the power limit that the mean power must
	// reach for power to be what bounds a phase, and powerClock the share of
	// the highest clock that the clock must have fallen below.
	powerBound = 0.97
	powerClock = 0.95
	// waitBound is the share of GPU time that a straggler makes others wait
	// from which on imbalance is what bounds a phase.
	waitBound = 0.10
)

// bottleneck sums up the workers' shares in a phase. lost is, for each worker,
// the share of time that it waited for a straggler.
func (m *model) bottleneck(span Span, all []shares, lost []float64) Bottleneck {
	total := map[Activity]float64{}
	n := 0.0
	for i, s := range all {
		if !s.known {
			total[Unknown]++
			n++
			continue
		}
		n++
		wait := min(s.wait, lost[i])
		total[Compute] += s.work - s.memory
		total[Memory] += s.memory
		total[Transfer] += s.copying
		total[Launch] += s.tiny
		total[Serial] += wait
		total[Communication] += s.wait - wait
		total[Idle] += s.idle
		total[Unknown] += s.unknown
	}
	for a := range total {
		total[a] /= max(n, 1)
	}
	if n == 0 {
		total[Unknown] = 1
	}
	// A GPU that has work in a phase and is empty in between waits for its
	// host; one of a phase without work is idle.
	if busy := total[Compute] + total[Memory] + total[Transfer] + total[Launch]; busy > someWork && total[Serial] < 0.5 {
		total[Input] = total[Idle]
		delete(total, Idle)
	}
	maps.DeleteFunc(total, func(_ Activity, v float64) bool { return v < 1e-6 })
	b := Bottleneck{Shares: total}
	b.Name = string(largest(total))
	if worked := 1 - total[Unknown]; total[Unknown] < 1 && worked > someWork && b.Name == string(Unknown) {
		rest := maps.Clone(total)
		delete(rest, Unknown)
		b.Name = string(largest(rest))
	}
	b.Basis = m.basis(total)
	switch {
	case total[Serial] >= waitBound && total[Serial] < 0.5:
		b.Name = "imbalance"
		b.Basis += "; GPUs that have done their part wait for one that has not"
	case b.Name == string(Compute):
		if share, clock, top := m.powerHeld(span); share >= powerBound && clock < powerClock*top {
			b.Name = "power"
			b.Basis += fmt.Sprintf("; power is at %.0f %% of the limit throughout, the SM clock at %.0f of %.0f MHz", share*100, clock, top)
		}
	}
	return b
}

// largest is the activity with the largest share; of equals, the first by name.
func largest(total map[Activity]float64) Activity {
	best, name := -1.0, Unknown
	for _, a := range slices.Sorted(maps.Keys(total)) {
		if total[a] > best {
			best, name = total[a], a
		}
	}
	return name
}

// basis says in words what the shares rest on.
func (m *model) basis(total map[Activity]float64) string {
	if total[Unknown] >= 1-1e-9 {
		return "neither utilisation nor activity was read"
	}
	var from []string
	util, units, power := false, false, false
	for _, d := range m.workers {
		power = power || d.busyPower > 0
		util = util || d.readings != nil && d.readings.metrics[0].n > 0
		units = units || d.units != nil && d.units.rows > 0
	}
	if util {
		from = append(from, "gpu.util_gpu_pct")
	}
	switch {
	case units:
		from = append(from, "gpu_activity (tensor, fp, dram, PCIe and NVLink)")
	case power:
		from = append(from, "gpu_power (work is where power is high; memory and copies cannot be told from arithmetic and waiting)")
	default:
		from = append(from, "without gpu_activity compute, memory and communication cannot be told apart: all count as compute")
	}
	return strings.Join(from, ", ")
}

// powerHeld says how near to the limit the mean power was in a span, and the SM
// clock under load beside the highest of the run.
func (m *model) powerHeld(span Span) (share, clock, top float64) {
	var p, c, t moments
	for _, d := range m.workers {
		u := m.usage(d, span)
		if d.facts.PowerLimitMW > 0 && u.powerKnown && u.capped > 0.5 {
			p.add(u.power * 1e3 / float64(d.facts.PowerLimitMW))
			c.add(u.loadClock)
		}
		if hi := m.topClock(d); hi > 0 {
			t.add(hi)
		}
	}
	if 2*p.n < int64(len(m.workers)) {
		return 0, 0, 0
	}
	return p.stat().Mean, c.stat().Mean, t.stat().Mean
}

// topClock is the highest SM clock of a GPU: of the run, or what its facts say.
func (m *model) topClock(d *device) float64 {
	if d.readings != nil && d.readings.metrics[5].n > 0 {
		return d.readings.metrics[5].max
	}
	return float64(d.facts.ClockMaxMHz)
}

// overall is the mean of the phases' shares by their length.
func overall(phases []Phase) Bottleneck {
	total := map[Activity]float64{}
	length := 0.0
	names := map[string]float64{}
	for _, p := range phases {
		for a, v := range p.Bottleneck.Shares {
			total[a] += v * p.Seconds()
		}
		length += p.Seconds()
		names[p.Bottleneck.Name] += p.Seconds()
	}
	if length == 0 {
		return Bottleneck{Name: string(Unknown), Shares: map[Activity]float64{Unknown: 1}, Basis: "nothing was read of any GPU"}
	}
	for a := range total {
		total[a] /= length
	}
	best := ""
	for _, n := range slices.Sorted(maps.Keys(names)) {
		if best == "" || names[n] > names[best] {
			best = n
		}
	}
	return Bottleneck{Name: best, Shares: total, Basis: fmt.Sprintf(
		"the phases' shares by their length; %q bounds %.0f %% of the time", best, 100*names[best]/length)}
}
