package dataset_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

// merged is run with its timeline, and more in its YAML files.
func merged(t *testing.T, change func(*rundir.Run, *rundir.NodeMeta)) *dataset.Timeline {
	t.Helper()
	d := run(t)
	r, err := rundir.ReadRun(d)
	must(t, err)
	m, err := rundir.ReadNodeMeta(d, "n0")
	must(t, err)
	change(r, m)
	must(t, rundir.WriteRun(d, r))
	must(t, rundir.WriteNodeMeta(d, "n0", m))
	_, err = merge.Run(context.Background(), string(d), merge.Options{})
	must(t, err)
	tl, err := dataset.Open(d)
	must(t, err)
	return tl
}

func TestFacts(t *testing.T) {
	t.Parallel()
	begin, end := time.Unix(0, wall), time.Unix(0, wall+20e9)
	tl := merged(t, func(r *rundir.Run, m *rundir.NodeMeta) {
		r.Command, r.Begin, r.End, r.Interval = []string{"train", "--x"}, begin, &end, 100*time.Millisecond
		r.Nodes = []string{"n0", "n1"}
		r.Scheduler = rundir.Scheduler{Kind: "slurm", JobID: "13", ArrayJob: "12", Task: "1", Step: "0", EndTime: wall/1e9 + 3600}
		r.Exit = &rundir.Exit{Signal: "SIGTERM"}
		m.Facts = map[string]any{
			"cpu": map[string]any{"threads": 64}, "memory_bytes": 1 << 38,
			"cgroup": map[string]any{"cpus": "0-3,8,10-11", "memory_bytes": 1 << 36},
		}
		m.GPUs = []map[string]any{{"gpu": 0, "uuid": "GPU-a", "name": "NVIDIA H100", "memory_bytes": 80 << 30, "power_limit_mw": 700000, "numa_node": 1}, {"gpu": 1, "uuid": "GPU-b"}}
	})
	have, err := tl.Facts(end.Add(time.Hour))
	must(t, err)
	if len(have.Missing) != 1 || !strings.Contains(have.Missing[0], "n1") {
		t.Errorf("missing: %q", have.Missing)
	}
	have.Missing, have.Run = nil, ""
	want := analysis.Facts{
		Command: []string{"train", "--x"}, JobID: "12_1.0", BeginNS: wall, EndNS: wall + 20e9, LimitNS: wall + 3600e9, TickNS: 1e8, Exit: "ended by SIGTERM",
		Nodes: []analysis.NodeFacts{
			{Node: "n0", Aligned: true, Ended: "job ended", CPUs: 7, MemoryBytes: 1 << 36, BoundNS: have.Nodes[0].BoundNS, GPUs: []analysis.GPUFacts{
				{GPU: 0, UUID: "GPU-a", Name: "NVIDIA H100", MemoryBytes: 80 << 30, PowerLimitMW: 700000, NUMA: 1},
				{GPU: 1, UUID: "GPU-b", NUMA: -1},
			}},
			{Node: "n1", Missing: true},
		},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

// TestDamagedFacts: the tables are still good for an answer.
func TestDamagedFacts(t *testing.T) {
	t.Parallel()
	tl := merged(t, func(*rundir.Run, *rundir.NodeMeta) {})
	must(t, os.WriteFile(tl.Dir.RunFile(), []byte("format: ["), 0o600))
	must(t, os.Remove(tl.Dir.MetaFile("n0")))
	f, err := tl.Facts(time.Unix(0, wall))
	must(t, err)
	if !slices.ContainsFunc(f.Missing, func(s string) bool { return strings.Contains(s, "run.yaml is damaged") }) ||
		!slices.ContainsFunc(f.Missing, func(s string) bool { return strings.Contains(s, "n0: reading meta.yaml") }) {
		t.Errorf("missing: %q", f.Missing)
	}
	if len(f.Nodes) != 1 || f.Nodes[0].Missing {
		t.Errorf("nodes: %+v", f.Nodes)
	}
	must(t, os.WriteFile(tl.Dir.RunFile(), []byte("format: 99\n"), 0o600))
	var newer *rundir.NewerError
	if _, err := tl.Facts(time.Unix(0, wall)); !errors.As(err, &newer) {
		t.Errorf("of a newer format: %v", err)
	}
}

func TestSource(t *testing.T) {
	t.Parallel()
	tl := merged(t, func(*rundir.Run, *rundir.NodeMeta) {})
	form := table.Timeline(table.GPU)
	util, temp := form.Index("util_gpu_pct"), form.Index("temp_c")
	rows, sum := 0, int64(0)
	must(t, tl.Rows(context.Background(), table.GPU, []int{table.TLTimeNS, util}, func(b *table.Batch) error {
		for r := range b.Rows() {
			rows++
			sum += b.Ints(util)[r]
			if !b.Valid(util)[r] || b.Valid(temp)[r] || b.Valid(table.TLNode)[r] || b.Ints(table.TLTimeNS)[r] < wall {
				t.Fatalf("row %d", rows)
			}
		}
		return nil
	}))
	if rows != 40 || sum != 2*190 {
		t.Errorf("%d rows, utils sum up to %d", rows, sum)
	}
}
