package report

import (
	"bytes"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gswarm/gswarm/analysis"
)

// faster is even with steps a fifth shorter and less memory.
func faster() *analysis.Result {
	r := even()
	r.Job.Run, r.Job.EndNS = "gswarm-4712", r.Job.BeginNS+200e9
	r.Steps.MedianNS, r.Steps.P95NS = ptr(int64(425e6)), ptr(int64(440e6))
	for i := range r.GPUs {
		m := r.GPUs[i].Metrics["mem_used_bytes"]
		m.Mean *= 0.8
		r.GPUs[i].Metrics["mem_used_bytes"] = m
	}
	return r
}

func row(t *testing.T, c *Comparison, metric string) ComparedRow {
	t.Helper()
	for _, r := range c.Rows {
		if r.Metric == metric {
			return r
		}
	}
	t.Fatalf("no row %s", metric)
	return ComparedRow{}
}

func TestCompare(t *testing.T) {
	a := job(1)
	a.Steps.P95NS = ptr(int64(560e6))
	c := Compare([]*analysis.Result{a, faster(), a, hostOnly()})
	steps := row(t, c, "step_s")
	if *steps.Values[0] != 0.531 || *steps.Change[1] > -0.19 || *steps.Change[1] < -0.21 || *steps.WithinNoise[1] {
		t.Errorf("step time: %v, %v, within %v", *steps.Values[0], *steps.Change[1], *steps.WithinNoise[1])
	}
	if !*steps.WithinNoise[2] || *steps.Change[2] != 0 || steps.Change[0] != nil || steps.Values[3] != nil || steps.Change[3] != nil {
		t.Errorf("a run held against itself: %+v", steps)
	}
	memory := row(t, c, "mem_used_bytes")
	if *memory.Change[1] > -0.199 || *memory.WithinNoise[1] || *memory.Noise[0] < 17e6 || *memory.Noise[0] > 18e6 {
		t.Errorf("memory: %v ± %v, %v", *memory.Values[0], *memory.Noise[0], *memory.Change[1])
	}
	if s := row(t, c, "straggler_s"); *s.Values[0] != 40 || *s.Values[1] != 0 || s.Change[1] == nil {
		t.Errorf("stragglers: %+v", s)
	}
	if len(c.Causes) != 3 || c.Causes[0].Cause != analysis.Imbalance || *c.Causes[0].Effects[0] != 0.053 || c.Causes[0].Effects[1] != nil {
		t.Errorf("causes: %+v", c.Causes)
	}
	if c.Runs[3].Name != "D" || letters(26) != "AA" || letters(27) != "AB" {
		t.Error("names")
	}
	var b bytes.Buffer
	if err := c.JSON(&b); err != nil || !json.Valid(b.Bytes()) {
		t.Errorf("%v", err)
	}
}

// TestCompareDocumented: docs/report.md names every field of the JSON.
func TestCompareDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/report.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[Comparison](), reflect.TypeFor[ComparedRun](), reflect.TypeFor[ComparedRow](), reflect.TypeFor[ComparedFind]()} {
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name != "" && !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("%s.%s is not described", typ.Name(), name)
			}
		}
	}
}

// TestCompareNoise: a small difference is within the noise, a large one beyond.
func TestCompareNoise(t *testing.T) {
	for _, c := range []struct {
		a, b, na, nb *float64
		change       float64
		within       *bool
	}{
		{ptr(100.0), ptr(103.0), ptr(1.0), ptr(1.0), 0.03, ptr(false)},
		{ptr(100.0), ptr(102.0), ptr(1.0), ptr(1.0), 0.02, ptr(true)},
		{ptr(100.0), ptr(90.0), nil, ptr(1.0), -0.1, nil},
	} {
		change, within := difference(c.a, c.b, c.na, c.nb)
		if *change-c.change > 1e-9 || c.change-*change > 1e-9 || (within == nil) != (c.within == nil) || within != nil && *within != *c.within {
			t.Errorf("%g to %g: %v, %v", *c.a, *c.b, *change, within)
		}
	}
}

func TestCompareText(t *testing.T) {
	for name, runs := range map[string][]*analysis.Result{
		"two": {job(1), faster()}, "five": {job(1), faster(), job(1), hostOnly(), job(128)}, "hostile": {hostile(), hostile()}, "nothing": {{}, {}},
	} {
		c := Compare(runs)
		for _, width := range []int{60, 80, 120} {
			var b bytes.Buffer
			if err := c.Text(&b, TextOptions{Width: width}); err != nil {
				t.Fatal(err)
			}
			for l := range strings.SplitSeq(b.String(), "\n") {
				if utf8.RuneCountInString(l) > width || strings.ContainsRune(l, '\x1b') {
					t.Errorf("%s at %d: %q", name, width, l)
				}
			}
			if width == 80 {
				golden(t, "compare-"+name+".txt", b.Bytes())
			}
		}
	}
}

func TestComparePNG(t *testing.T) {
	dir := t.TempDir()
	cases := [][]*analysis.Result{{job(1), faster()}, {hostOnly(), hostOnly()}, {hostile(), job(1), faster(), job(1), faster(), job(1), faster()}}
	if raceEnabled {
		cases = cases[:1]
	}
	for _, runs := range cases {
		name, err := Compare(runs).PNG(dir)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(f)
		f.Close()
		if err != nil || img.Bounds().Dx() < 600 {
			t.Errorf("%v, %v", img.Bounds(), err)
		}
	}
	if _, err := Compare([]*analysis.Result{job(1), job(1)}).PNG(filepath.Join(dir, "none")); err == nil {
		t.Error("drawn into a directory that is not there")
	}
}
