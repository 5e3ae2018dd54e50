package plant

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/rankagent/gpu/nvmltest"
)

// Truth is what the recorded job wrote down of itself. Times are nanoseconds
// of the recorder's wall clock, which is the timeline of Recorded.
type Truth struct {
	Phases []Phase
	// Steps are those of each rank, in order; rank and GPU are the same.
	Steps [8][]Step
}

// Phase is a stretch of the job; testdata/h200x8/README.md says what it did.
type Phase struct {
	Name string
	analysis.Span
}

// Step is one step of one rank: it began, it had computed, it had exchanged its
// results with the others.
type Step struct {
	Phase                  string
	Begin, Computed, EndNS int64
}

// Phase returns the phase called name; it is a fault of the test to ask for
// another.
func (t *Truth) Phase(name string) Phase {
	for _, p := range t.Phases {
		if p.Name == name {
			return p
		}
	}
	panic("the recording has no phase " + name)
}

// In returns the steps of a rank in a phase.
func (t *Truth) In(rank int, phase string) []Step {
	var in []Step
	for _, s := range t.Steps[rank] {
		if s.Phase == phase {
			in = append(in, s)
		}
	}
	return in
}

// testdata returns a path below testdata.
func testdata(elem ...string) (string, error) {
	nvml, err := nvmltest.Sources()
	if err != nil {
		return "", err
	}
	return filepath.Join(append([]string{filepath.Dir(nvml)}, elem...)...), nil
}

// loadTruth reads testdata/h200x8.
func loadTruth() (*Truth, error) {
	t := &Truth{}
	path, err := testdata("h200x8", "phases.txt")
	if err != nil {
		return nil, err
	}
	if err := t.readPhases(path); err != nil {
		return nil, err
	}
	path, err = testdata("h200x8", "steps.gz")
	if err != nil {
		return nil, err
	}
	f, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	packed, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := t.unpackSteps(packed); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

func (t *Truth) readPhases(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		var p Phase
		if _, err := fmt.Sscanf(line, "PHASE %s %d", &p.Name, &p.BeginNS); err != nil {
			return fmt.Errorf("%s: %q is no phase: %w", path, line, err)
		}
		if n := len(t.Phases); n > 0 {
			t.Phases[n-1].EndNS = p.BeginNS
		}
		t.Phases = append(t.Phases, p)
	}
	if len(t.Phases) < 2 {
		return fmt.Errorf("%s names no phase", path)
	}
	t.Phases = t.Phases[:len(t.Phases)-1] // the last is "end"
	return nil
}

// unpackSteps reads what packSteps wrote: for each rank a count and, for each
// step, the number of its phase, and begin, computed and end as the distance
// from the stamp before.
func (t *Truth) unpackSteps(b []byte) error {
	next := func() (v int64) {
		v, n := binary.Varint(b)
		if n <= 0 {
			b = nil
			return -1
		}
		b = b[n:]
		return v
	}
	for rank := range t.Steps {
		last := t.Phases[0].BeginNS
		for range max(0, next()) {
			phase := next()
			if phase < 0 || int(phase) >= len(t.Phases) {
				return errors.New("a step of no phase: the file is damaged")
			}
			s := Step{Phase: t.Phases[phase].Name}
			s.Begin = last + next()
			s.Computed = s.Begin + next()
			s.EndNS = s.Computed + next()
			last = s.EndNS
			t.Steps[rank] = append(t.Steps[rank], s)
		}
	}
	if b == nil || len(b) > 0 {
		return errors.New("not the length that it should have: the file is damaged")
	}
	return nil
}
