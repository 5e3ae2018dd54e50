// Package soak_test holds the fault tests of whole runs: agents and wraps that
// are killed, files that are cut and changed, disks that fill. A short set runs
// with all other tests; make soak runs the full one.
package soak_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/verify"
)

// full returns n in the short set and all in the full one.
func full(short, all int) int {
	if os.Getenv("GSWARM_SOAK") != "" {
		return all
	}
	return short
}

// binary is a gswarm of this tree, in a directory that no other has.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "gswarm-soak")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "gswarm")
	out, err := exec.Command("go", "build", "-o", binary, "../cmd/gswarm").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "building gswarm: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// replay builds the stand-in for the driver, which plays eight recorded GPUs;
// where there is no C compiler the host's tables have to do.
func replay(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("../scripts/demo/replay").Output()
	if err != nil {
		t.Logf("no replayed GPUs: %v", err)
		return nil
	}
	return []string{"--x-nvml", strings.TrimSpace(string(out))}
}

// wrapped is a job under gswarm wrap, in a directory of its own.
type wrapped struct {
	t   *testing.T
	cwd string
	cmd *exec.Cmd
	err strings.Builder
}

func startWrap(t *testing.T, flags []string, job ...string) *wrapped {
	t.Helper()
	w := &wrapped{t: t, cwd: t.TempDir()}
	w.start(flags, job...)
	return w
}

func (w *wrapped) start(flags []string, job ...string) {
	w.t.Helper()
	args := append([]string{"wrap", "-q", "-o", "run", "--tile", "2s"}, flags...)
	w.cmd = exec.Command(binary, append(append(args, "--"), job...)...)
	w.cmd.Dir, w.cmd.Stderr = w.cwd, &w.err
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wrapped) run() string { return filepath.Join(w.cwd, "run") }

// agent returns the process id of the run's agent, 0 where there is none: it is
// the agent that has a spool of the run open. One that is killed before that is
// replaced by its wrap, and nothing is lost.
func (w *wrapped) agent() int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if !strings.HasPrefix(string(line), binary+"\x00agent\x00") || strings.Contains(string(line), "detach") {
			continue
		}
		fds, _ := filepath.Glob(filepath.Join("/proc", e.Name(), "fd", "*"))
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, w.run()+"/nodes/") && strings.HasPrefix(filepath.Base(to), "spool-") {
				return pid
			}
		}
	}
	return 0
}

// gone waits until the run's agent is no more.
func (w *wrapped) gone() {
	w.t.Helper()
	for range 1000 {
		if w.agent() == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.t.Fatal("the agent does not end")
}

func (w *wrapped) verify() (*verify.Report, error) {
	for try := 0; ; try++ {
		r, err := verify.Run(context.Background(), w.run(), verify.Options{Allow: verify.DefaultAllow})
		// A process that is about to be gone still holds its locks.
		var running *merge.RunningError
		if !errors.As(err, &running) || try == 100 {
			return r, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// has reports whether there is a finding of a code.
func has(r *verify.Report, code verify.Code) bool {
	for _, f := range r.Findings {
		if f.Code == code {
			return true
		}
	}
	return false
}

// never are findings that no killed process may cause: rows that were never
// written, written twice or moved.
var never = []verify.Code{
	verify.Duplicate, verify.OutOfOrder, verify.TimeMismatch, verify.BoundImpossible, verify.BoundMissing,
	verify.SchemaType, verify.SchemaUnit, verify.FileChanged, verify.RowCount,
}
