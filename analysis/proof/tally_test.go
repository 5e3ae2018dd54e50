package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/analysis/plant"
)

func at(node string, rank, gpu int) analysis.Place {
	p := analysis.Place{Node: node}
	if rank >= 0 {
		p.Rank = &rank
	}
	if gpu >= 0 {
		p.GPU = &gpu
	}
	return p
}

func TestRightPlace(t *testing.T) {
	one := &plant.Case{Ranks: []int{11}, Nodes: []string{"node02"}}
	node := &plant.Case{Nodes: []string{"node02"}}
	for _, tc := range []struct {
		name   string
		c      *plant.Case
		places []analysis.Place
		want   bool
	}{
		{"the rank", one, []analysis.Place{at("node02", 11, 3)}, true},
		{"its node alone", one, []analysis.Place{at("node02", -1, -1)}, true},
		{"its GPU without a rank", one, []analysis.Place{at("node02", -1, 3)}, true},
		{"another GPU", one, []analysis.Place{at("node02", -1, 4)}, false},
		{"another rank", one, []analysis.Place{at("node02", 12, 4)}, false},
		{"one right, one wrong", one, []analysis.Place{at("node02", 11, 3), at("node01", 0, 0)}, false},
		{"nobody", one, nil, false},
		{"the node", node, []analysis.Place{at("node02", -1, -1)}, true},
		{"another node", node, []analysis.Place{at("node01", -1, -1)}, false},
		{"the whole job", &plant.Case{}, nil, true},
	} {
		if got := rightPlace(tc.c, tc.places); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestOverlaps(t *testing.T) {
	s := func(a, b int64) analysis.Span { return analysis.Span{BeginNS: a, EndNS: b} }
	for _, tc := range []struct {
		a, b analysis.Span
		want bool
	}{
		{s(0, 10), s(0, 10), true}, {s(0, 100), s(95, 105), true}, {s(0, 100), s(96, 106), false}, {s(0, 10), s(20, 30), false}, {s(5, 5), s(0, 10), true},
	} {
		if overlaps(tc.a, tc.b) != tc.want || overlaps(tc.b, tc.a) != tc.want {
			t.Errorf("%v, %v: want %v", tc.a, tc.b, tc.want)
		}
	}
}

// TestTables counts a few verdicts by hand.
func TestTables(t *testing.T) {
	c := func(names ...analysis.Cause) []analysis.Cause { return names }
	half := 0.05
	tl := tally{
		s: &settings{runs: 2, clean: 2, sizes: []float64{0.1}, causes: c(analysis.Imbalance, analysis.Thermal), first: 5},
		verdicts: []verdict{
			{cause: analysis.Imbalance, size: 0.1, longer: 0.1, seed: 5, said: c(analysis.Imbalance), alarms: c(analysis.Imbalance), place: true, span: true, excess: &half},
			{cause: analysis.Imbalance, size: 0.1, seed: 6, said: c(analysis.Thermal, analysis.Imbalance), alarms: c(analysis.Thermal, analysis.Imbalance), place: true},
			{cause: analysis.Thermal, size: 0.1, seed: 5, said: c(analysis.Thermal), alarms: c(analysis.Thermal), place: true, span: true},
			{cause: analysis.Thermal, size: 0.1, seed: 6},
			{seed: 5, said: c(analysis.Imbalance), alarms: c(analysis.Imbalance), variant: "steps"},
			{seed: 6, said: c(analysis.PowerCap)},
		},
	}
	var out bytes.Buffer
	tl.write(&out)
	for _, want := range []string{
		"| `imbalance` | 1/2 | 2/2 | 2/2 | 1/2 | 0.50 | 2/3 | thermal 1 |",
		"| `thermal` | 1/2 | 1/2 | 1/1 | 1/1 | – | 1/2 | nothing 1 |",
		"| all | 2/4 |",
		"1 of 2 raised an alarm: imbalance 1",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
	failed := tl.failures()
	for _, want := range []string{"-show imbalance,0.1,6", "-show thermal,0.1,6", "-show clean,0,5"} {
		if !strings.Contains(failed, want) {
			t.Errorf("no %q in\n%s", want, failed)
		}
	}
	if strings.Count(failed, "-show") != 3 {
		t.Errorf("more than what failed:\n%s", failed)
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"-sizes", "x"}, {"-sizes", "0"}, {"-sizes", "0.1,2"}, {"-causes", "bad_luck"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	s, err := parse([]string{"-sizes", "0.1,0.2", "-causes", "thermal", "-runs", "3"})
	if err != nil || len(s.sizes) != 2 || len(s.causes) != 1 || s.runs != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestRun takes one run of one cause all the way, and shows one.
func TestRun(t *testing.T) {
	s, err := parse([]string{"-runs", "1", "-clean", "1", "-causes", "gpu_fault"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := s.run(&out); err != nil || !strings.Contains(out.String(), "| `gpu_fault` |") || !strings.Contains(out.String(), "of 1 raised an alarm") {
		t.Errorf("%v\n%s", err, out.String())
	}
	s.show = "gpu_fault,0.1,1"
	if err := s.run(&out); err != nil || !strings.Contains(out.String(), "gpu_fault (") {
		t.Errorf("%v\n%s", err, out.String())
	}
	for _, bad := range []string{"gpu_fault", "bad_luck,0.1,1", "gpu_fault,x,1", "gpu_fault,0.1,x"} {
		s.show = bad
		if err := s.run(&out); err == nil {
			t.Errorf("-show %s: no error", bad)
		}
	}
}
