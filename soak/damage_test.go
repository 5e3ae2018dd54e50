package soak_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/rows"
	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
	"github.com/gswarm/gswarm/verify"
)

// smallRun is a run of one node: a sealed shard of each table and a spool, five
// seconds each.
type smallRun struct {
	dir rundir.Dir
	// truth are the values of the gpu table by time.
	truth map[int64]int64
}

const (
	smallBase = int64(5e14)
	smallWall = int64(1.7e18)
)

func newSmallRun(t *testing.T) *smallRun {
	t.Helper()
	s := &smallRun{dir: rundir.Dir(t.TempDir()), truth: make(map[int64]int64)}
	end := time.Unix(1.7e9, 0).UTC()
	check(t, rundir.WriteRun(s.dir, &rundir.Run{
		ID: "test", Tile: 5 * time.Second, Nodes: []string{"n0"}, End: &end,
		Reference: &rundir.Reference{Node: "n0", Anchor: clock.Anchor{Raw: clock.NodeTime(smallBase), Realtime: smallWall, Width: 100}},
	}))
	check(t, os.MkdirAll(s.dir.Node("n0"), 0o700))
	check(t, rundir.WriteNodeMeta(s.dir, "n0", &rundir.NodeMeta{Node: "n0"}))
	for n := range 2 {
		sp, err := shard.CreateSpool(s.dir.Spool("n0", n), shard.SpoolMeta{Node: "n0", Tile: 5 * time.Second, Created: clock.NodeTime(smallBase + int64(n)*5e9)})
		check(t, err)
		for sec := n * 5; sec < n*5+5; sec++ {
			at := smallBase + int64(sec)*1e9
			if sec == 0 {
				check(t, sp.Append(event(at, "agent_start", `{}`)))
				check(t, sp.Append(event(at, "source_start", `{"source":"gpu","interval_ns":500000000,"tables":["gpu"]}`)))
			}
			b := table.NewBatch(table.GPU, 2)
			for k := range 2 {
				begin := at + int64(k)*500e6
				r := b.Append()
				r.Read(begin, begin+10)
				for c := table.GPUUtil; c <= table.GPUPowerNow; c++ {
					r.Int(c, int64(sec*2+k))
				}
				r.Int(table.GPUIndex, 0)
				r.String(table.GPUUUID, "GPU-0")
				s.truth[begin+5-smallBase+smallWall] = int64(sec*2 + k)
			}
			check(t, sp.Append(b))
			br := table.NewBatch(table.ClockBracket, 1)
			rows.AppendBracket(br, clock.Bracket{Raw0: clock.NodeTime(at - 50), Raw1: clock.NodeTime(at + 50), Realtime: at - smallBase + smallWall, Monotonic: at, Boottime: at})
			check(t, sp.Append(br))
			check(t, sp.Flush())
		}
		if n == 0 {
			check(t, sp.End(clock.NodeTime(smallBase+5e9), shard.EndTile))
			_, err := shard.Seal(sp.Path())
			check(t, err)
			continue
		}
		check(t, sp.Append(event(smallBase+10e9, "agent_end", `{}`)))
		check(t, sp.End(clock.NodeTime(smallBase+10e9), "ranks gone"))
	}
	return s
}

func event(at int64, kind, detail string) *table.Batch {
	b := table.NewBatch(table.Event, 1)
	r := b.Append()
	r.Read(at, at)
	r.String(table.EventKind, kind)
	r.String(table.EventDetail, detail)
	return b
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// judge merges and verifies the run and checks that what the timeline holds is
// true, and that it does not look whole where it is not.
func (s *smallRun) judge(t *testing.T, what string) *verify.Report {
	t.Helper()
	os.RemoveAll(s.dir.Timeline())
	r, err := verify.Run(context.Background(), string(s.dir), verify.Options{Allow: verify.DefaultAllow})
	if errors.Is(err, merge.ErrNoData) {
		return nil
	}
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	n := 0
	files, err := filepath.Glob(filepath.Join(s.dir.Timeline(), "gpu", "*.parquet"))
	check(t, err)
	for _, f := range files {
		tl := table.Timeline(table.GPU)
		err := shard.ReadParquet(f, tl, func(b *table.Batch) error {
			for i, at := range b.Ints(table.TLTimeNS) {
				n++
				want, ok := s.truth[at]
				for _, col := range []string{"util_gpu_pct", "mem_used_bytes", "power_now_mw"} {
					if c := tl.Index(col); !ok || !b.Valid(c)[i] || b.Ints(c)[i] != want {
						t.Fatalf("%s: a row at %d that was never written", what, at)
					}
				}
			}
			return nil
		})
		check(t, err)
	}
	if r.Complete && n != len(s.truth) {
		t.Fatalf("%s: %d of %d rows, and it looks whole", what, n, len(s.truth))
	}
	return r
}

// TestDamage cuts, zeroes and changes a spool and a shard at every place, and
// has the run merged and verified each time.
func TestDamage(t *testing.T) {
	s := newSmallRun(t)
	if r := s.judge(t, "undamaged"); !r.Complete {
		t.Fatalf("undamaged: %+v", r.Findings)
	}
	for _, name := range []string{"spool-1", "gpu-0.parquet"} {
		path := filepath.Join(s.dir.Node("n0"), name)
		raw, err := os.ReadFile(path)
		check(t, err)
		kinds := []struct {
			name  string
			apply func([]byte, int) []byte
		}{
			{"cut to", func(b []byte, i int) []byte { return b[:i] }},
			{"zeroes from", func(b []byte, i int) []byte { clear(b[i:]); return b }},
			{"a bit flipped in", func(b []byte, i int) []byte { b[i] ^= 1 << (i % 8); return b }},
		}
		for _, k := range kinds {
			t.Run(name+" "+k.name, func(t *testing.T) {
				for i := 0; i < len(raw); i += full(211, 1) {
					what := fmt.Sprintf("%s: %s byte %d", name, k.name, i)
					b := k.apply(bytes.Clone(raw), i)
					if bytes.Equal(b, raw) {
						continue // there were zeroes
					}
					check(t, os.WriteFile(path, b, 0o600))
					if r := s.judge(t, what); r != nil && r.Complete {
						t.Fatalf("%s: it looks whole", what)
					}
				}
			})
		}
		check(t, os.WriteFile(path, raw, 0o600))
	}
}

// TestLeftovers is the run directory on a filesystem without fsync or rename
// guarantees after a crash: half-written files beside whole ones, a meta.yaml
// that is empty or gone, a seal that was interrupted.
func TestLeftovers(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(*smallRun)
		whole bool
	}{
		"half-written files": {func(s *smallRun) {
			for _, f := range []string{".meta.yaml.77.tmp", ".gpu-0.parquet.77.tmp", ".timeline.tmp-77/gpu"} {
				path := filepath.Join(s.dir.Node("n0"), f)
				os.MkdirAll(filepath.Dir(path), 0o700)
				os.WriteFile(path, []byte("half"), 0o600)
			}
		}, true},
		"no meta.yaml":    {func(s *smallRun) { os.Remove(s.dir.MetaFile("n0")) }, true},
		"empty meta.yaml": {func(s *smallRun) { os.WriteFile(s.dir.MetaFile("n0"), nil, 0o600) }, true},
		"empty run.yaml":  {func(s *smallRun) { os.WriteFile(s.dir.RunFile(), nil, 0o600) }, false},
		"zeroed run.yaml": {func(s *smallRun) { os.WriteFile(s.dir.RunFile(), make([]byte, 900), 0o600) }, false},
		"empty spool":     {func(s *smallRun) { os.WriteFile(s.dir.Spool("n0", 2), nil, 0o600) }, false},
		"empty shards of a spool that is there": {func(s *smallRun) {
			os.WriteFile(filepath.Join(s.dir.Node("n0"), "gpu-1.parquet"), nil, 0o600)
			os.WriteFile(filepath.Join(s.dir.Node("n0"), "host-1.parquet"), nil, 0o600)
		}, true},
		"a shard that was renamed and never written": {func(s *smallRun) {
			path := filepath.Join(s.dir.Node("n0"), "gpu-0.parquet")
			st, _ := os.Stat(path)
			os.WriteFile(path, make([]byte, st.Size()), 0o600)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSmallRun(t)
			c.leave(s)
			if r := s.judge(t, name); r == nil || r.Complete != c.whole {
				t.Errorf("%+v", r)
			}
		})
	}
}
