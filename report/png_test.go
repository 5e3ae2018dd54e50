package report

import (
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gswarm/gswarm/analysis"
)

// TestPNG draws every kind of run and looks whether there is a picture, of a
// size that fits a page.
func TestPNG(t *testing.T) {
	all := []string{PictureActivity, PictureMemory, PictureBalance, PictureClimate}
	// No time at all; one GPU; more nodes than have a panel.
	none := even()
	none.Job.EndNS = none.Job.BeginNS
	none.Phases = nil
	one := job(1)
	one.GPUs = one.GPUs[:1]
	cases := map[string]*analysis.Result{
		"slow-rank": job(1), "host-only": hostOnly(), "empty": {}, "hostile": hostile(), "no time": none, "one GPU": one, "many nodes": job(37),
	}
	if raceEnabled { // drawing takes ten times as long, and one goroutine draws
		cases = map[string]*analysis.Result{"one GPU": one, "host-only": hostOnly()}
	}
	for name, r := range cases {
		want := all
		switch name {
		case "host-only", "empty":
			want = nil
		}
		dir := t.TempDir()
		names, err := PNG(dir, r, storySeries(r, 40))
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("%s: %v, %v", name, names, err)
		}
		for _, file := range names {
			f, err := os.Open(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			img, err := png.Decode(f)
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
			if b := img.Bounds(); b.Dx() < 400 || b.Dx() > 3400 || b.Dy() < 250 || b.Dy() > 2600 {
				t.Errorf("%s: %s is %v", name, file, b)
			}
		}
	}
	if _, err := PNG(filepath.Join(t.TempDir(), "none"), job(1), storySeries(job(1), 100)); err == nil {
		t.Error("drawn into a directory that is not there")
	}
}

func TestGridShape(t *testing.T) {
	for n, want := range map[int][2]int{1: {1, 1}, 2: {1, 2}, 3: {1, 3}, 4: {2, 2}, 6: {2, 3}, 7: {2, 4}, 8: {2, 4}, 9: {3, 3}, 16: {4, 4}, 32: {5, 7}, 36: {6, 6}} {
		if rows, cols := gridShape(n); [2]int{rows, cols} != want {
			t.Errorf("%d: %dx%d, want %v", n, rows, cols, want)
		}
	}
}

func TestTogether(t *testing.T) {
	all := together([]analysis.Stat{{Mean: 1, SD: 0, Min: 1, Max: 1, N: 1}, {Mean: 4, SD: 1, Min: 3, Max: 5, N: 2}})
	if all.Mean != 3 || all.Min != 1 || all.Max != 5 || all.N != 3 || all.SD*all.SD < 2.66 || all.SD*all.SD > 2.67 {
		t.Errorf("%+v", all)
	}
}
