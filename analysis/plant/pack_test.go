package plant

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

var pack = flag.String("pack", "", "make testdata/h200x8/steps.gz of the recorder's `DIR`, which holds phases.txt and steps_rank<r>.csv.gz")

// TestPack writes the truth's file anew where it was told to, and shows that
// what lies there is read back as it was packed.
func TestPack(t *testing.T) {
	truth, err := loadTruth()
	if *pack != "" {
		truth, err = packFrom(*pack)
	}
	if err != nil {
		t.Fatal(err)
	}
	packed := truth.packSteps()
	again := Truth{Phases: truth.Phases}
	if err := again.unpackSteps(packed); err != nil {
		t.Fatal(err)
	}
	for r := range truth.Steps {
		if !slices.Equal(truth.Steps[r], again.Steps[r]) {
			t.Fatalf("rank %d: steps are not what was packed", r)
		}
	}
	if err := again.unpackSteps(packed[:len(packed)-1]); err == nil {
		t.Error("a file that was cut short is taken for a whole one")
	}
	if *pack == "" {
		return
	}
	var z bytes.Buffer
	w, _ := gzip.NewWriterLevel(&z, gzip.BestCompression)
	if _, err := w.Write(packed); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path, err := testdata("h200x8", "steps.gz")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, z.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (t *Truth) packSteps() []byte {
	var b []byte
	for _, steps := range t.Steps {
		b = binary.AppendVarint(b, int64(len(steps)))
		last := t.Phases[0].BeginNS
		for _, s := range steps {
			phase := slices.IndexFunc(t.Phases, func(p Phase) bool { return p.Name == s.Phase })
			b = binary.AppendVarint(b, int64(phase))
			b = binary.AppendVarint(b, s.Begin-last)
			b = binary.AppendVarint(b, s.Computed-s.Begin)
			b = binary.AppendVarint(b, s.EndNS-s.Computed)
			last = s.EndNS
		}
	}
	return b
}

func packFrom(dir string) (*Truth, error) {
	t := &Truth{}
	if err := t.readPhases(filepath.Join(dir, "phases.txt")); err != nil {
		return nil, err
	}
	for r := range t.Steps {
		f, err := os.Open(filepath.Join(dir, fmt.Sprintf("steps_rank%d.csv.gz", r)))
		if err != nil {
			return nil, err
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, err
		}
		lines, err := csv.NewReader(z).ReadAll()
		if err != nil {
			return nil, err
		}
		for _, l := range lines[1:] {
			var at [3]int64
			for i := range at {
				if at[i], err = strconv.ParseInt(l[2+i], 10, 64); err != nil {
					return nil, err
				}
			}
			t.Steps[r] = append(t.Steps[r], Step{Phase: l[0], Begin: at[0], Computed: at[1], EndNS: at[2]})
		}
	}
	return t, nil
}
