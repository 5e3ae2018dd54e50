package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/gswarm/gswarm/analysis"
)

// Comparison is runs side by side. The first is what the others are held
// against.
type Comparison struct {
	Version int            `json:"version"`
	Runs    []ComparedRun  `json:"runs"`
	Rows    []ComparedRow  `json:"metrics"`
	Causes  []ComparedFind `json:"causes"`
}

// ComparedRun says which run a column is.
type ComparedRun struct {
	// Name is a letter: A for the first.
	Name    string   `json:"name"`
	Run     string   `json:"run"`
	JobID   string   `json:"job_id,omitempty"`
	Command []string `json:"command"`
	Seconds float64  `json:"seconds"`
	Nodes   int      `json:"nodes"`
	GPUs    int      `json:"gpus"`
	// Missing is how many things its data lack.
	Missing int `json:"missing"`
}

// ComparedRow is one metric of every run. Values, noises and changes are by run;
// null is what is not known.
type ComparedRow struct {
	Metric string     `json:"metric"`
	Unit   string     `json:"unit"`
	Values []*float64 `json:"values"`
	// Noise is the standard error of each value: from the spread over GPUs, of
	// step times from the spread over steps.
	Noise []*float64 `json:"noise"`
	// Change is each value over the first's, less one.
	Change []*float64 `json:"change"`
	// WithinNoise says that the difference from the first is at most twice the
	// standard error of both together.
	WithinNoise []*bool `json:"within_noise"`

	name string
	text func(float64) string
}

// ComparedFind is one cause and what it cost in every run.
type ComparedFind struct {
	Cause analysis.Cause `json:"cause"`
	// Titles are the dearest finding's of that cause, empty where a run has
	// none; Effects are shares of GPU time, added up.
	Titles  []string   `json:"titles"`
	Effects []*float64 `json:"effects"`
}

// measure is how a row of a comparison comes out of a result: its value and its
// standard error, nil where they are not known.
type measure struct {
	metric, name, unit string
	of                 func(*analysis.Result) (value, noise *float64)
	text               func(float64) string
	// own says that a change in percent of it would say nothing: it is a share
	// already.
	own bool
}

var measures = []measure{
	{"length_s", "length", "s", func(r *analysis.Result) (*float64, *float64) { return num(r.Job.Seconds()), nil }, duration, false},
	{"step_s", "step time, median", "s", stepTime, func(v float64) string { return fmt.Sprintf("%.3g s", v) }, false},
	{"steps", "steps", "count", func(r *analysis.Result) (*float64, *float64) { return positive(float64(r.Steps.Count)), nil }, func(v float64) string { return count(int64(v)) }, false},
	{"sm_active_pct", "SM active", "percent", overGPUs("sm_active_pct"), metricOf("sm_active_pct").value, false},
	{"tensor_pct", "tensor cores", "percent", overGPUs("tensor_pct"), metricOf("tensor_pct").value, false},
	{"util_gpu_pct", "“GPU utilisation”", "percent", overGPUs("util_gpu_pct"), metricOf("util_gpu_pct").value, false},
	{"idle_share", "idle", "share", func(r *analysis.Result) (*float64, *float64) { return r.Totals.IdleShare, nil }, percent, false},
	{"mem_used_bytes", "memory of a GPU", "bytes", overGPUs("mem_used_bytes"), megabytes, false},
	{"mem_peak_bytes", "memory, the most", "bytes", memoryPeak, megabytes, false},
	{"power_mw", "power of a GPU", "mW", power, watts, false},
	{"energy_j", "energy", "J", func(r *analysis.Result) (*float64, *float64) { return r.Totals.EnergyJ, nil }, energy, false},
	{"energy_per_step_j", "energy of a step", "J", stepEnergy, energy, false},
	{"memory_cv", "balance of memory", "share", balanceOf("mem_used_bytes"), cvText, true},
	{"sm_active_cv", "balance of SM active", "share", balanceOf("sm_active_pct"), cvText, true},
	{"straggler_s", "time with stragglers", "s", stragglerTime, duration, false},
}

// Compare holds runs against the first of them.
func Compare(runs []*analysis.Result) *Comparison {
	c := &Comparison{Version: 1, Rows: []ComparedRow{}, Causes: []ComparedFind{}}
	for i, r := range runs {
		c.Runs = append(c.Runs, ComparedRun{
			Name: letters(i), Run: r.Job.Run, JobID: r.Job.ID, Command: r.Job.Command, Seconds: r.Job.Seconds(),
			Nodes: r.Job.Nodes, GPUs: r.Job.GPUs, Missing: len(r.Data.Missing),
		})
	}
	for _, m := range measures {
		row := ComparedRow{Metric: m.metric, Unit: m.unit, name: m.name, text: m.text}
		known := false
		for _, r := range runs {
			v, noise := m.of(r)
			row.Values, row.Noise = append(row.Values, v), append(row.Noise, noise)
			known = known || v != nil
		}
		if !known {
			continue
		}
		for i := range runs {
			var change *float64
			var within *bool
			if i > 0 && !m.own {
				change, within = difference(row.Values[0], row.Values[i], row.Noise[0], row.Noise[i])
			}
			row.Change, row.WithinNoise = append(row.Change, change), append(row.WithinNoise, within)
		}
		c.Rows = append(c.Rows, row)
	}
	c.Causes = compareCauses(runs)
	return c
}

// letters names the i-th run: A to Z, then AA.
func letters(i int) string {
	const alphabet = 26
	if i < alphabet {
		return string(rune('A' + i))
	}
	return letters(i/alphabet-1) + letters(i%alphabet)
}

// sure is how many standard errors a difference must exceed.
const sure = 2

func difference(a, b, noiseA, noiseB *float64) (change *float64, within *bool) {
	if a == nil || b == nil {
		return nil, nil
	}
	if *a != 0 {
		change = num(*b / *a - 1)
	}
	if noiseA != nil && noiseB != nil {
		is := math.Abs(*b-*a) <= sure*math.Hypot(*noiseA, *noiseB)
		within = &is
	}
	return change, within
}

func num(v float64) *float64 { return &v }

func positive(v float64) *float64 {
	if v <= 0 {
		return nil
	}
	return &v
}

// spread returns the mean of values and its standard error, which one value
// does not have.
func spread(values []float64) (mean, noise *float64) {
	if len(values) == 0 {
		return nil, nil
	}
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum += v
	}
	m := sum / float64(len(values))
	if len(values) == 1 {
		return &m, nil
	}
	for _, v := range values {
		squares += (v - m) * (v - m)
	}
	n := float64(len(values))
	return &m, num(math.Sqrt(squares / (n - 1) / n))
}

// overGPUs is the mean of a column over the GPUs that took part.
func overGPUs(columns ...string) func(*analysis.Result) (*float64, *float64) {
	return func(r *analysis.Result) (*float64, *float64) {
		var means []float64
		for _, g := range r.GPUs {
			for _, c := range columns {
				if s, ok := g.Metrics[c]; ok && !g.Spare {
					means = append(means, s.Mean)
					break
				}
			}
		}
		return spread(means)
	}
}

func power(r *analysis.Result) (*float64, *float64) {
	return overGPUs("power_now_mw", "power_avg_mw")(r)
}

func memoryPeak(r *analysis.Result) (*float64, *float64) {
	most := 0.0
	for _, g := range r.GPUs {
		most = max(most, g.Metrics["mem_used_bytes"].Max)
	}
	return positive(most), nil
}

// stepTime is the median step and its standard error. The steps' deviation is
// taken from their 95th percentile, which lies 1.645 deviations above the median
// of what is normal; a median's error is 1.2533 times a mean's.
func stepTime(r *analysis.Result) (value, noise *float64) {
	if r.Steps.MedianNS == nil {
		return nil, nil
	}
	median := float64(*r.Steps.MedianNS) / 1e9
	if r.Steps.P95NS == nil || r.Steps.Count == 0 {
		return &median, nil
	}
	const normal, ofMedian = 1.645, 1.2533
	deviation := (float64(*r.Steps.P95NS)/1e9 - median) / normal
	return &median, positive(ofMedian * deviation / math.Sqrt(float64(r.Steps.Count)))
}

func stepEnergy(r *analysis.Result) (*float64, *float64) {
	if r.Totals.EnergyJ == nil || r.Steps.Count == 0 {
		return nil, nil
	}
	return num(*r.Totals.EnergyJ / float64(r.Steps.Count)), nil
}

func balanceOf(metric string) func(*analysis.Result) (*float64, *float64) {
	return func(r *analysis.Result) (*float64, *float64) {
		for _, b := range r.Balance {
			if b.Metric == metric {
				return b.Spatial, nil
			}
		}
		return nil, nil
	}
}

// cvText is a coefficient of variation with its class.
func cvText(v float64) string {
	class := classes[0].class
	for _, c := range classes {
		if 100*v >= c.from {
			class = c.class
		}
	}
	return fmt.Sprintf("%.1f%% %s", 100*v, className(class))
}

// stragglerTime is how long some rank was a straggler; stretches that overlap
// count once.
func stragglerTime(r *analysis.Result) (*float64, *float64) {
	if r.Job.GPUs == 0 {
		return nil, nil
	}
	spans := make([]analysis.Span, 0, len(r.Stragglers))
	for _, s := range r.Stragglers {
		spans = append(spans, s.Span)
	}
	slices.SortFunc(spans, func(a, b analysis.Span) int { return int(a.BeginNS - b.BeginNS) })
	total, end := int64(0), int64(math.MinInt64)
	for _, s := range spans {
		if s.EndNS > end {
			total += s.EndNS - max(s.BeginNS, end)
			end = s.EndNS
		}
	}
	return num(float64(total) / 1e9), nil
}

// compareCauses lists the causes of all runs, those that cost most in any first.
func compareCauses(runs []*analysis.Result) []ComparedFind {
	at := make(map[analysis.Cause]int)
	all := []ComparedFind{}
	for i, r := range runs {
		for _, f := range r.Findings {
			k, ok := at[f.Cause]
			if !ok {
				k = len(all)
				at[f.Cause] = k
				all = append(all, ComparedFind{Cause: f.Cause, Titles: make([]string, len(runs)), Effects: make([]*float64, len(runs))})
			}
			if all[k].Titles[i] == "" {
				all[k].Titles[i] = f.Title
			}
			if f.Effect != nil {
				sum := *f.Effect
				if all[k].Effects[i] != nil {
					sum += *all[k].Effects[i]
				}
				all[k].Effects[i] = &sum
			}
		}
	}
	dearest := func(f ComparedFind) (most float64) {
		for _, e := range f.Effects {
			if e != nil {
				most = max(most, *e)
			}
		}
		return most
	}
	slices.SortStableFunc(all, func(a, b ComparedFind) int {
		switch x, y := dearest(a), dearest(b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return all
}
