package merge

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/rows"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// The made-up run: node i's raw clock shows i*1e14 where the reference's shows
// base, and does not drift.
const (
	base     = int64(5e14)
	wall     = int64(1.7e18)
	testTile = 10 * time.Second
)

func rawOf(node int, t int64) int64 { return t + int64(node)*1e14 }

type testRun struct {
	nodes, seconds int
	// seal seals all spools but each node's last.
	seal bool
	// tile is the length of a spool, testTile where it is not set.
	tile time.Duration
	// killed is the node whose last spool gets no end mark, -1 for none.
	killed int
	// rows is what a node records in a second; second where it is not set.
	rows func(node, sec int) []*table.Batch
}

func (r testRun) write(t testing.TB) string {
	t.Helper()
	dir := rundir.Dir(t.TempDir())
	if r.tile == 0 {
		r.tile = testTile
	}
	if r.rows == nil {
		r.rows = second
	}
	run := &rundir.Run{ID: "test", Tile: r.tile, Reference: &rundir.Reference{
		Node: "n0", Anchor: clock.Anchor{Raw: clock.NodeTime(base), Realtime: wall, Width: 100},
	}}
	end := time.Unix(1.7e9, 0).UTC()
	run.End = &end
	for i := range r.nodes {
		run.Nodes = append(run.Nodes, fmt.Sprintf("n%d", i))
		r.node(t, dir, i)
	}
	if err := rundir.WriteRun(dir, run); err != nil {
		t.Fatal(err)
	}
	return string(dir)
}

func (r testRun) node(t testing.TB, dir rundir.Dir, i int) {
	t.Helper()
	name := fmt.Sprintf("n%d", i)
	if err := os.MkdirAll(dir.Node(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := rundir.WriteNodeMeta(dir, name, &rundir.NodeMeta{Node: name}); err != nil {
		t.Fatal(err)
	}
	perSpool := int(r.tile / time.Second)
	n, last := 1, (r.seconds+perSpool-1)/perSpool
	for from := 0; from < r.seconds; from += perSpool {
		s, err := shard.CreateSpool(dir.Spool(name, n), shard.SpoolMeta{Node: name, Tile: r.tile, Created: clock.NodeTime(rawOf(i, base+int64(from)*1e9))})
		if err != nil {
			t.Fatal(err)
		}
		to := min(from+perSpool, r.seconds)
		for sec := from; sec < to; sec++ {
			for _, b := range r.rows(i, sec) {
				if err := s.Append(b); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		switch {
		case n == last && i == r.killed:
			err = s.Close()
		case n == last:
			err = s.End(clock.NodeTime(rawOf(i, base+int64(to)*1e9)), "job ended")
		default:
			err = s.End(clock.NodeTime(rawOf(i, base+int64(to)*1e9)), shard.EndTile)
		}
		if err == nil && r.seal && n < last {
			_, err = shard.Seal(s.Path())
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// second is what a node of eight GPUs records in one second.
func second(node, sec int) []*table.Batch {
	rng := rand.New(rand.NewSource(int64(node)<<32 + int64(sec)))
	at := base + int64(sec)*1e9
	gpu := table.NewBatch(table.GPU, 80)
	for g := range 8 { // each GPU has a source of its own: not in order of time
		for tick := range 10 {
			t := rawOf(node, at+int64(tick)*100e6+int64(g)*50e3)
			r := gpu.Append()
			r.Read(t, t+30e3)
			r.Int(table.GPUIndex, int64(g))
			r.String(table.GPUUUID, fmt.Sprintf("GPU-%08d-0000-0000-0000-%012d", node, g))
			r.Int(table.GPUUtil, rng.Int63n(101))
			r.Int(table.GPUMemUsed, 1<<30+rng.Int63n(1<<20)<<12)
			r.Int(table.GPUTemp, 40+rng.Int63n(5))
			r.Int(table.GPUPowerNow, 300e3+rng.Int63n(1e5))
		}
	}
	host := table.NewBatch(table.Host, 1)
	r := host.Append()
	r.Read(rawOf(node, at), rawOf(node, at)+200e3)
	r.Int(table.HostCPUUser, int64(sec)*1e9+rng.Int63n(1e6))
	ex := table.NewBatch(table.ClockExchange, 8)
	if node > 0 {
		for q := range 8 {
			t1 := at + int64(q)*1e6
			rows.AppendExchange(ex, clock.Exchange{
				Peer: "n0", Burst: int64(sec), Seq: int32(q),
				T1: clock.NodeTime(rawOf(node, t1)), T2: clock.NodeTime(t1 + 20e3),
				T3: clock.NodeTime(t1 + 25e3), T4: clock.NodeTime(rawOf(node, t1+45e3)),
			})
		}
	}
	br := table.NewBatch(table.ClockBracket, 1)
	rows.AppendBracket(br, clock.Bracket{
		Raw0: clock.NodeTime(rawOf(node, at)), Raw1: clock.NodeTime(rawOf(node, at) + 100),
		Realtime: wall + at - base, Monotonic: at, Boottime: at,
	})
	ev := table.NewBatch(table.Event, 1)
	if sec%3 == 0 {
		r := ev.Append()
		r.Read(rawOf(node, at), rawOf(node, at))
		r.String(table.EventKind, "test")
	}
	return []*table.Batch{gpu, host, ex, br, ev}
}

// tree maps each file of the timeline to its bytes.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	root := filepath.Join(dir, "timeline")
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		out[p[len(root):]] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameTree(t *testing.T, a, b map[string]string) {
	t.Helper()
	for name, bytes := range a {
		if b[name] != bytes {
			t.Errorf("%s differs: %d and %d bytes", name, len(bytes), len(b[name]))
		}
	}
	if len(a) != len(b) {
		t.Errorf("%d and %d files", len(a), len(b))
	}
}

func timeline(t *testing.T, dir string, src *table.Table) *table.Batch {
	t.Helper()
	dst := table.Timeline(src)
	out := table.NewBatch(dst, 0)
	parts, _ := filepath.Glob(filepath.Join(dir, "timeline", src.Name, "*.parquet"))
	for _, p := range parts {
		if err := shard.ReadParquet(p, dst, func(b *table.Batch) error { out.AppendBatch(b); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestMergeOrdersAndAligns(t *testing.T) {
	dir := testRun{nodes: 3, seconds: 35, seal: true, killed: -1}.write(t)
	s, err := Run(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Incomplete || len(s.Missing) != 0 {
		t.Errorf("missing %v", s.Missing)
	}
	if got, want := s.Rows["gpu"], int64(3*35*80); got != want {
		t.Errorf("%d gpu rows, want %d", got, want)
	}
	b := timeline(t, dir, table.GPU)
	times, nodes, bounds := b.Ints(table.TLTimeNS), b.Strings(table.TLNode), b.Ints(table.TLBound)
	lastTile, lastNode, lastTime := int64(0), "", int64(0)
	count := make(map[int64]int)
	for i := range times {
		tile := floorDiv(times[i], int64(testTile))
		if tile < lastTile || tile == lastTile && nodes[i] < lastNode ||
			tile == lastTile && nodes[i] == lastNode && times[i] < lastTime {
			t.Fatalf("row %d out of order", i)
		}
		lastTile, lastNode, lastTime = tile, nodes[i], times[i]
		// All nodes read at the same instants, so the true time is known.
		truth := wall + (times[i]-wall)/50e3*50e3 + 15e3
		if off := times[i] - truth; off > bounds[i] || -off > bounds[i] {
			t.Fatalf("row %d is off by %d, its bound is %d", i, off, bounds[i])
		}
		if b.Ints(table.TLTime)[i] != times[i]/1000 {
			t.Fatalf("row %d: time %d of time_ns %d", i, b.Ints(table.TLTime)[i], times[i])
		}
		count[times[i]/1e9]++
	}
}

func TestMergeTwiceGivesTheSameBytes(t *testing.T) {
	dir := testRun{nodes: 2, seconds: 25, seal: true, killed: 1}.write(t)
	var trees []map[string]string
	for range 2 {
		if _, err := Run(context.Background(), dir, Options{}); err != nil {
			t.Fatal(err)
		}
		trees = append(trees, tree(t, dir))
	}
	sameTree(t, trees[0], trees[1])
}

func TestMergeOfSpoolsEqualsMergeOfShards(t *testing.T) {
	var trees []map[string]string
	for _, seal := range []bool{true, false} {
		dir := testRun{nodes: 2, seconds: 35, seal: seal, killed: -1}.write(t)
		if _, err := Run(context.Background(), dir, Options{}); err != nil {
			t.Fatal(err)
		}
		trees = append(trees, tree(t, dir))
	}
	sameTree(t, trees[0], trees[1])
}

func TestMergeKilledNode(t *testing.T) {
	dir := testRun{nodes: 2, seconds: 25, seal: true, killed: 1}.write(t)
	s, err := Run(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !s.Incomplete || len(s.Missing) != 1 || s.Missing[0].Code != NodeKilled || s.Missing[0].Node != "n1" {
		t.Errorf("missing %v", s.Missing)
	}
	b := timeline(t, dir, table.Absence)
	at := b.Table.Index("reason")
	if b.Rows() == 0 || b.Strings(at)[0] != "node_lost" || b.Strings(table.TLNode)[0] != "n1" {
		t.Errorf("%d absences, reasons %v", b.Rows(), b.Strings(at))
	}
	for i := range b.Rows() {
		if b.Ints(table.TLBegin)[i] > b.Ints(table.TLTimeNS)[i] {
			t.Errorf("absence %d ends before it begins", i)
		}
	}
}

// TestMergeSecondSampler merges a node with a second sampler, which has no
// clock evidence of its own.
func TestMergeSecondSampler(t *testing.T) {
	dir := testRun{nodes: 2, seconds: 15, seal: true, killed: -1}.write(t)
	d := rundir.Dir(dir)
	part := rundir.PartName("n1", "gpus-4-7")
	if err := os.MkdirAll(d.Node(part), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := shard.CreateSpool(d.Spool(part, 0), shard.SpoolMeta{Node: part})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(second(1, 3)[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.End(clock.NodeTime(rawOf(1, base+4e9)), "job ended"); err != nil {
		t.Fatal(err)
	}
	sum, err := Run(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(sum.Missing) > 0 || !slices.Equal(sum.Nodes, []string{"n0", "n1"}) {
		t.Errorf("nodes %v, missing %v", sum.Nodes, sum.Missing)
	}
	b := timeline(t, dir, table.GPU)
	count := make(map[string]int)
	for i, n := range b.Strings(table.TLNode) {
		count[n]++
		if !b.Valid(table.TLBound)[i] {
			t.Fatalf("row %d of %s is unaligned", i, n)
		}
	}
	if count["n0"] != 15*80 || count["n1"] != 16*80 {
		t.Errorf("rows %v", count)
	}
}

func codes(s Summary) []string {
	var out []string
	for _, m := range s.Missing {
		out = append(out, m.Node+":"+string(m.Code))
	}
	return out
}

func TestMergeDamage(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, d rundir.Dir)
		want   []string
		rows   int64
	}{
		{"node gone", func(t *testing.T, d rundir.Dir) { os.RemoveAll(d.Node("n1")) }, []string{"n1:node_missing"}, 25 * 80},
		{"node empty", func(t *testing.T, d rundir.Dir) {
			os.RemoveAll(d.Node("n1"))
			os.Mkdir(d.Node("n1"), 0o700)
		}, []string{"n1:node_empty"}, 25 * 80},
		{"foreign files", func(t *testing.T, d rundir.Dir) {
			os.WriteFile(d.Join("nodes", "n1", "core.1234"), []byte("x"), 0o600)
			os.WriteFile(d.Join("nodes", "n1", "gpu-9.parquet.tmp"), []byte("x"), 0o600)
		}, nil, 50 * 80},
		{"shard cut", func(t *testing.T, d rundir.Dir) { os.Truncate(d.Join("nodes", "n1", "gpu-1.parquet"), 1000) },
			[]string{"n1:corrupt_shard"}, 40 * 80},
		{"shard gone", func(t *testing.T, d rundir.Dir) { os.Remove(d.Join("nodes", "n1", "gpu-2.parquet")) },
			[]string{"n1:missing_shard"}, 40 * 80},
		{"spool cut", func(t *testing.T, d rundir.Dir) {
			st, _ := os.Stat(d.Spool("n1", 3))
			os.Truncate(d.Spool("n1", 3), st.Size()-300)
		}, []string{"n1:node_killed", "n1:torn_tail"}, -1},
		{"two of one name", func(t *testing.T, d rundir.Dir) {
			if err := os.CopyFS(d.Node("other"), os.DirFS(d.Node("n1"))); err != nil {
				t.Fatal(err)
			}
		}, []string{"other:name_clash"}, 50 * 80},
		{"no run.yaml", func(t *testing.T, d rundir.Dir) { os.Remove(d.RunFile()) }, []string{":run_unreadable"}, 50 * 80},
		{"empty run.yaml", func(t *testing.T, d rundir.Dir) { os.Truncate(d.RunFile(), 0) }, []string{":run_unreadable"}, 50 * 80},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := testRun{nodes: 2, seconds: 25, seal: true, killed: -1}.write(t)
			tc.damage(t, rundir.Dir(dir))
			s, err := Run(context.Background(), dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(codes(s), tc.want) {
				t.Errorf("missing %v, want %v", s.Missing, tc.want)
			}
			if tc.rows >= 0 && s.Rows["gpu"] != tc.rows {
				t.Errorf("%d gpu rows, want %d", s.Rows["gpu"], tc.rows)
			}
		})
	}
}

func TestMergeRefusesARunThatGoesOn(t *testing.T) {
	dir := testRun{nodes: 2, seconds: 15, killed: 1}.write(t)
	f, err := os.OpenFile(rundir.Dir(dir).Spool("n1", 2), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := rundir.LockSpool(f); err != nil {
		t.Fatal(err)
	}
	var running *RunningError
	if _, err := Run(context.Background(), dir, Options{}); !errors.As(err, &running) {
		t.Fatalf("got %v", err)
	}
	s, err := Run(context.Background(), dir, Options{Partial: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"n1:running"}; !slices.Equal(codes(s), want) || !s.Incomplete {
		t.Errorf("missing %v, want %v", s.Missing, want)
	}
}

func TestMergeNothing(t *testing.T) {
	if _, err := Run(context.Background(), t.TempDir(), Options{}); !errors.Is(err, ErrNoData) {
		t.Errorf("got %v", err)
	}
}

func TestMergeCancelledKeepsTheOldTimeline(t *testing.T) {
	dir := testRun{nodes: 1, seconds: 15, killed: -1}.write(t)
	if _, err := Run(context.Background(), dir, Options{}); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, dir, Options{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	sameTree(t, before, tree(t, dir))
	left, _ := filepath.Glob(filepath.Join(dir, ".timeline*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLeftoversOfDeadMerges(t *testing.T) {
	dir := testRun{nodes: 1, seconds: 5, killed: -1}.write(t)
	d := rundir.Dir(dir)
	os.MkdirAll(d.Join(tmpPrefix+"1/gpu"), 0o700)
	os.MkdirAll(d.Join(oldPrefix+"1/gpu"), 0o700)
	unlock, err := lock(d, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.Join("timeline", "gpu")); err != nil {
		t.Errorf("the timeline that was moved away did not come back: %v", err)
	}
	var busy *BusyError
	if _, err := Run(context.Background(), dir, Options{}); !errors.As(err, &busy) {
		t.Errorf("a second merge: %v", err)
	}
	unlock()
	if _, err := Run(context.Background(), dir, Options{}); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(d.Join(".timeline*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func BenchmarkMerge(b *testing.B) {
	dir := testRun{nodes: 4, seconds: 1210, seal: true, killed: -1, tile: 5 * time.Minute}.write(b)
	b.ReportAllocs()
	b.ResetTimer()
	rows := int64(0)
	for range b.N {
		s, err := Run(context.Background(), dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		for _, n := range s.Rows {
			rows += n
		}
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds()/1e6, "Mrows/s")
}
