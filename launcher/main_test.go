package launcher_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests here run the real program, built once, and this test binary itself
// as the job: roleVar says which of the jobs in roles it is.
const roleVar = "GSWARM_TEST_ROLE"

// gswarm is the program's path.
var gswarm = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binDir, "gswarm")
	out, err := exec.Command("go", "build", "-o", path, "../cmd/gswarm").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building gswarm: %w\n%s", err, out)
	}
	return path, nil
})

var binDir string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		play(role, os.Args[1:])
	}
	dir, err := os.MkdirTemp("", "gswarm-test")
	if err != nil {
		panic(err)
	}
	binDir = dir
	// Whatever launched the tests, they are not part of its job.
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		for _, p := range []string{"SLURM_", "GSWARM_", "PMI", "OMPI_", "TORCHELASTIC_"} {
			if strings.HasPrefix(name, p) {
				os.Unsetenv(name)
			}
		}
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// patience bounds every wait: nothing takes that long on a machine that is not
// stuck.
const patience = 30 * time.Second

// until polls for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for: %s", patience, what)
		}
	}
}

// program returns gswarm's path.
func program(t *testing.T) string {
	t.Helper()
	path, err := gswarm()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// self returns the command line of this test binary in a role.
func self(role string, args ...string) []string {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{"/usr/bin/env", roleVar + "=" + role, exe}, args...)
}

// wrapped puts gswarm in front of a command.
func wrapped(t *testing.T, dir string, argv ...string) []string {
	t.Helper()
	return append([]string{program(t), "wrap", "-o", filepath.Join(dir, "run"), "--"}, argv...)
}

// outcome is what a parent sees of a process.
type outcome struct {
	status         syscall.WaitStatus
	stdout, stderr string
}

func (o outcome) String() string {
	return fmt.Sprintf("status %#x, stdout %q, stderr %q", uint32(o.status), o.stdout, o.stderr)
}

// finish runs a command to its end.
func finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	cmd.Wait() // the status is looked at
	return outcome{cmd.ProcessState.Sys().(syscall.WaitStatus), stdout.String(), stderr.String()}
}

// compare runs a command bare and wrapped and compares what its parent sees.
// prepare may change both commands alike.
func compare(t *testing.T, prepare func(*exec.Cmd), argv ...string) (bare, under outcome) {
	t.Helper()
	dir := tempDir(t)
	run := func(argv []string) outcome {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = dir
		if prepare != nil {
			prepare(cmd)
		}
		return finish(t, cmd)
	}
	bare, under = run(argv), run(wrapped(t, dir, argv...))
	if under.status != bare.status {
		t.Errorf("bare: %v\nwrapped: %v", bare, under)
	}
	if under.stdout != bare.stdout {
		t.Errorf("stdout:\n%s\nwrapped:\n%s", bare.stdout, under.stdout)
	}
	if rest := ours(t, under.stderr); rest != bare.stderr {
		t.Errorf("stderr:\n%s\nwrapped:\n%s", bare.stderr, under.stderr)
	}
	return bare, under
}

// ours cuts gswarm's own lines off the end of stderr, where they follow the
// job's, whether that ended with a newline or not.
func ours(t *testing.T, stderr string) string {
	t.Helper()
	theirs, added, _ := strings.Cut(stderr, "gswarm: ")
	if added == "" {
		return theirs
	}
	for line := range strings.Lines("gswarm: " + added) {
		if !strings.HasPrefix(line, "gswarm: ") || !strings.HasSuffix(line, "\n") {
			t.Errorf("stderr ends with what is not gswarm's line: %q", line)
		}
	}
	return theirs
}

// child is a process in a group of its own, its stdin held open until end.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin *os.File
	log   string
	done  chan outcome
}

// launch starts a job that writes lines into a file of its own, wrapped or not,
// and waits until it has written "ready".
func launch(t *testing.T, under bool, role string, extra ...string) *child {
	t.Helper()
	dir := tempDir(t)
	c := &child{t: t, log: filepath.Join(dir, "log"), done: make(chan outcome, 1)}
	argv := self(role, append([]string{c.log}, extra...)...)
	if under {
		argv = wrapped(t, dir, argv...)
	}
	c.start(argv, dir)
	return c
}

func (c *child) start(argv []string, dir string) {
	c.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	c.stdin = w
	c.cmd = exec.Command(argv[0], argv[1:]...)
	c.cmd.Dir, c.cmd.Stdin = dir, r
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr bytes.Buffer
	c.cmd.Stderr = &stderr
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		c.stdin.Close()
		syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	})
	go func() {
		c.cmd.Wait() // the status is looked at
		c.done <- outcome{c.cmd.ProcessState.Sys().(syscall.WaitStatus), "", stderr.String()}
	}()
	c.waitFor("ready")
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// lines returns what the job has written so far.
func (c *child) lines() []string {
	b, err := os.ReadFile(c.log)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

func (c *child) count(line string) int {
	n := 0
	for _, l := range c.lines() {
		if l == line {
			n++
		}
	}
	return n
}

func (c *child) waitFor(line string) {
	c.t.Helper()
	until(c.t, "the job's line "+line, func() bool { return c.count(line) > 0 })
}

// end waits for the end.
func (c *child) end() outcome {
	c.t.Helper()
	select {
	case o := <-c.done:
		return o
	case <-time.After(patience):
		c.t.Fatal("the process did not end")
		panic("unreachable")
	}
}

// statusField returns a field of /proc/PID/status.
func statusField(pid int, name string) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if n, v, _ := strings.Cut(line, ":"); n == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// children lists a process's children by name.
func children(pid int, name string) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(b)) {
			p, err := strconv.Atoi(f)
			if err == nil && (name == "" || statusField(p, "Name") == name) {
				pids = append(pids, p)
			}
		}
	}
	return pids
}

// signalName is short for a test's name.
func signalName(s unix.Signal) string {
	if n := unix.SignalName(s); n != "" {
		return n
	}
	return fmt.Sprintf("SIG%d", int(s))
}

// syncBuffer is a buffer that one goroutine fills and another reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// glob lists what matches below dir.
func glob(dir, pattern string) []string {
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		panic(err)
	}
	return found
}

// tempDir is t.TempDir, but waits with its removal for agents that end after
// their wrap, as they may on a loaded machine.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(binDir, "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		until(t, "the last writer in "+dir, func() bool { return os.RemoveAll(dir) == nil })
	})
	return dir
}
