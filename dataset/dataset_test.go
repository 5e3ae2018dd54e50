package dataset_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const wall = int64(1_700_000_000e9)

// run is a merged run of one node with two GPUs, two tiles of ten seconds.
func run(t *testing.T) rundir.Dir {
	t.Helper()
	d := rundir.Dir(t.TempDir())
	must(t, os.MkdirAll(d.Node("n0"), 0o700))
	must(t, rundir.WriteRun(d, &rundir.Run{
		ID: "x", Nodes: []string{"n0"}, Tile: 10e9,
		Reference: &rundir.Reference{Node: "n0", Anchor: clock.Anchor{Raw: 0, Realtime: wall, Width: 10}},
	}))
	must(t, rundir.WriteNodeMeta(d, "n0", &rundir.NodeMeta{Node: "n0", GPUs: []map[string]any{
		{"gpu": 0, "uuid": "GPU-a", "name": "NVIDIA H100", "memory_bytes": 80 << 30, "memory_bus_bits": 5120, "memory_clock_max_mhz": 2619},
	}}))
	for n := range 2 {
		s, err := shard.CreateSpool(d.Spool("n0", n), shard.SpoolMeta{Node: "n0", Tile: 10e9})
		must(t, err)
		b := table.NewBatch(table.GPU, 0)
		for i := n * 10; i < n*10+10; i++ {
			for g := range 2 {
				r := b.Append()
				r.Read(int64(i)*1e9+int64(g), int64(i)*1e9+int64(g))
				r.Int(table.GPUIndex, int64(g))
				r.String(table.GPUUUID, []string{"GPU-a", "GPU-b"}[g])
				r.Int(table.GPUUtil, int64(i))
			}
		}
		must(t, s.Write(b))
		must(t, s.End(clock.NodeTime(n*10+10)*1e9, []string{shard.EndTile, "job ended"}[n]))
		_, err = shard.Seal(s.Path())
		must(t, err)
	}
	return d
}

func TestTimeline(t *testing.T) {
	ctx := context.Background()
	d := run(t)
	if _, err := dataset.Open(d); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no timeline yet: %v", err)
	}
	_, err := merge.Run(ctx, string(d), merge.Options{})
	must(t, err)
	tl, err := dataset.Open(d)
	must(t, err)
	from, to, ok, err := tl.Span(table.GPU)
	must(t, err)
	if from != wall || to != wall+19e9+999 || !ok || tl.Count(table.GPU) != 40 {
		t.Errorf("span %d to %d, %d rows", from-wall, to-wall, tl.Count(table.GPU))
	}
	form := table.Timeline(table.GPU).Select("util_gpu_pct", table.TimeNS)
	var utils []int64
	must(t, tl.Read(ctx, form, func(b *table.Batch) error {
		utils = append(utils, b.Ints(0)...)
		return nil
	}))
	if len(utils) != 40 || utils[0] != 0 || utils[39] != 19 {
		t.Errorf("utils %v", utils)
	}

	gpu := table.Timeline(table.GPU).Index("gpu")
	n := 0
	must(t, tl.Rows(ctx, table.GPU, []int{table.TLTimeNS, gpu}, func(b *table.Batch) error {
		for r := range b.Rows() {
			want := wall + int64(n/2)*1e9 + int64(n%2)
			if b.Ints(table.TLTimeNS)[r] != want || b.Ints(gpu)[r] != int64(n%2) || !b.Valid(gpu)[r] || b.Valid(table.TLNode)[r] {
				t.Errorf("row %d: time %d, gpu %d", n, b.Ints(table.TLTimeNS)[r]-wall, b.Ints(gpu)[r])
			}
			n++
		}
		return nil
	}))
	if n != 40 {
		t.Errorf("%d rows", n)
	}

	gpus, err := tl.GPUs(ctx)
	must(t, err)
	if len(gpus) != 2 || gpus[0].UUID != "GPU-a" || gpus[0].Name != "NVIDIA H100" || gpus[1].Index != 1 || gpus[1].Name != "" {
		t.Errorf("gpus %+v", gpus)
	}
	// 3.35 TB/s is what NVIDIA says of this GPU.
	if got := gpus[0].PeakBandwidth() / 1e9; got < 3350 || got > 3354 {
		t.Errorf("peak %g GB/s", got)
	}

	stop := errors.New("stop")
	if err := tl.Read(ctx, form, func(*table.Batch) error { return stop }); !errors.Is(err, stop) || strings.Contains(err.Error(), "merge") {
		t.Errorf("the caller's own error became %v", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := tl.Read(canceled, form, func(*table.Batch) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestDamage(t *testing.T) {
	ctx := context.Background()
	d := run(t)
	_, err := merge.Run(ctx, string(d), merge.Options{})
	must(t, err)
	tl, err := dataset.Open(d)
	must(t, err)
	path := filepath.Join(d.Timeline(), "gpu", "part-0000.parquet")
	whole, err := os.ReadFile(path)
	must(t, err)
	read := func() error {
		return tl.Read(ctx, table.Timeline(table.GPU).Select("util_gpu_pct"), func(*table.Batch) error { return nil })
	}
	must(t, read())
	for name, damage := range map[string]func() error{
		"cut":     func() error { return os.WriteFile(path, whole[:len(whole)/2], 0o600) },
		"flipped": func() error { c := append([]byte(nil), whole...); c[40] ^= 1; return os.WriteFile(path, c, 0o600) },
		"empty":   func() error { return os.WriteFile(path, nil, 0o600) },
		"gone":    func() error { return os.Remove(path) },
		"foreign": func() error { return os.WriteFile(path, []byte("PAR1 of another program PAR1"), 0o600) },
	} {
		must(t, damage())
		err := read()
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "gswarm merge makes it again") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
