package analysis_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/table"
)

func analyze(t *testing.T, s analysis.Source, f analysis.Facts) *analysis.Result {
	t.Helper()
	r, err := analysis.Analyze(context.Background(), s, f)
	if err != nil {
		t.Fatal(err)
	}
	if r.GPUs == nil || r.Hosts == nil || r.Ranks == nil || r.Balance == nil || r.Phases == nil || r.Stragglers == nil || r.Findings == nil ||
		r.Steps.List == nil || r.Steps.Ranks == nil || r.Data.Missing == nil || r.Data.Unaligned == nil || r.Data.Notes == nil || r.Totals.Metrics == nil {
		t.Error("a list is null in the result")
	}
	return r
}

func alarms(r *analysis.Result) (causes []analysis.Cause) {
	for _, f := range r.Findings {
		if f.Severity != analysis.Info {
			causes = append(causes, f.Cause)
		}
	}
	return causes
}

func says(r *analysis.Result, part string) bool {
	return strings.Contains(strings.Join(append(append([]string{}, r.Data.Notes...), r.Data.Missing...), "\n"), part)
}

func TestBalancedJob(t *testing.T) {
	s := training(2, 4, 60e9)
	r := analyze(t, s, s.facts())
	if a := alarms(r); len(a) > 0 {
		t.Errorf("alarms in a balanced job: %v", a)
	}
	if len(r.Phases) != 1 || r.Phases[0].StepNS == nil {
		t.Fatalf("phases: %+v", r.Phases)
	}
	if p := *r.Phases[0].StepNS; p < 693e6 || p > 707e6 {
		t.Errorf("the step is %d ms, in truth 700 ms", p/1e6)
	}
}

func TestSlowRank(t *testing.T) {
	s := training(2, 4, 60e9)
	s.slow, s.extra, s.compute = 5, 0.12, 0.75
	r := analyze(t, s, s.facts())
	if len(r.Stragglers) != 1 || *r.Stragglers[0].Rank != 5 || r.Stragglers[0].Cause != analysis.Imbalance {
		t.Errorf("stragglers: %+v, in truth rank 5", r.Stragglers)
	}
	for _, x := range r.Steps.Ranks {
		late := *x.LagNS > x.BoundNS
		if late != (*x.Rank == 5) {
			t.Errorf("rank %d: lag %d ms, good to %d ms", *x.Rank, *x.LagNS/1e6, x.BoundNS/1e6)
		}
	}
}

func TestOneGPU(t *testing.T) {
	s := training(1, 1, 60e9)
	r := analyze(t, s, s.facts())
	if len(r.Stragglers) > 0 || len(alarms(r)) > 0 {
		t.Errorf("one GPU: stragglers %v, alarms %v", r.Stragglers, alarms(r))
	}
	if !says(r, "one GPU") {
		t.Errorf("that there is one GPU is not said: %v", r.Data.Notes)
	}
	if r.Phases[0].StepNS == nil || r.Phases[0].Bottleneck.Name != "compute" {
		t.Errorf("one GPU has steps, too: %+v", r.Phases)
	}
	for _, b := range r.Balance {
		if b.Class != "" || b.Note == "" {
			t.Errorf("%s: one GPU has a class of balance: %+v", b.Metric, b)
		}
	}
}

func TestOneNode(t *testing.T) {
	s := training(1, 8, 60e9)
	if r := analyze(t, s, s.facts()); len(alarms(r)) > 0 || len(r.Hosts) != 1 {
		t.Errorf("one node: alarms %v", alarms(r))
	}
}

func TestNoGPU(t *testing.T) {
	s := training(2, 0, 60e9)
	f := s.facts()
	r := analyze(t, s, f)
	if len(r.GPUs) != 0 || len(r.Phases) != 0 || len(alarms(r)) != 0 || !says(r, "no GPU") {
		t.Errorf("no GPU: %d GPUs, %d phases, alarms %v, notes %v", len(r.GPUs), len(r.Phases), alarms(r), r.Data.Notes)
	}
	if len(r.Hosts) != 2 || r.Hosts[0].CPUShare == nil {
		t.Errorf("without a GPU the hosts are still of use: %+v", r.Hosts)
	}
	if r.Overall.Name != string(analysis.Unknown) {
		t.Errorf("without a GPU the bottleneck is %q", r.Overall.Name)
	}
}

func TestNothing(t *testing.T) {
	r := analyze(t, &synthetic{}, analysis.Facts{})
	if len(r.Data.Notes) == 0 || len(alarms(r)) > 0 {
		t.Errorf("an empty run: notes %v, alarms %v", r.Data.Notes, alarms(r))
	}
}

func TestTwoSeconds(t *testing.T) {
	s := training(1, 8, 2e9)
	r := analyze(t, s, s.facts())
	if len(alarms(r)) > 0 || len(r.Stragglers) > 0 || !says(r, "too short") {
		t.Errorf("two seconds: alarms %v, notes %v", alarms(r), r.Data.Notes)
	}
	if len(r.Phases) != 1 || r.Phases[0].StepNS != nil && *r.Phases[0].StepNS != 0 && (*r.Phases[0].StepNS < 690e6 || *r.Phases[0].StepNS > 710e6) {
		t.Errorf("two seconds: phases %+v", r.Phases)
	}
	if r.GPUs[0].Metrics["util_gpu_pct"].N == 0 {
		t.Error("two seconds: the readings are not used")
	}
}

func TestNoSteps(t *testing.T) {
	s := training(1, 8, 60e9)
	s.compute, s.rest = 1, 0
	r := analyze(t, s, s.facts())
	if r.Steps.Count != 0 || r.Steps.Note == "" || r.Steps.MedianNS != nil || len(alarms(r)) > 0 {
		t.Errorf("no steps: %+v, alarms %v", r.Steps, alarms(r))
	}
}

func TestStepsTooShort(t *testing.T) {
	s := training(1, 4, 60e9)
	s.step = 50e6
	r := analyze(t, s, s.facts())
	if r.Steps.Count != 0 || !strings.Contains(r.Steps.Note, "too short for telemetry") {
		t.Errorf("steps of 50 ms: %+v", r.Steps)
	}
	// Without power every 20 ms the windows of the units are all there is.
	s.step = 350e6
	s.lacks = map[string]bool{"gpu_power": true}
	if r = analyze(t, s, s.facts()); r.Steps.Count != 0 || !strings.Contains(r.Steps.Note, "too short for telemetry") {
		t.Errorf("steps of 350 ms in windows of 200 ms: %+v", r.Steps)
	}
}

func TestHalfTheNodesMissing(t *testing.T) {
	s := training(2, 4, 60e9)
	f := s.facts()
	for _, name := range []string{"n0002", "n0003"} {
		f.Nodes = append(f.Nodes, analysis.NodeFacts{Node: name, Missing: true})
	}
	r := analyze(t, s, f)
	missing := 0
	for _, c := range r.Findings {
		if c.Cause == analysis.NodeMissing {
			missing += len(c.Places)
		}
	}
	if missing != 2 || len(r.Data.Missing) != 2 || r.Phases[0].StepNS == nil || len(alarms(r)) != 2 {
		t.Errorf("half the nodes are missing: %d named, data %v, alarms %v", missing, r.Data.Missing, alarms(r))
	}
}

func TestNodeStops(t *testing.T) {
	s := training(3, 4, 90e9)
	s.ends = map[int]int64{1: s.begin + 40e9}
	f := s.facts()
	f.Nodes[1].Ended = ""
	r := analyze(t, s, f)
	if len(r.Findings) == 0 || r.Findings[0].Cause != analysis.NodeMissing || r.Findings[0].Places[0].Node != "n0001" {
		t.Errorf("a node stopped: %+v", r.Findings)
	}
	// While the run goes on, nodes write at their own pace.
	f.Running = true
	for _, x := range analyze(t, s, f).Findings {
		if x.Cause == analysis.NodeMissing {
			t.Errorf("a run that goes on lacks a node: %s", x.Title)
		}
	}
}

func TestUnaligned(t *testing.T) {
	s := training(2, 4, 60e9)
	f := s.facts()
	f.Nodes[1].Aligned, f.Nodes[1].BoundNS = false, 0
	r := analyze(t, s, f)
	if len(r.Data.Unaligned) != 1 || len(alarms(r)) > 0 {
		t.Errorf("unaligned: %v, alarms %v", r.Data.Unaligned, alarms(r))
	}
	// Shares of time need no clocks.
	s.slow, s.extra, s.compute = 5, 0.12, 0.75
	if r = analyze(t, s, f); len(r.Stragglers) != 1 {
		t.Errorf("a straggler on an unaligned node: %+v", r.Stragglers)
	}
}

func TestAllNull(t *testing.T) {
	s := training(1, 4, 60e9)
	s.null = true
	r := analyze(t, s, s.facts())
	if len(alarms(r)) > 0 || r.Overall.Name != string(analysis.Unknown) || len(r.GPUs) != 4 || len(r.GPUs[0].Metrics) != 0 || r.GPUs[0].EnergyJ != nil || r.GPUs[0].IdleShare != nil {
		t.Errorf("all null: alarms %v, overall %+v, first %+v", alarms(r), r.Overall, r.GPUs[0])
	}
	if !says(r, "null") {
		t.Errorf("that all is null is not said: %v", r.Data.Notes)
	}
}

func TestRunning(t *testing.T) {
	s := training(1, 4, 60e9)
	f := s.facts()
	f.Running, f.EndNS, f.LimitNS = true, 0, s.begin+s.length+70e9
	r := analyze(t, s, f)
	if r.Remaining == nil || r.Remaining.StepsUntilLimit == nil || *r.Remaining.StepsUntilLimit < 95 || *r.Remaining.StepsUntilLimit > 105 {
		t.Fatalf("70 s of steps of 700 ms are left: %+v", r.Remaining)
	}
	f.LimitNS = 0
	if r = analyze(t, s, f); r.Remaining == nil || r.Remaining.LimitNS != nil || r.Remaining.StepsUntilLimit != nil || r.Remaining.StepRate < 1.4 {
		t.Errorf("without a limit: %+v", r.Remaining)
	}
	f.Running = false
	if r = analyze(t, s, f); r.Remaining != nil {
		t.Errorf("a run that has ended has time remaining: %+v", r.Remaining)
	}
}

func TestSpareGPUs(t *testing.T) {
	s := training(1, 8, 60e9)
	s.idle = map[int]bool{6: true, 7: true}
	r := analyze(t, s, s.facts())
	for i, g := range r.GPUs {
		if g.Spare != (i >= 6) {
			t.Errorf("GPU %d: spare is %v", i, g.Spare)
		}
	}
	for _, b := range r.Balance {
		if b.GPUs != 6 {
			t.Errorf("%s: %d GPUs are compared, 6 had work", b.Metric, b.GPUs)
		}
	}
	if len(r.Stragglers) > 0 || len(alarms(r)) > 0 {
		t.Errorf("spare GPUs: stragglers %v, alarms %v", r.Stragglers, alarms(r))
	}
}

func TestTablesMissing(t *testing.T) {
	for _, lacks := range []string{"gpu", "gpu_activity", "gpu_power", "rank", "host"} {
		s := training(1, 4, 60e9)
		s.lacks = map[string]bool{lacks: true}
		r := analyze(t, s, s.facts())
		if len(alarms(r)) > 0 || len(r.Phases) == 0 {
			t.Errorf("without %s: alarms %v, %d phases", lacks, alarms(r), len(r.Phases))
		}
	}
}

// GPUs before Hopper have no gpu_activity: power every 20 ms says when they
// work.
func TestWithoutActivity(t *testing.T) {
	s := training(1, 8, 60e9)
	s.lacks = map[string]bool{"gpu_activity": true}
	s.slow, s.extra, s.compute = 5, 0.12, 0.75
	s.step = 733e6 // no multiple of the readings' cadence
	r := analyze(t, s, s.facts())
	if len(r.Stragglers) != 1 || *r.Stragglers[0].Rank != 5 || r.Stragglers[0].Cause != analysis.Imbalance {
		t.Errorf("stragglers by power: %+v, in truth rank 5", r.Stragglers)
	}
	if b := r.Phases[0].Bottleneck; b.Shares[analysis.Compute] < 0.7 || b.Shares[analysis.Compute] > 0.8 || !strings.Contains(b.Basis, "gpu_power") {
		t.Errorf("shares by power: %+v", b)
	}
}

var errDamaged = errors.New("n0000/gpu-3.parquet: damaged")

type damaged struct{ *synthetic }

func (d damaged) Rows(ctx context.Context, t *table.Table, columns []int, fn func(*table.Batch) error) error {
	if t == table.GPU {
		return errDamaged
	}
	return d.synthetic.Rows(ctx, t, columns, fn)
}

func TestUnreadable(t *testing.T) {
	s := training(1, 2, 10e9)
	if _, err := analysis.Analyze(context.Background(), damaged{s}, s.facts()); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "read table gpu:") {
		t.Errorf("a damaged table gives %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := analysis.Analyze(ctx, s, s.facts()); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled analysis gives %v", err)
	}
}
