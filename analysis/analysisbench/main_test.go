package main

import (
	"context"
	"testing"
	"time"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

// TestMadeRun makes a small run, merges it for real and reads it back: every
// node with its own GPUs and ranks, on one timeline, in steps.
func TestMadeRun(t *testing.T) {
	dir := t.TempDir()
	s := settings{out: dir, nodes: 3, made: 2, length: 40 * time.Second}
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
	if _, err := merge.Run(context.Background(), dir, merge.Options{}); err != nil {
		t.Fatal(err)
	}
	tl, err := dataset.Open(rundir.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range tl.Meta.Nodes {
		if b := n.Clock.BoundNS; n.Clock.Method == clock.Unaligned || b == nil || b.Max > 1e6 {
			t.Errorf("%s: clock %+v", n.Node, n.Clock)
		}
	}
	uuids, ranks := map[string]bool{}, map[int64]bool{}
	read := func(tab *table.Table, column string, see func(b *table.Batch, c int)) {
		c := table.Timeline(tab).Index(column)
		if err := tl.Rows(context.Background(), tab, []int{c}, func(b *table.Batch) error { see(b, c); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	read(table.GPUPower, "gpu_uuid", func(b *table.Batch, c int) {
		for _, u := range b.Strings(c) {
			uuids[u] = true
		}
	})
	read(table.Rank, "rank", func(b *table.Batch, c int) {
		for _, r := range b.Ints(c) {
			ranks[r] = true
		}
	})
	if len(uuids) != 24 || len(ranks) != 24 || !ranks[0] || !ranks[23] {
		t.Errorf("%d GPUs, ranks %v", len(uuids), ranks)
	}
	facts, err := tl.Facts(time.Unix(0, wallBegin).Add(time.Hour))
	if err != nil || len(facts.Missing) > 0 || len(facts.Nodes) != 3 || len(facts.Nodes[2].GPUs) != 8 || facts.Running {
		t.Fatalf("facts %+v, %v", facts, err)
	}
	r, err := analysis.Analyze(context.Background(), tl, facts)
	if err != nil {
		t.Fatal(err)
	}
	if r.Job.GPUs != 24 || r.Steps.Count < 10 {
		t.Errorf("%d GPUs, %d steps", r.Job.GPUs, r.Steps.Count)
	}
}
