package merge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// bigRun has one node whose gpu table has row groups that are copied.
func bigRun(t *testing.T, mutate func(*table.Batch)) (string, *table.Batch) {
	t.Helper()
	d := rundir.Dir(t.TempDir())
	if err := os.MkdirAll(d.Node("n0"), 0o700); err != nil {
		t.Fatal(err)
	}
	all := table.NewBatch(table.GPU, 0)
	set, _ := json.Marshal(shard.Set{
		SpoolMeta: shard.SpoolMeta{FormatVersion: table.Version, Node: "n0"}, Rows: map[string]int64{"gpu": 12000},
		End: &shard.End{T: clock.NodeTime(base + 400e9), Reason: "job ended"},
	})
	w, err := shard.CreateParquet(d.Join("nodes", "n0", "gpu-1.parquet"), table.GPU, map[string]string{"gswarm.set": string(set)})
	if err != nil {
		t.Fatal(err)
	}
	for k := range 2 {
		b := table.NewBatch(table.GPU, 6000)
		for sec := range 75 {
			b.AppendBatch(second(0, k*75+sec)[0])
		}
		b.SortByTime(table.ColT, table.GPUIndex)
		if mutate != nil {
			mutate(b)
		}
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := w.Cut(); err != nil {
			t.Fatal(err)
		}
		all.AppendBatch(b)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := rundir.WriteRun(d, &rundir.Run{ID: "test", Tile: testTile, Reference: &rundir.Reference{
		Node: "n0", Anchor: clock.Anchor{Raw: clock.NodeTime(base), Realtime: wall, Width: 100},
	}}); err != nil {
		t.Fatal(err)
	}
	return string(d), all
}

func gpuPart(dir string) string { return filepath.Join(dir, "timeline", "gpu", "part-0000.parquet") }

// TestCopied compares a timeline of copied row groups with the shard, column by
// column, and looks at the footer.
func TestCopied(t *testing.T) {
	dir, want := bigRun(t, nil)
	p, err := DryRun(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(p.Tables, func(t TablePlan) bool { return t.Table == "gpu" }); p.Tables[i].Copied != 12000 || p.Tables[i].Groups != 2 {
		t.Errorf("the plan for gpu is %+v", p.Tables[i])
	}
	if _, err := os.Stat(filepath.Join(dir, "timeline")); err == nil {
		t.Error("a dry run wrote a timeline")
	}
	if _, err := Run(context.Background(), dir, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := shard.VerifyParquet(gpuPart(dir)); err != nil {
		t.Error(err)
	}
	got := timeline(t, dir, table.GPU)
	if got.Rows() != want.Rows() {
		t.Fatalf("%d rows, want %d", got.Rows(), want.Rows())
	}
	for i := range want.Rows() {
		if ns := want.Ints(table.ColT)[i] - base + wall; got.Ints(table.TLTimeNS)[i] != ns || got.Ints(table.TLTime)[i] != ns/1000 {
			t.Fatalf("row %d lies at %d, want %d", i, got.Ints(table.TLTimeNS)[i], ns)
		}
	}
	for i := table.ColBegin; i < len(want.Table.Columns); i++ {
		o := i - table.ColBegin + table.TLBegin
		if !slices.Equal(want.Ints(i), got.Ints(o)) || !slices.Equal(want.Strings(i), got.Strings(o)) || !slices.Equal(want.Valid(i), got.Valid(o)) {
			t.Errorf("column %s differs", want.Table.Columns[i].Name)
		}
	}
	in, err := shard.ReadInfo(gpuPart(dir))
	if err != nil || in.RowGroups != 2 || in.TMin != got.Ints(table.TLTime)[0] || in.TMax != got.Ints(table.TLTime)[got.Rows()-1] {
		t.Errorf("footer %+v, %v", in, err)
	}
}

// TestOutOfOrder merges a shard whose rows an earlier gswarm left in the order
// of their sources.
func TestOutOfOrder(t *testing.T) {
	dir, want := bigRun(t, func(b *table.Batch) {
		// As each GPU's source wrote its own rows.
		b.SortByTime(table.GPUIndex, table.ColT)
	})
	for _, sorted := range []bool{false, true} {
		if _, err := Run(context.Background(), dir, Options{Sort: sorted}); err != nil {
			t.Fatal(err)
		}
		got := timeline(t, dir, table.GPU)
		if got.Rows() != want.Rows() || !slices.IsSorted(got.Ints(table.TLTimeNS)) {
			t.Errorf("sorted %v: %d rows, in order: %v", sorted, got.Rows(), slices.IsSorted(got.Ints(table.TLTimeNS)))
		}
	}
}

// TestColumnOfALaterVersion copies a shard that lacks a column and has one
// more.
func TestColumnOfALaterVersion(t *testing.T) {
	dir, _ := bigRun(t, nil)
	d := rundir.Dir(dir)
	other := *table.GPU
	other.Columns = slices.Clone(other.Columns)
	other.Columns[table.GPUPState] = table.Column{Name: "fan_rpm", Type: table.Int32}
	b := table.NewBatch(&other, 0)
	for sec := range 75 {
		b.AppendBatch(second(0, sec)[0])
	}
	b.SortByTime(table.ColT, table.GPUIndex)
	w, err := shard.CreateParquet(d.Join("nodes", "n0", "gpu-1.parquet"), &other, map[string]string{"gswarm.set": `{"format_version":1,"node":"n0","rows":{"gpu":6000},"end":{"reason":"x"}}`})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Run(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Missing) > 0 || len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "fan_rpm") {
		t.Errorf("missing %v, notes %v", s.Missing, s.Notes)
	}
	got := timeline(t, dir, table.GPU)
	if got.Rows() != 6000 || slices.Contains(got.Valid(got.Table.Index("pstate")), true) {
		t.Errorf("%d rows; a column that the shard lacks has values", got.Rows())
	}
}

// TestShardChangesWhileMerging damages, replaces and removes a shard between
// the plan and the copy: what cannot be had is named, and nothing of it is in
// the timeline.
func TestShardChangesWhileMerging(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"removed": os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 5000) },
		"replaced": func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[2000] ^= 0x10
			return os.WriteFile(path, b, 0o600)
		},
	} {
		for _, sorted := range []bool{false, true} {
			t.Run(fmt.Sprint(name, sorted), func(t *testing.T) {
				dir, _ := bigRun(t, nil)
				m, err := prepare(rundir.Dir(dir), Options{Sort: sorted})
				if err != nil {
					t.Fatal(err)
				}
				if err := change(rundir.Dir(dir).Join("nodes", "n0", "gpu-1.parquet")); err != nil {
					t.Fatal(err)
				}
				s, err := m.build(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if !s.Incomplete || len(s.Missing) == 0 || s.Rows["gpu"] != 0 {
					t.Errorf("%+v", s)
				}
				if b := timeline(t, dir, table.GPU); b.Rows() != 0 {
					t.Errorf("%d rows", b.Rows())
				}
			})
		}
	}
}

// TestTimelineOfALaterVersion keeps what a later gswarm made.
func TestTimelineOfALaterVersion(t *testing.T) {
	dir, _ := bigRun(t, nil)
	path := filepath.Join(dir, "timeline", metaFile)
	os.MkdirAll(filepath.Dir(path), 0o700)
	os.WriteFile(path, []byte("format: 99\n"), 0o600)
	var newer *shard.NewerError
	if _, err := Run(context.Background(), dir, Options{}); !errors.As(err, &newer) {
		t.Fatalf("got %v", err)
	}
	// One that is damaged, or older, is replaced.
	os.WriteFile(path, []byte("format: ["), 0o600)
	if _, err := Run(context.Background(), dir, Options{}); err != nil {
		t.Fatal(err)
	}
}

// TestShardOfALaterVersion names it and merges the rest.
func TestShardOfALaterVersion(t *testing.T) {
	dir := testRun{nodes: 1, seconds: 25, seal: true, killed: -1}.write(t)
	w, err := shard.CreateParquet(rundir.Dir(dir).Join("nodes", "n0", "gpu-1.parquet"), table.GPU, map[string]string{"gswarm.format_version": "99"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Run(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(codes(s), []string{"n0:newer_version"}) || s.Rows["gpu"] != 15*80 {
		t.Errorf("missing %v, rows %v", s.Missing, s.Rows)
	}
}

// TestNoClockModel merges a node without exchanges: its rows are kept, without
// a bound.
func TestNoClockModel(t *testing.T) {
	dir := testRun{nodes: 2, seconds: 15, seal: true, killed: -1}.write(t)
	for n := 1; n <= 2; n++ {
		os.Remove(rundir.Dir(dir).Join("nodes", "n1", fmt.Sprintf("clock_exchange-%d.parquet", n)))
	}
	os.Remove(rundir.Dir(dir).Spool("n1", 2))
	s, err := Run(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(codes(s), "n1:no_clock") {
		t.Errorf("missing %v", s.Missing)
	}
	b := timeline(t, dir, table.GPU)
	for i, n := range b.Strings(table.TLNode) {
		if b.Valid(table.TLBound)[i] != (n == "n0") {
			t.Fatalf("row %d of %s has a bound: %v", i, n, b.Valid(table.TLBound)[i])
		}
	}
}

// TestFullDisk merges onto a filesystem that is too small: an error that says
// so, nothing left, and the timeline of before still there.
func TestFullDisk(t *testing.T) {
	dir, _ := bigRun(t, nil)
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting needs root: %v", err)
	}
	defer func() { _ = unix.Unmount(small, unix.MNT_DETACH) }()
	run := filepath.Join(small, "run")
	if err := os.CopyFS(run, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(run, "timeline", "old")
	os.MkdirAll(old, 0o700)
	filler, err := os.Create(filepath.Join(small, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	st, err := filler.Stat()
	if err != nil {
		t.Fatal(err)
	}
	filler.Close()
	const room = 64 << 10
	if err := os.Truncate(filler.Name(), st.Size()-room); err != nil {
		t.Fatal(err)
	}
	for _, opts := range []Options{{}, {Sort: true}, {Tasks: 2}} {
		if _, err := Run(context.Background(), run, opts); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%+v: got %v", opts, err)
		}
		if _, err := os.Stat(old); err != nil {
			t.Error("the old timeline is gone")
		}
	}
}
