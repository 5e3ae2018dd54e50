package main

import (
	"bytes"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/rows"
	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// clockRun makes a run whose nodes recorded nothing but their clocks: n1 runs 20
// ppm fast, its wall clock is set ahead by an hour on the way; n2 asked nobody.
func clockRun(t *testing.T, lone bool) string {
	t.Helper()
	const base, wall = int64(5e14), int64(1.7e18)
	dir := rundir.Dir(t.TempDir())
	end := time.Unix(1.7e9, 0).UTC()
	run := &rundir.Run{ID: "test", End: &end, Nodes: []string{"n1"}, Reference: &rundir.Reference{
		Node: "(head)", Anchor: clock.Anchor{Raw: clock.NodeTime(base), Realtime: wall, Width: 100},
	}}
	node := func(name string, asks bool) {
		if err := os.MkdirAll(dir.Node(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := rundir.WriteNodeMeta(dir, name, &rundir.NodeMeta{Node: name}); err != nil {
			t.Fatal(err)
		}
		s, err := shard.CreateSpool(dir.Spool(name, 1), shard.SpoolMeta{Node: name, Tile: time.Minute, Created: 1})
		if err != nil {
			t.Fatal(err)
		}
		raw := func(at int64) clock.NodeTime { return clock.NodeTime(7e12 + at + at/50_000) }
		xs, bs := table.NewBatch(table.ClockExchange, 0), table.NewBatch(table.ClockBracket, 0)
		for sec := range int64(60) {
			at := sec * 1e9
			for i := range int32(8) {
				at += 2e6
				x := clock.Exchange{Peer: "(head)", Burst: sec, Seq: i, T1: raw(at), T2: clock.NodeTime(base + at + 12e3), T3: clock.NodeTime(base + at + 15e3), T4: raw(at + 27e3)}
				if asks {
					rows.AppendExchange(xs, x)
				}
			}
			b := clock.Bracket{Raw0: raw(at), Raw1: raw(at + 200), Realtime: wall + at, Monotonic: 1e12 + at, Boottime: 1e12 + at}
			if sec >= 30 {
				b.Realtime += 3600e9
			}
			rows.AppendBracket(bs, b)
		}
		for _, b := range []*table.Batch{xs, bs} {
			if b.Rows() == 0 {
				continue
			}
			if err := s.Append(b); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.End(raw(60e9), "job ended"); err != nil {
			t.Fatal(err)
		}
	}
	node("n1", true)
	if lone {
		node("n2", false)
	}
	if err := rundir.WriteRun(dir, run); err != nil {
		t.Fatal(err)
	}
	return string(dir)
}

func TestClocks(t *testing.T) {
	a, stdout, stderr := testApp()
	picture := filepath.Join(t.TempDir(), "c.png")
	if code := a.run([]string{"clocks", clockRun(t, false), "--png", picture}); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, want := range []string{"reference: (head)", "exchange", "investigate", "(head)", "step: n1: the wall clock was set by 3600 s"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	b, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil || img.Bounds().Dx() < 500 {
		t.Errorf("%v, %v", img.Bounds(), err)
	}
}

func TestClocksJSON(t *testing.T) {
	a, stdout, stderr := testApp()
	if code := a.run([]string{"clocks", clockRun(t, true), "--json"}); code != exitIncomplete || !strings.Contains(stderr.String(), "not tied to the reference: n2") {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var c merge.Clocks
	if err := json.Unmarshal(stdout.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	n := c.Nodes[0]
	if len(c.Nodes) != 2 || n.Method != clock.ByExchange || n.DriftPPM == nil || *n.DriftPPM < 19.9 || *n.DriftPPM > 20.1 || n.BoundNS.Median > 20_000 || n.ExchangesUsed != 480 {
		t.Errorf("%s", stdout)
	}
	if n := c.Nodes[1]; n.Method != clock.Unaligned || n.Fallback != clock.FallbackWall {
		t.Errorf("%+v", n)
	}
}

func TestClocksOfNothing(t *testing.T) {
	dir := t.TempDir()
	if err := rundir.WriteRun(rundir.Dir(dir), &rundir.Run{ID: "test"}); err != nil {
		t.Fatal(err)
	}
	a, _, stderr := testApp()
	if code := a.run([]string{"clocks", dir}); code != exitError || !strings.Contains(stderr.String(), "no node left a row") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestNanos(t *testing.T) {
	for ns, want := range map[int64]string{0: "0 ns", 999: "999 ns", 1500: "1.5 us", -2_340_000: "-2.34 ms", 3e9: "3 s"} {
		if got := nanos(ns); got != want {
			t.Errorf("%d: %q, want %q", ns, got, want)
		}
	}
}
