package analysis

import (
	"math"
	"slices"

	"github.com/gswarm/gswarm/table"
)

// result says all that the model holds.
func (m *model) result() *Result {
	r := &Result{Version: Version, Balance: []Balance{}, Phases: []Phase{}, Stragglers: []Straggler{}, Findings: []Finding{}}
	r.GPUs = m.gpus()
	r.Hosts, r.Ranks = m.hosts(), m.rankUse()
	r.Totals = totals(r.GPUs)
	r.Totals.GPUHours = m.gpuSeconds() / 3600
	r.Balance = m.balance(r.GPUs)
	r.Job = m.job(r)
	r.Totals.GPUHours = float64(len(r.GPUs)) * r.Job.Seconds() / 3600
	m.answer(r)
	r.Data = m.data()
	return r
}

func (m *model) job(r *Result) Job {
	j := Job{
		Run: m.facts.Run, ID: m.facts.JobID, Command: m.facts.Command, Running: m.facts.Running, Exit: m.facts.Exit,
		Nodes: len(r.Hosts), GPUs: len(m.devices), Ranks: len(r.Ranks), GPUNames: map[string]int{},
		Span: Span{m.facts.BeginNS, m.facts.EndNS},
	}
	if j.Command == nil {
		j.Command = []string{}
	}
	if j.BeginNS == 0 {
		j.BeginNS = m.span.BeginNS
	}
	if j.EndNS == 0 {
		j.EndNS = m.span.EndNS
	}
	for _, d := range m.devices {
		if d.facts.Name != "" {
			j.GPUNames[d.facts.Name]++
		}
	}
	return j
}

// gpus is what each GPU did in the whole run.
func (m *model) gpus() []GPU {
	out := make([]GPU, 0, len(m.devices))
	for _, d := range m.devices {
		g := GPU{
			Place: d.Place, Name: d.facts.Name, Ranks: d.ranks, Metrics: map[string]Stat{},
			MemoryBytes: d.facts.MemoryBytes, Spare: d.spare,
		}
		if d.readings != nil {
			for i, c := range gpuMetrics {
				if d.readings.metrics[i].n > 0 {
					g.Metrics[table.GPU.Columns[c].Name] = d.readings.metrics[i].stat()
				}
			}
		}
		if d.units != nil {
			for i, c := range activityMetrics {
				if d.units.metrics[i].n > 0 {
					g.Metrics[table.GPUActivity.Columns[c].Name] = d.units.metrics[i].stat()
				}
			}
		}
		if s, ok := g.Metrics[utilColumn]; ok {
			g.IdleShare = ptr(1 - s.Mean/100)
		} else if s, ok := g.Metrics[smColumn]; ok && s.Mean < 1 {
			g.IdleShare = ptr(1 - s.Mean/100)
		}
		m.energy(d, &g)
		out = append(out, g)
	}
	return out
}

// The columns that are looked up by name in a Stat's map.
const (
	utilColumn  = "util_gpu_pct"
	smColumn    = "sm_active_pct"
	powerColumn = "power_now_mw"
	energyName  = "energy_j"
)

// energyCover is the share of a GPU's readings that the driver's counter of
// energy must cover to be taken for the run's energy, scaled to the whole.
const energyCover = 0.8

// energy is that of the driver's counter where it covers the run, else power
// over time.
func (m *model) energy(d *device, g *GPU) {
	if d.readings == nil {
		return
	}
	length := float64(d.readings.end - d.readings.begin)
	if e := m.tables.counters.energy.lookup(d.Node, *d.GPU); e != nil && length > 0 {
		if covered := float64(e.end - e.begin); covered >= energyCover*length {
			g.EnergyJ, g.EnergyFrom = ptr(float64(e.endMJ-e.firstMJ)/1e3*length/covered), "counter"
			return
		}
	}
	p, ok := g.Metrics[powerColumn]
	if !ok {
		p, ok = g.Metrics["power_avg_mw"]
	}
	if ok {
		g.EnergyJ, g.EnergyFrom = ptr(p.Mean/1e3*length/1e9), "power"
	}
}

// totals are over all GPUs.
func totals(gpus []GPU) Totals {
	t := Totals{Metrics: map[string]Stat{}}
	sums := map[string]*moments{}
	energy, idle := 0.0, moments{}
	all := len(gpus) > 0
	for _, g := range gpus {
		for name, s := range g.Metrics {
			if sums[name] == nil {
				sums[name] = &moments{}
			}
			sums[name].add(s.Mean)
			was, ok := t.Metrics[name]
			if !ok {
				was = Stat{Min: s.Min, Max: s.Max}
			}
			t.Metrics[name] = Stat{Min: min(was.Min, s.Min), Max: max(was.Max, s.Max), N: was.N + s.N}
		}
		if g.EnergyJ != nil {
			energy += *g.EnergyJ
		} else {
			all = false
		}
		if g.IdleShare != nil {
			idle.add(*g.IdleShare)
		}
	}
	for name, s := range t.Metrics {
		over := sums[name].stat()
		s.Mean, s.SD = over.Mean, over.SD
		t.Metrics[name] = s
	}
	if all {
		t.EnergyJ = &energy
	}
	if idle.n > 0 {
		t.IdleShare = ptr(idle.stat().Mean)
	}
	return t
}

// balanced are the metrics whose balance is told, with their units.
var balanced = []struct{ name, unit string }{
	{"mem_used_bytes", "bytes"}, {utilColumn, "percent"}, {smColumn, "percent"}, {"tensor_pct", "percent"},
	{"dram_pct", "percent"}, {powerColumn, "mW"}, {energyName, "J"}, {"clock_sm_mhz", "MHz"}, {"temp_c", "degrees Celsius"},
}

// negligible is the mean of a percentage below which a metric has no balance:
// nothing used the unit.
const negligible = 0.5

// balance says how evenly each metric lay over the GPUs that had work.
func (m *model) balance(gpus []GPU) []Balance {
	out := []Balance{}
	for _, metric := range balanced {
		b := Balance{Metric: metric.name, Unit: metric.unit}
		var means, temporal []float64
		lowest, highest := math.Inf(1), math.Inf(-1)
		spare := 0
		for _, g := range gpus {
			s, ok := g.Metrics[metric.name]
			if metric.name == energyName && g.EnergyJ != nil {
				s, ok = Stat{Mean: *g.EnergyJ}, true
			}
			if !ok {
				continue
			}
			if g.Spare {
				spare++
				continue
			}
			means = append(means, s.Mean)
			if s.Mean != 0 && metric.name != energyName {
				temporal = append(temporal, s.SD/math.Abs(s.Mean))
			}
			if s.Mean < lowest {
				lowest, b.Lowest = s.Mean, g.Place
			}
			if s.Mean > highest {
				highest, b.Highest = s.Mean, g.Place
			}
		}
		if len(means) == 0 {
			continue
		}
		b.GPUs = len(means)
		if len(temporal) > 0 {
			b.Temporal = ptr(mean(temporal))
		}
		switch v, ok := cv(means); {
		case len(means) < 2:
			b.Note = "one GPU cannot be compared"
		case !ok:
			b.Note = "the mean is zero"
		case metric.unit == "percent" && slices.Max(means) < negligible:
			b.Note = "next to unused: no class"
			b.Spatial = &v
		default:
			b.Spatial, b.Class = &v, classOf(v)
		}
		if spare > 0 {
			b.Note = joinNotes(b.Note, plural(spare, "spare GPU is", "spare GPUs are")+" left out")
		}
		out = append(out, b)
	}
	return out
}
