//go:build cgo && linux

package gpu

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/rankagent/gpu/nvmltest"
	"github.com/gswarm/gswarm/table"
)

// library is the one stand-in that this process loads: go-nvml's calls stay
// bound to the first library they meet. Tests of other variants run in a
// process of their own (inChild).
var library = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "gswarm-nvml")
	if err != nil {
		return "", err
	}
	tempDirs = append(tempDirs, dir)
	return nvmltest.Build(dir, nvmltest.Full)
})

var tempDirs []string

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range tempDirs {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

var recording = sync.OnceValues(nvmltest.Load)

// standin returns the stand-in's path, with a script for the next nvmlInit.
func standin(t testing.TB, script ...string) string {
	t.Helper()
	lib, err := library()
	if err != nil {
		t.Fatal(err)
	}
	if err := nvmltest.WriteScript(lib, script...); err != nil {
		t.Fatal(err)
	}
	return lib
}

// open opens the stand-in with a script.
func open(t testing.TB, opts Options, script ...string) *Driver {
	t.Helper()
	opts.LibraryPath = standin(t, script...)
	d, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// source returns the source called name.
func source(t testing.TB, d *Driver, name string) rankagent.Source {
	t.Helper()
	for _, s := range d.Sources() {
		if s.Name() == name {
			return s
		}
	}
	t.Fatalf("no source %q", name)
	return nil
}

// sink is a rankagent.Out that keeps what it is given.
type sink struct {
	mu      sync.Mutex
	batches map[*table.Table]*table.Batch
	missing map[string]rankagent.Reason // table/column/key
	details map[string]string
	events  []string
	skew    clock.NodeTime // added to the clock
}

func newSink() *sink {
	s := &sink{
		batches: map[*table.Table]*table.Batch{},
		missing: map[string]rankagent.Reason{},
		details: map[string]string{},
	}
	return s
}

func (s *sink) Now() clock.NodeTime { return clock.System{}.Now() + s.skew }

func (s *sink) Batch(t *table.Table) *table.Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.batches[t] == nil {
		s.batches[t] = table.NewBatch(t, 64)
	}
	return s.batches[t]
}

func (s *sink) Absent(t *table.Table, column, key string, reason rankagent.Reason, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := t.Name + "/" + column + "/" + key
	s.missing[k], s.details[k] = reason, detail
}

func (s *sink) Present(t *table.Table, column, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.missing, t.Name+"/"+column+"/"+key)
}

func (s *sink) Event(_ clock.NodeTime, kind string, gpu, _ int, detail any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := json.Marshal(detail)
	if err != nil {
		panic(err)
	}
	s.events = append(s.events, fmt.Sprintf("%s %d %s", kind, gpu, b))
}

// reason returns why a column of GPU key is missing, "" where it is not.
func (s *sink) reason(t *table.Table, column int, key string) rankagent.Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := ""
	if column != wholeRow {
		name = t.Columns[column].Name
	}
	return s.missing[t.Name+"/"+name+"/"+key]
}

// kinds returns the kinds of the events so far.
func (s *sink) kinds() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kinds []string
	if b := s.batches[table.Event]; b != nil {
		kinds = append(kinds, b.Strings(table.EventKind)...)
	}
	for _, e := range s.events {
		kind, _, _ := strings.Cut(e, " ")
		kinds = append(kinds, kind)
	}
	return strings.Join(kinds, " ")
}

// read calls Read and fails the test where it does.
func read(t testing.TB, s rankagent.Source, out *sink) {
	t.Helper()
	if err := s.Read(out); err != nil {
		t.Fatalf("%s: %v", s.Name(), err)
	}
}

// now is the raw clock, which the stand-in replays by.
func now() int64 { return int64(clock.System{}.Now()) }

// originNow returns a script line that begins the replay now.
func originNow() (int64, string) {
	at := now()
	return at, fmt.Sprintf("origin %d", at)
}

// sleepUntil sleeps until so long after origin on the raw clock.
func sleepUntil(origin int64, after time.Duration) {
	for {
		left := origin + int64(after) - now()
		if left <= 0 {
			return
		}
		time.Sleep(time.Duration(left))
	}
}

// scaled runs a scenario whose faults begin and end at set times. It is given
// the unit of those times and returns false where the machine was too slow to
// keep to them, to be given a longer one.
func scaled(t *testing.T, scenario func(unit time.Duration) bool) {
	t.Helper()
	for unit := 100 * time.Millisecond; unit <= 3200*time.Millisecond; unit *= 2 {
		if scenario(unit) || t.Failed() {
			return
		}
		t.Logf("too slow for a unit of %v", unit)
	}
	t.Fatal("the machine is too slow for this test")
}

// childMark tells a test that it is the child that inChild started.
const childMark = "GSWARM_X_TEST_CHILD"

// inChild runs the calling test again in a process of its own, and returns
// false, or returns true where this is that process.
func inChild(t *testing.T) bool {
	t.Helper()
	if os.Getenv(childMark) == t.Name() {
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), childMark+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("in a process of its own: %v\n%s", err, out)
	} else if !strings.Contains(string(out), "--- PASS") {
		t.Errorf("the process of its own ran no test:\n%s", out)
	}
	return false
}
