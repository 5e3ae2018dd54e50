package report

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/gswarm/gswarm/analysis"
)

const begin = int64(1_795_206_778e9)

func ptr[T any](v T) *T { return &v }

func at(from, to float64) analysis.Span {
	return analysis.Span{BeginNS: begin + int64(from*1e9), EndNS: begin + int64(to*1e9)}
}

func place(node string, gpu, rank int) analysis.Place {
	p := analysis.Place{Node: node}
	if gpu >= 0 {
		p.GPU, p.UUID = ptr(gpu), fmt.Sprintf("GPU-%s-%d", node, gpu)
	}
	if rank >= 0 {
		p.Rank = ptr(rank)
	}
	return p
}

// job is a run of so many nodes of eight GPUs, in which rank 3 computes half
// as long again as the others for 41 seconds.
func job(nodes int) *analysis.Result {
	random := rand.New(rand.NewPCG(1, 2))
	r := &analysis.Result{
		Version: analysis.Version,
		Job: analysis.Job{
			Run: "gswarm-4711", ID: "4711", Command: []string{"srun", "python", "train.py", "--config", "llm 7b.yaml"}, Span: at(0, 242),
			Exit: "exit code 0", Nodes: nodes, GPUs: 8 * nodes, Ranks: 8 * nodes, GPUNames: map[string]int{"NVIDIA H200": 8 * nodes},
		},
	}
	stat := func(mean, sd, low, high float64) analysis.Stat {
		return analysis.Stat{Mean: mean, SD: sd, Min: low, Max: high, N: 2420}
	}
	for n := range nodes {
		node := fmt.Sprintf("n%d", n+1)
		r.Hosts = append(r.Hosts, analysis.Host{Node: node, CPUShare: ptr(0.11), MemoryUsedBytes: ptr(int64(98e9)), CPUs: 128, MemoryBytes: 2e12, Aligned: true, BoundNS: 412_000})
		for g := range 8 {
			rank := 8*n + g
			slow := rank == 3
			active, power := 61+random.Float64(), 512e3+2e3*random.Float64()
			if slow {
				active, power = 72, 561e3
			}
			joules := power / 1e3 * 242
			gpu := analysis.GPU{
				Place: place(node, g, rank), Name: "NVIDIA H200", Ranks: []int{rank}, EnergyJ: &joules, EnergyFrom: "counter", IdleShare: ptr(0.08), MemoryBytes: 150754820096,
				Metrics: map[string]analysis.Stat{
					"sm_active_pct": stat(active, 21, 0, 100), "tensor_pct": stat(active*0.7, 20, 0, 96), "dram_pct": stat(31, 9, 0, 87), "util_gpu_pct": stat(91, 20, 0, 100),
					"mem_used_bytes": stat(12.8e9+float64(g)*20e6, 45.2e6, 0, 14e9), "power_now_mw": stat(power, 80e3, 78e3, 702e3), "temp_c": stat(54, 4, 39, 66), "clock_sm_mhz": stat(1901, 102, 345, 1980),
				},
			}
			r.GPUs = append(r.GPUs, gpu)
			r.Ranks = append(r.Ranks, analysis.Rank{Place: place(node, g, rank), LocalRank: ptr(g), CPUShare: ptr(1.02), RunDelayShare: ptr(0.003), RSSBytes: ptr(int64(6e9))})
		}
	}
	r.Totals = analysis.Totals{GPUHours: float64(8*nodes) * 242 / 3600, EnergyJ: ptr(float64(8*nodes) * 512 * 242), IdleShare: ptr(0.08), Metrics: map[string]analysis.Stat{}}
	for name, s := range r.GPUs[0].Metrics {
		r.Totals.Metrics[name] = s
	}
	slow := place("n1", 3, 3)
	r.Balance = []analysis.Balance{
		{Metric: "mem_used_bytes", Unit: "bytes", Spatial: ptr(0.0031), Class: analysis.Excellent, GPUs: 8 * nodes, Lowest: place("n1", 0, 0), Highest: place("n1", 7, 7)},
		{Metric: "sm_active_pct", Unit: "percent", Spatial: ptr(0.061), Temporal: ptr(0.3), Class: analysis.Good, GPUs: 8 * nodes, Lowest: place("n1", 0, 0), Highest: slow},
		{Metric: "power_now_mw", Unit: "mW", Spatial: ptr(0.031), Class: analysis.Excellent, GPUs: 8 * nodes, Highest: slow},
	}
	phase := func(i int, from, to float64, name string, step float64, active float64, shares map[analysis.Activity]float64) {
		p := analysis.Phase{Index: i, Span: at(from, to), GPUs: 8 * nodes, Bottleneck: analysis.Bottleneck{Name: name, Shares: shares, Basis: "SMs are busy with arithmetic."}, Metrics: map[string]float64{"sm_active_pct": active, "power_now_mw": 512e3}}
		if step > 0 {
			p.StepNS, p.Steps = ptr(int64(step*1e9)), int((to-from)/step)
		}
		r.Phases = append(r.Phases, p)
	}
	phase(0, 0, 29, "idle", 0, 2, map[analysis.Activity]float64{analysis.Idle: 1})
	phase(1, 29, 70, "compute", 0.53, 88, map[analysis.Activity]float64{analysis.Compute: 0.83, analysis.Communication: 0.12, analysis.Launch: 0.05})
	phase(2, 70, 110, "imbalance", 0.78, 63, map[analysis.Activity]float64{analysis.Compute: 0.62, analysis.Serial: 0.3, analysis.Communication: 0.08})
	phase(3, 110, 140, "input", 0.97, 44, map[analysis.Activity]float64{analysis.Input: 0.46, analysis.Compute: 0.45, analysis.Communication: 0.09})
	phase(4, 140, 155, "communication", 0, 100, map[analysis.Activity]float64{analysis.Communication: 1})
	phase(5, 155, 242, "power", 0.53, 96, map[analysis.Activity]float64{analysis.Compute: 0.95, analysis.Communication: 0.05})
	r.Overall = analysis.Bottleneck{Name: "compute", Shares: map[analysis.Activity]float64{analysis.Compute: 0.61, analysis.Communication: 0.14, analysis.Input: 0.11, analysis.Serial: 0.06, analysis.Idle: 0.08}, Basis: "most of the GPU time"}
	r.Steps = analysis.Steps{Method: "activity", Count: 310, MedianNS: ptr(int64(531e6)), P95NS: ptr(int64(972e6)), ListEvery: 1, Ranks: []analysis.RankSteps{{Place: slow, BusyNS: ptr(int64(720e6)), LagNS: ptr(int64(245e6)), BoundNS: 20e6, SlowShare: ptr(0.17)}}}
	for t := 29.0; t < 110; t += 0.53 {
		r.Steps.List = append(r.Steps.List, analysis.Step{Span: at(t, t+0.53), Phase: 1})
	}
	r.Stragglers = []analysis.Straggler{{Place: slow, Span: at(70, 110), Phase: 2, Chronic: true, Steps: 52, ExcessNS: 250e6, Excess: 0.32, BoundNS: 20e6, Cause: analysis.Imbalance}}
	r.Findings = []analysis.Finding{
		{
			Cause: analysis.Imbalance, Title: "Rank 3 has more work than the others", Detail: "In 52 steps seven ranks waited for rank 3; its clocks, power and links are as the others'.", Places: []analysis.Place{slow}, Span: at(70, 110),
			Effect: ptr(0.053), StepExcess: ptr(0.47), Confidence: 0.95, Severity: analysis.Problem, Remedy: "Give every rank the same number of tokens: look at how rank 3's batches are made.",
			Evidence: []analysis.Evidence{{Table: "gpu_activity", Columns: []string{"sm_active_pct"}, Place: slow, Span: at(70, 110), Rows: 310, Says: "SM active 91 %, the others 63 %"}},
		},
		{
			Cause: analysis.InputStall, Title: "All GPUs wait for input at the begin of each step", Span: at(110, 140), Effect: ptr(0.046), Confidence: 0.9, Severity: analysis.Problem, Remedy: "Prefetch, or give the data loader more workers.",
			Evidence: []analysis.Evidence{{Table: "gpu_activity", Columns: []string{"sm_active_pct", "pcie_rx_mib_s"}, Span: at(110, 140), Rows: 1900, Says: "0.45 s of each 0.97 s step without work on any GPU"}},
		},
		{Cause: analysis.PowerCap, Title: "The power limit of 700 W holds the clocks down", Span: at(155, 180), Effect: ptr(0.021), Severity: analysis.Info, Remedy: "Nothing to mend: the GPUs are at their limit.", Evidence: []analysis.Evidence{{Table: "gpu", Columns: []string{"clock_sm_mhz"}, Span: at(155, 180), Says: "1,450 MHz, elsewhere 1,980"}}},
	}
	r.Data = analysis.Data{Missing: []string{}, BoundNS: 412_000, Coverage: ptr(0.9993), Notes: []string{}}
	return r
}

// even is a job without problems.
func even() *analysis.Result {
	r := job(1)
	r.Stragglers, r.Findings = nil, nil
	return r
}

// hostOnly is a run on a machine without GPUs.
func hostOnly() *analysis.Result {
	r := job(2)
	r.GPUs, r.Phases, r.Stragglers, r.Findings, r.Balance, r.Steps = nil, nil, nil, nil, nil, analysis.Steps{Note: "no GPU was sampled"}
	r.Job.GPUs, r.Job.GPUNames, r.Totals, r.Overall, r.Data.Coverage = 0, nil, analysis.Totals{}, analysis.Bottleneck{}, nil
	return r
}

// incomplete still runs, lacks a node and is not aligned.
func incomplete() *analysis.Result {
	r := job(4)
	r.Job.Running, r.Job.Exit = true, ""
	r.Remaining = &analysis.Remaining{StepRate: 1.88, LimitNS: ptr(begin + int64(3600e9)), StepsUntilLimit: ptr(int64(6313)), Note: "by the rate of the last phase"}
	r.Data.Missing = []string{"n3: node_missing: the node was to be sampled and left nothing", "n4: truncated: spool-1: 312 rows lost"}
	r.Data.Unaligned = []string{"n4"}
	r.Data.Coverage = ptr(0.7312)
	return r
}

// old is a run on GPUs whose units cannot be read.
func old() *analysis.Result {
	r := even()
	for _, m := range append([]analysis.GPU{{Metrics: r.Totals.Metrics}}, r.GPUs...) {
		for _, name := range []string{"sm_active_pct", "tensor_pct", "dram_pct"} {
			delete(m.Metrics, name)
		}
	}
	r.Balance = r.Balance[:1]
	return r
}

// hostile has the worst that names, commands and words can be.
func hostile() *analysis.Result {
	r := job(3)
	evil := "\x1b[2J\x1b]0;owned\x07</script><script>alert(1)</script>\u202e'\"><img src=x onerror=alert(2)>${x}`--><!--"
	r.Job.Run, r.Job.ID, r.Job.Exit = evil, evil, evil
	r.Job.Command = []string{"python", evil, "\n\r\t", "ü日本語", strings.Repeat("x", 500), string([]byte{0xff, 0xfe})}
	r.Job.GPUNames = map[string]int{evil: 24}
	for i := range r.GPUs {
		r.GPUs[i].Node, r.GPUs[i].Name = strings.ReplaceAll(r.GPUs[i].Node, "n1", evil), evil
	}
	for i := range r.Hosts {
		r.Hosts[i].Node = strings.ReplaceAll(r.Hosts[i].Node, "n1", evil)
	}
	r.Stragglers[0].Node = evil
	r.Stragglers[0].Cause = analysis.Cause(evil)
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Title, f.Detail, f.Remedy = f.Title+evil, evil, strings.Repeat(evil+" ", 20)
		f.Places = []analysis.Place{place(evil, 3, 3)}
		f.Evidence[0].Says, f.Evidence[0].Table, f.Evidence[0].Columns = evil, evil, []string{evil}
	}
	for range 50 {
		r.Data.Missing = append(r.Data.Missing, evil)
		r.Data.Notes = append(r.Data.Notes, strings.Repeat(evil, 3))
		r.Findings = append(r.Findings, r.Findings[0])
		r.Stragglers = append(r.Stragglers, r.Stragglers[0])
		r.Phases = append(r.Phases, r.Phases[1])
		r.Data.Unaligned = append(r.Data.Unaligned, evil)
	}
	r.Phases[2].Bottleneck.Name = evil
	r.Steps.Note = evil
	return r
}

// results are by the name of their golden file.
func results() map[string]*analysis.Result {
	return map[string]*analysis.Result{
		"slow-rank": job(1), "cluster": job(128), "even": even(), "host-only": hostOnly(), "incomplete": incomplete(), "hostile": hostile(), "empty": {}, "old-gpus": old(),
	}
}
