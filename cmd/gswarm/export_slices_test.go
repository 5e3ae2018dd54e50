package main

import (
	"slices"
	"testing"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/export"
)

func TestJobSlices(t *testing.T) {
	step, gpu, rank := int64(530e6), 3, 7
	r := &analysis.Result{
		Phases: []analysis.Phase{
			{Span: analysis.Span{BeginNS: 1, EndNS: 9}, Bottleneck: analysis.Bottleneck{Name: "compute"}, StepNS: &step},
			{Span: analysis.Span{BeginNS: 9, EndNS: 12}, Bottleneck: analysis.Bottleneck{Name: "idle"}},
		},
		Steps: analysis.Steps{ListEvery: 2, List: []analysis.Step{{Span: analysis.Span{BeginNS: 1, EndNS: 2}}, {Span: analysis.Span{BeginNS: 5, EndNS: 6}}}},
		Findings: []analysis.Finding{
			{Cause: analysis.Imbalance, Title: "slow", Places: []analysis.Place{{Node: "n1", GPU: &gpu, Rank: &rank}}, Span: analysis.Span{BeginNS: 3, EndNS: 4}},
			{Cause: analysis.CPUStarved, Title: "starved", Places: []analysis.Place{{Node: "n2", Rank: &rank}}, Span: analysis.Span{BeginNS: 3, EndNS: 4}},
			{Cause: analysis.LowUse, Title: "little", Span: analysis.Span{BeginNS: 1, EndNS: 12}},
		},
	}
	want := []export.Slice{
		{Node: export.Job, Track: "phases", Name: "compute, steps of 0.53 s", Begin: 1, End: 9},
		{Node: export.Job, Track: "phases", Name: "idle", Begin: 9, End: 12},
		{Node: export.Job, Track: "steps", Name: "step 1", Begin: 1, End: 2},
		{Node: export.Job, Track: "steps", Name: "step 3", Begin: 5, End: 6},
		{Node: "n1", Group: "GPU 3", Track: "finding 1: imbalance", Name: "slow", Begin: 3, End: 4},
		{Node: "n2", Group: "rank 7", Track: "finding 2: cpu_starved", Name: "starved", Begin: 3, End: 4},
		{Node: export.Job, Track: "finding 3: low_use", Name: "little", Begin: 1, End: 12},
	}
	if got := slices.Collect(jobSlices(r)); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for range jobSlices(r) {
		break // who stops early is asked nothing more
	}
}
