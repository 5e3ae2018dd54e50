package verify_test

import (
	"context"
	"fmt"
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
	"github.com/gswarm/gswarm/verify"
)

const (
	base = int64(5e14)
	wall = int64(1.7e18)
	tile = 10 * time.Second
)

// madeUp is a run of two nodes and two GPUs each, thirty seconds long.
type madeUp struct {
	dir rundir.Dir
	// skip leaves out a reading of a node's GPU at a tick.
	skip func(node, gpu, tick int) bool
	// twice repeats one.
	twice func(node, gpu, tick int) bool
	// change may do anything to a GPU's row.
	change func(node, gpu, tick int, r table.Row, b *table.Batch)
	// also adds rows to a node's second.
	also func(node, sec int, c *table.Batch)
	// killed nodes end after twenty seconds, without an end mark.
	killed int
	size   int
	// versions are those of the nodes' agents.
	versions []string
}

const seconds = 30

func (m madeUp) write(t testing.TB) string {
	t.Helper()
	m.dir = rundir.Dir(t.TempDir())
	end := time.Unix(1.7e9, 0).UTC()
	run := &rundir.Run{ID: "test", Tile: tile, End: &end, Nodes: []string{"n0", "n1"}, Reference: &rundir.Reference{
		Node: "n0", Anchor: clock.Anchor{Raw: clock.NodeTime(base), Realtime: wall, Width: 100},
	}}
	if err := rundir.WriteRun(m.dir, run); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		m.node(t, i)
	}
	return string(m.dir)
}

func event(at int64, kind string, rank int, detail string) *table.Batch {
	b := table.NewBatch(table.Event, 1)
	r := b.Append()
	r.Read(at, at)
	r.String(table.EventKind, kind)
	r.String(table.EventDetail, detail)
	if rank >= 0 {
		r.Int(table.EventRank, int64(rank))
	}
	return b
}

func (m madeUp) node(t testing.TB, i int) {
	t.Helper()
	name := fmt.Sprintf("n%d", i)
	if err := os.MkdirAll(m.dir.Node(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := rundir.WriteNodeMeta(m.dir, name, &rundir.NodeMeta{Node: name}); err != nil {
		t.Fatal(err)
	}
	s, err := shard.CreateSpool(m.dir.Spool(name, 0), shard.SpoolMeta{Node: name, Tile: tile, Created: clock.NodeTime(base)})
	must(t, err)
	put := func(b *table.Batch) {
		if b.Rows() > 0 {
			must(t, s.Append(b))
		}
	}
	version := "v1.0"
	if m.versions != nil {
		version = m.versions[i]
	}
	put(event(base, "agent_start", -1, fmt.Sprintf(`{"version":%q}`, version)))
	put(event(base+1, "source_start", -1, `{"source":"gpu","interval_ns":100000000,"tables":["gpu"]}`))
	size := max(m.size, 2)
	put(event(base+2, "rank_start", i, fmt.Sprintf(`{"size":%d}`, size)))
	until := seconds
	if m.killed == i {
		until = 20
	}
	for sec := range until {
		m.second(i, sec, put)
		must(t, s.Flush())
		if sec == 14 {
			must(t, s.End(clock.NodeTime(base+int64(sec+1)*1e9), shard.EndTile))
			_, err := shard.Seal(s.Path())
			must(t, err)
			s, err = shard.CreateSpool(m.dir.Spool(name, 1), shard.SpoolMeta{Node: name, Tile: tile, Created: clock.NodeTime(base + int64(sec+1)*1e9)})
			must(t, err)
		}
	}
	end := base + seconds*int64(1e9)
	if m.killed == i {
		must(t, s.Close())
		return
	}
	put(event(end-3, "rank_exit", i, "{}"))
	put(event(end, "agent_end", -1, "{}"))
	must(t, s.End(clock.NodeTime(end), "ranks gone"))
}

func (m madeUp) second(i, sec int, put func(*table.Batch)) {
	at := base + int64(sec)*1e9
	delivered := int64(0)
	gpu, absence := table.NewBatch(table.GPU, 20), table.NewBatch(table.Absence, 0)
	for k := range 10 {
		tick := sec*10 + k
		for g := range 2 {
			delivered++
			if m.skip != nil && m.skip(i, g, tick) {
				delivered--
				continue
			}
			for n := 0; n == 0 || n == 1 && m.twice != nil && m.twice(i, g, tick); n++ {
				b := at + int64(k)*100e6 + int64(g)*1e5
				r := gpu.Append()
				r.Read(b, b+30e3)
				r.Int(table.GPUIndex, int64(g))
				r.String(table.GPUUUID, fmt.Sprintf("GPU-%d-%d", i, g))
				for c := table.GPUUtil; c <= table.GPUPowerNow; c++ {
					r.Int(c, int64(g+c))
				}
				if m.change != nil {
					m.change(i, g, tick, r, gpu)
				}
			}
		}
	}
	if m.also != nil {
		m.also(i, sec, absence)
	}
	put(gpu)
	put(absence)
	br := table.NewBatch(table.ClockBracket, 1)
	rows.AppendBracket(br, clock.Bracket{Raw0: clock.NodeTime(at), Raw1: clock.NodeTime(at + 100), Realtime: wall + at - base, Monotonic: at, Boottime: at})
	put(br)
	if i > 0 {
		ex := table.NewBatch(table.ClockExchange, 8)
		for q := range 8 {
			t1 := at + int64(q)*1e6
			rows.AppendExchange(ex, clock.Exchange{Peer: "n0", Burst: int64(sec), Seq: int32(q), T1: clock.NodeTime(t1), T2: clock.NodeTime(t1 + 20e3), T3: clock.NodeTime(t1 + 25e3), T4: clock.NodeTime(t1 + 45e3)})
		}
		put(ex)
	}
	sam := table.NewBatch(table.Sampler, 2)
	for _, source := range []string{"gpu", "agent"} {
		r := sam.Append()
		r.Window(at, at+1e9-100, at+1e9-100)
		r.String(table.SamSource, source)
		for _, c := range []int{table.SamDue, table.SamDone, table.SamLate, table.SamLateMax, table.SamWall, table.SamCPU} {
			r.Int(c, 1)
		}
		r.Int(table.SamRows, delivered)
		if source == "agent" {
			r.Int(table.SamDroppedRows, 0)
		}
	}
	put(sam)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, dir string) *verify.Report {
	t.Helper()
	r, err := verify.Run(context.Background(), dir, verify.Options{Allow: verify.DefaultAllow})
	must(t, err)
	return r
}

// codes lists the codes of the incomplete findings, each once.
func codes(r *verify.Report) []string {
	var out []string
	for _, f := range r.Findings {
		if f.Incomplete && !slices.Contains(out, string(f.Code)) {
			out = append(out, string(f.Code))
		}
	}
	slices.Sort(out)
	return out
}

func TestWhole(t *testing.T) {
	r := check(t, madeUp{killed: -1}.write(t))
	if !r.Complete || len(r.Findings) != 0 {
		t.Errorf("findings %+v", r.Findings)
	}
	if r.NodesSeen != 2 || r.NodesExpected != 2 || r.RanksSeen != 2 || r.RanksExpected != 2 || len(r.Nodes) != 2 {
		t.Errorf("%+v", r)
	}
	for _, n := range r.Nodes {
		c := n.Tables[0]
		if c.Table != "gpu" || c.Rows != 600 || c.Expected != 600 || c.Keys != 2 || c.Tiles != 3 || c.IntervalNS != 1e8 {
			t.Errorf("%s: %+v", n.Node, c)
		}
	}
}

// TestRows changes what a node recorded and expects the codes that say so.
func TestRows(t *testing.T) {
	hole := func(node, gpu, tick int) bool { return node == 1 && gpu == 0 && tick >= 50 && tick < 60 }
	explain := func(reason, column string, from, to int64) func(int, int, *table.Batch) {
		return func(node, sec int, b *table.Batch) {
			if node != 1 || sec != 6 {
				return
			}
			r := b.Append()
			r.Window(base+from*1e9, base+to*1e9, base+to*1e9)
			r.String(table.AbsTable, "gpu")
			r.String(table.AbsReason, reason)
			r.String(table.AbsKey, "0")
			if column != "" {
				r.String(table.AbsColumn, column)
			}
		}
	}
	null := func(node, gpu, tick int, _ table.Row, b *table.Batch) {
		if node == 1 && gpu == 0 && tick >= 50 && tick < 60 {
			b.Valid(table.GPUTemp)[b.Rows()-1] = false
		}
	}
	for name, c := range map[string]struct {
		run  madeUp
		want []string
	}{
		"gap":                {madeUp{killed: -1, skip: hole}, []string{"gap"}},
		"two ticks":          {madeUp{killed: -1, skip: func(n, g, tick int) bool { return tick == 7 }}, nil},
		"dropped":            {madeUp{killed: -1, skip: hole, also: explain("dropped", "", 5, 6)}, []string{"absent"}},
		"few not sampled":    {madeUp{killed: -1, skip: hole, also: explain("not_sampled", "", 5, 6)}, nil},
		"many not sampled":   {madeUp{killed: -1, skip: func(n, g, tick int) bool { return n == 1 && g == 0 && tick >= 50 && tick < 150 }, also: explain("not_sampled", "", 5, 15)}, []string{"absent"}},
		"no such value":      {madeUp{killed: -1, skip: func(n, g, tick int) bool { return n == 1 && g == 0 && tick >= 50 && tick < 150 }, also: explain("not_supported", "", 5, 15)}, nil},
		"absence elsewhere":  {madeUp{killed: -1, skip: hole, also: explain("dropped", "", 20, 21)}, []string{"gap"}},
		"twice":              {madeUp{killed: -1, twice: hole}, []string{"duplicate"}},
		"null":               {madeUp{killed: -1, change: null}, []string{"null_unexplained"}},
		"null with a reason": {madeUp{killed: -1, change: null, also: explain("source_error", "temp_c", 5, 6)}, nil},
		"null, other reason": {madeUp{killed: -1, change: null, also: explain("source_error", "pstate", 5, 6)}, []string{"null_unexplained"}},
		"rank missing":       {madeUp{killed: -1, size: 3}, []string{"rank_missing"}},
		"killed":             {madeUp{killed: 1}, []string{"absent", "node_killed"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := check(t, c.run.write(t))
			if got := codes(r); !slices.Equal(got, c.want) || r.Complete != (len(c.want) == 0) {
				t.Errorf("got %v, want %v: %+v", got, c.want, r.Findings)
			}
		})
	}
}

func TestGapIsCounted(t *testing.T) {
	r := check(t, madeUp{killed: -1, skip: func(node, gpu, tick int) bool {
		return node == 1 && gpu == 1 && tick >= 90 && tick < 120
	}}.write(t))
	if len(r.Findings) != 1 {
		t.Fatalf("findings %+v", r.Findings)
	}
	f, c := r.Findings[0], r.Nodes[1].Tables[0]
	if f.Count != 30 || f.Node != "n1" || f.Key != "1" || c.Missing != 30 || c.Expected != 600 || c.Rows != 570 {
		t.Errorf("%+v, %+v", f, c)
	}
	if len(c.Lacking) != 2 || c.Lacking[0].Missing+c.Lacking[1].Missing != 30 {
		t.Errorf("tiles %+v", c.Lacking)
	}
}

// TestFiles damages what lies on disk and expects the codes that say so.
func TestFiles(t *testing.T) {
	flip := func(pattern string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := one(t, dir, pattern)
			b, err := os.ReadFile(path)
			must(t, err)
			b[len(b)/3] ^= 1
			must(t, os.WriteFile(path, b, 0o600))
		}
	}
	remove := func(pattern string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { must(t, os.RemoveAll(one(t, dir, pattern))) }
	}
	for name, c := range map[string]struct {
		damage func(*testing.T, string)
		want   []string
	}{
		"timeline file flipped": {flip("timeline/gpu/*.parquet"), []string{"file_changed", "rows_unaccounted"}},
		"timeline file gone":    {remove("timeline/clock_bracket/*.parquet"), []string{"file_missing"}},
		"shard flipped":         {flip("nodes/n1/gpu-0.parquet"), []string{"corrupt_shard"}},
		"shard gone":            {remove("nodes/n1/gpu-0.parquet"), []string{"missing_shard"}},
		"spool cut":             {func(t *testing.T, dir string) { must(t, os.Truncate(one(t, dir, "nodes/n0/spool-1"), 3000)) }, []string{"torn_tail"}},
		"spool gone":            {remove("nodes/n1/spool-1"), []string{"timeline_stale"}},
		"a stranger's file": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "timeline/gpu/part-9.parquet"), nil, 0o600))
		}, []string{"file_unlisted"}},
		"only the timeline left": {remove("nodes"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := madeUp{killed: -1}.write(t)
			check(t, dir)
			c.damage(t, dir)
			r := check(t, dir)
			if got := codes(r); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v: %+v", got, c.want, r.Findings)
			}
		})
	}
}

func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	m, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(m) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	return m[0]
}
