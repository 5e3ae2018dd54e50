package launcher_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/rundir"
)

// agentOf returns the process id of the agent of the run in dir/run, 0 if none.
// The agent has the spool open, wherever it is.
func agentOf(dir string) int {
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, f := range files {
		target, err := os.Readlink(f)
		if err == nil && strings.HasPrefix(target, filepath.Join(dir, "run", "nodes")) && strings.Contains(filepath.Base(target), "spool-") {
			pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
			return pid
		}
	}
	return 0
}

func waitAgent(t *testing.T, dir string, not int) (pid int) {
	t.Helper()
	until(t, "an agent", func() bool {
		pid = agentOf(dir)
		return pid != 0 && pid != not
	})
	return pid
}

// read returns run.yaml of dir/run.
func read(t *testing.T, dir string) *rundir.Run {
	t.Helper()
	r, err := rundir.ReadRun(rundir.Dir(filepath.Join(dir, "run")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOutputClosed: who reads the job's output sees its end when the job, and
// all that it left behind, has closed it: wrap, the canary and the agent hold
// none of the job's descriptors.
func TestOutputClosed(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	hold, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	// The job closes its output, tells so by ready, and stays.
	argv := wrapped(t, dir, "sh", "-c", "exec >&- 3>&-; echo ready >log; read end; exit 0")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout = dir, hold, w
	cmd.ExtraFiles = []*os.File{w}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	hold.Close()
	agent := waitAgent(t, dir, 0)
	until(t, "the job", func() bool { return len(glob(dir, "log")) == 1 })
	for _, pid := range append(children(cmd.Process.Pid, "gswarm-signals"), agent) {
		fds, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
		for _, fd := range fds {
			target, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/" + fd.Name())
			if target == pipeName(r) {
				t.Errorf("process %d (%s) holds the job's output as descriptor %s", pid, statusField(pid, "Name"), fd.Name())
			}
		}
	}
	// The job still runs.
	r.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(r); err != nil {
		t.Errorf("the reader does not see that the job has closed its output: %v", err)
	}
	held.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func pipeName(f *os.File) string {
	name, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	return name
}

// TestLeftBehind: what the job leaves running does not keep wrap, and keeps the
// output open just as without wrap.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, job string
		ends      bool // the output ends with the job
	}{
		{"closed", "sleep 60 <&- >&- 2>&- & echo $!", true},
		{"open", "sleep 60 & echo $!", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			argv := wrapped(t, dir, "sh", "-c", c.job)
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Stdout = w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			r.SetReadDeadline(time.Now().Add(patience))
			line := make([]byte, 100)
			n, err := r.Read(line)
			if err != nil {
				t.Fatal(err)
			}
			left, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Kill(left, unix.SIGKILL)
			if unix.Kill(left, 0) != nil {
				t.Error("what the job left behind is gone")
			}
			if !c.ends {
				unix.Kill(left, unix.SIGKILL)
			}
			if _, err := io.ReadAll(r); err != nil {
				t.Error("the output did not end: ", err)
			}
		})
	}
}

// TestAgentKilled: the job does not notice, another agent takes over and the
// spools of both are there.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	c := &child{t: t, log: filepath.Join(dir, "log"), done: make(chan outcome, 1)}
	c.start(wrapped(t, dir, self("log", c.log)...), dir)
	last := 0
	for range 3 {
		pid := waitAgent(t, dir, last)
		unix.Kill(pid, unix.SIGKILL)
		last = pid
	}
	waitAgent(t, dir, last)
	until(t, "four spools", func() bool { return len(glob(dir, "run/nodes/*/spool-*")) >= 4 })
	unix.Kill(c.pid(), unix.SIGUSR1)
	c.waitFor("SIGUSR1")
	c.stdin.Close()
	if o := c.end(); o.status != 3<<8 {
		t.Errorf("ended with %v", o)
	}
	if lines := c.lines(); len(lines) != 2 {
		t.Errorf("the job got more than was sent: %v", lines)
	}
	if r := read(t, dir); r.End == nil || r.Exit == nil || r.Exit.Code != 3 {
		t.Errorf("run.yaml: %+v", r)
	}
	if nodes := glob(dir, "run/nodes/*"); len(nodes) != 1 {
		t.Errorf("one node became %v", nodes)
	}
}

// TestAgentFails: whatever is wrong with the sampling, the job runs, and one
// line says what was lost.
func TestAgentFails(t *testing.T) {
	t.Parallel()
	blocked := func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "run"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name    string
		prepare func(dir string)
		agent   string // beside the program
	}{
		{name: "no directory", prepare: blocked},
		{name: "agent is no program", agent: "not a program\x00"},
		{name: "agent fails", agent: "#!/bin/sh\necho broken driver >&2\nexit 1\n"},
		{name: "agent says nothing", agent: "#!/bin/sh\nexit 1\n"},
		{name: "agent dies", agent: "#!/bin/sh\nkill -9 $$\n"},
		{name: "another run", prepare: func(dir string) {
			if err := rundir.WriteRun(rundir.Dir(dir)+"/run", &rundir.Run{Identity: "other"}); err != nil {
				os.MkdirAll(filepath.Join(dir, "run"), 0o700)
				if err := rundir.WriteRun(rundir.Dir(dir)+"/run", &rundir.Run{Identity: "other"}); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, strict := range []bool{false, true} {
				dir := tempDir(t)
				bin := program(t)
				if c.agent != "" {
					bin = filepath.Join(dir, "bin", "gswarm")
					os.Mkdir(filepath.Dir(bin), 0o700)
					if err := os.Link(program(t), bin); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(dir, "bin", "gswarm-agent"), []byte(c.agent), 0o700); err != nil {
						t.Fatal(err)
					}
				}
				if c.prepare != nil {
					c.prepare(dir)
				}
				args := []string{"wrap", "--quiet", "-o", "run"}
				if strict {
					args = append(args, "--strict")
				}
				cmd := exec.Command(bin, append(args, "--", "sh", "-c", "echo out; exit 6")...)
				cmd.Dir = dir
				begin := time.Now()
				o := finish(t, cmd)
				if strict {
					// An agent that fails is known only when the job runs.
					if c.agent == "" && (o.status != 1<<8 || o.stdout != "" || !strings.Contains(o.stderr, "--strict")) {
						t.Errorf("--strict: %v", o)
					}
					continue
				}
				if o.status != 6<<8 || o.stdout != "out\n" {
					t.Errorf("the job: %v", o)
				}
				if !strings.HasPrefix(o.stderr, "gswarm: nothing is recorded: ") || strings.Count(o.stderr, "\n") != 1 {
					t.Errorf("what was said: %q", o.stderr)
				}
				if d := time.Since(begin); d > 10*time.Second {
					t.Errorf("it took %s", d)
				}
			}
		})
	}
}

// TestUnwritable needs a user that is not root.
func TestUnwritable(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	bin := program(t)
	argv := []string{bin, "wrap", "--quiet", "--", "sh", "-c", "exit 6"}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	if os.Getuid() == 0 {
		for d := filepath.Dir(bin); d != "/tmp" && d != "/"; d = filepath.Dir(d) {
			os.Chmod(d, 0o755)
		}
		cmd.Dir = "/usr"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	} else if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	o := finish(t, cmd)
	if o.status != 6<<8 || !strings.HasPrefix(o.stderr, "gswarm: nothing is recorded: ") || strings.Count(o.stderr, "\n") != 1 {
		t.Errorf("%v", o)
	}
}

func TestNested(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	bin := program(t)
	cmd := exec.Command(bin, "wrap", "-o", "run", "--", bin, "wrap", "-o", "inner", "--", "sh", "-c", `echo $0 $GSWARM_X_RUN; ps -o comm= -p $PPID; exit 8`)
	cmd.Dir = dir
	o := finish(t, cmd)
	want := "sh " + ":" + filepath.Join(dir, "run") + "\ngswarm\n"
	if o.status != 8<<8 || o.stdout != want || strings.Count(o.stderr, "\n") != 1 {
		t.Errorf("%v", o)
	}
	if found := glob(dir, "inner*"); len(found) != 0 {
		t.Errorf("the inner wrap made %v", found)
	}
}

func TestQuiet(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--quiet"}, ""},
		{nil, "gswarm: 1 node sampled for "},
	} {
		cmd := exec.Command(program(t), append(append([]string{"wrap"}, c.args...), "--", "true")...)
		cmd.Dir = dir
		if o := finish(t, cmd); o.status != 0 || !strings.HasPrefix(o.stderr, c.want) || c.want == "" && o.stderr != "" {
			t.Errorf("%v", o)
		}
	}
}

// TestCommandThatDoesNotStart leaves nothing behind.
func TestCommandThatDoesNotStart(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	cmd := exec.Command(program(t), "wrap", "--", "gswarm-no-such-command")
	cmd.Dir = dir
	if o := finish(t, cmd); o.status != 127<<8 || strings.Count(o.stderr, "\n") != 1 {
		t.Errorf("%v", o)
	}
	if found := glob(dir, "*"); len(found) != 0 {
		t.Errorf("it left %v", found)
	}
}

// TestNobodyReadsStderr: wrap does not wait for a reader of its last line.
func TestNobodyReadsStderr(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	full := bytes.Repeat([]byte{'x'}, 4096)
	fd := int(w.Fd()) // each call makes it blocking
	unix.SetNonblock(fd, true)
	for {
		if _, err := unix.Write(fd, full); err != nil {
			break
		}
	}
	unix.SetNonblock(fd, false)
	argv := wrapped(t, dir, "true")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
