package launcher_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sent are the signals that a job under wrap gets from outside.
var sent = []unix.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE,
	unix.SIGSEGV, unix.SIGSYS, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTERM, unix.SIGXCPU,
	unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGIO, unix.SIGPWR, unix.SIGSTKFLT, unix.SIGWINCH, unix.SIGCONT, rtmin2,
}

// TestForwardsOnce sends every signal in turn to wrap alone, to the process
// group, and to every process of the tree as mpirun and Slurm do.
func TestForwardsOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		send func(c *child, s unix.Signal)
	}{
		{"wrap", func(c *child, s unix.Signal) { unix.Kill(c.pid(), s) }},
		{"group", func(c *child, s unix.Signal) { unix.Kill(-c.pid(), s) }},
		{"tree", func(c *child, s unix.Signal) {
			for _, pid := range append(children(c.pid(), ""), c.pid()) {
				unix.Kill(pid, s)
			}
		}},
		{"tree, wrap first", func(c *child, s unix.Signal) {
			unix.Kill(c.pid(), s)
			for _, pid := range children(c.pid(), "") {
				unix.Kill(pid, s)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := launch(t, true, "log")
			slow := map[unix.Signal]bool{}
			for _, s := range sent {
				begin := time.Now()
				c.send(j, s)
				// wrap waits 20 ms for who walks through a tree.
				slow[s] = time.Since(begin) > 10*time.Millisecond
				j.waitFor(signalName(s))
			}
			j.stdin.Close()
			if o := j.end(); o.status != 3<<8 {
				t.Errorf("ended with %v", o)
			}
			for _, s := range sent {
				if n := j.count(signalName(s)); n != 1 && (n != 2 || !slow[s]) {
					t.Errorf("the job got %s %d times", signalName(s), n)
				}
			}
		})
	}
}

// TestBrokenPipeIsWrapsOwn: a broken connection to the agent is no signal to the
// job, which gets that of its own writes and what is sent to its group.
func TestBrokenPipeIsWrapsOwn(t *testing.T) {
	t.Parallel()
	j := launch(t, true, "log")
	unix.Kill(j.pid(), unix.SIGPIPE)
	unix.Kill(j.pid(), unix.SIGUSR1)
	j.waitFor("SIGUSR1")
	if n := j.count("SIGPIPE"); n != 0 {
		t.Errorf("the job got it %d times", n)
	}
	unix.Kill(-j.pid(), unix.SIGPIPE)
	j.waitFor("SIGPIPE")
	j.stdin.Close()
	if o := j.end(); o.status != 3<<8 || j.count("SIGPIPE") != 1 {
		t.Errorf("ended with %v after %v", o, j.lines())
	}
}

// TestSignalsInQuickSuccession sends many signals without waiting for one.
func TestSignalsInQuickSuccession(t *testing.T) {
	t.Parallel()
	for _, target := range []int{1, -1} {
		t.Run(fmt.Sprint(target), func(t *testing.T) {
			t.Parallel()
			j := launch(t, true, "log")
			for _, s := range sent {
				unix.Kill(target*j.pid(), s)
			}
			for _, s := range sent {
				j.waitFor(signalName(s))
			}
			j.stdin.Close()
			j.end()
			for _, s := range sent {
				if n := j.count(signalName(s)); n != 1 {
					t.Errorf("the job got %s %d times", signalName(s), n)
				}
			}
		})
	}
}

// TestGroupThenWrap: a signal to the group does not hide the next one, of the
// same kind, to wrap alone.
func TestGroupThenWrap(t *testing.T) {
	t.Parallel()
	j := launch(t, true, "log")
	unix.Kill(-j.pid(), unix.SIGUSR1)
	j.waitFor("SIGUSR1")
	time.Sleep(100 * time.Millisecond) // apart, as far as wrap can tell
	unix.Kill(j.pid(), unix.SIGUSR1)
	until(t, "the second SIGUSR1", func() bool { return j.count("SIGUSR1") == 2 })
	j.stdin.Close()
	j.end()
	if n := j.count("SIGUSR1"); n != 2 {
		t.Errorf("the job got it %d times", n)
	}
}

// TestCanaryKilled: without the canary signals to wrap still arrive; those to
// the group may come twice.
func TestCanaryKilled(t *testing.T) {
	t.Parallel()
	j := launch(t, true, "log")
	canaries := children(j.pid(), "gswarm-signals")
	if len(canaries) != 1 {
		t.Fatalf("canaries: %v", canaries)
	}
	unix.Kill(canaries[0], unix.SIGKILL)
	unix.Kill(j.pid(), unix.SIGUSR2)
	j.waitFor("SIGUSR2")
	unix.Kill(-j.pid(), unix.SIGUSR1)
	j.waitFor("SIGUSR1")
	j.stdin.Close()
	if o := j.end(); o.status != 3<<8 || j.count("SIGUSR2") != 1 {
		t.Errorf("ended with %v after %v", o, j.lines())
	}
}

// TestGracePeriod: a job that takes its time over SIGTERM gets it.
func TestGracePeriod(t *testing.T) {
	t.Parallel()
	for _, target := range []int{1, -1} {
		j := launch(t, true, "grace")
		unix.Kill(target*j.pid(), unix.SIGTERM)
		if o := j.end(); o.status != 7<<8 {
			t.Errorf("ended with %v", o)
		}
	}
}

// TestUnhandled: a signal that the job does not handle ends both.
func TestUnhandled(t *testing.T) {
	t.Parallel()
	for _, target := range []int{1, -1} {
		for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGUSR1, rtmin2, unix.SIGVTALRM} {
			dir := tempDir(t)
			c := &child{t: t, log: filepath.Join(dir, "log"), done: make(chan outcome, 1)}
			c.start(wrapped(t, dir, "sh", "-c", "echo ready >"+c.log+"; exec sleep 60"), dir)
			until(t, "the job's exec", func() bool { return len(children(c.pid(), "sleep")) == 1 })
			unix.Kill(target*c.pid(), s)
			if o := c.end(); !o.status.Signaled() || o.status.Signal() != syscall.Signal(s) {
				t.Errorf("%s: %v", signalName(s), o)
			}
		}
	}
}

func TestWrapKilled(t *testing.T) {
	t.Parallel()
	j := launch(t, true, "wait")
	all := children(j.pid(), "")
	if len(all) < 2 {
		t.Fatalf("the children of wrap: %v", all)
	}
	unix.Kill(j.pid(), unix.SIGKILL)
	j.end()
	until(t, "the job's and the canary's end", func() bool {
		for _, pid := range all {
			if state := statusField(pid, "State"); state != "" && !strings.HasPrefix(state, "Z") {
				return false
			}
		}
		return true
	})
}

// TestStops: wrap stops when and as the job stops, and both go on.
func TestStops(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		signal unix.Signal
		target func(wrap, job int) int
	}{
		{"job alone", unix.SIGSTOP, func(_, job int) int { return job }},
		{"job alone, TSTP", unix.SIGTSTP, func(_, job int) int { return job }},
		{"job alone, TTIN", unix.SIGTTIN, func(_, job int) int { return job }},
		{"wrap alone, TSTP", unix.SIGTSTP, func(wrap, _ int) int { return wrap }},
		{"group", unix.SIGSTOP, func(wrap, _ int) int { return -wrap }},
		{"group, TSTP", unix.SIGTSTP, func(wrap, _ int) int { return -wrap }},
		{"group, TTOU", unix.SIGTTOU, func(wrap, _ int) int { return -wrap }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()
			argv := wrapped(t, dir, "sleep", "60")
			pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
				Env: os.Environ(), Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setpgid: true},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Kill(-pid, unix.SIGKILL)
			until(t, "the job", func() bool { return len(children(pid, "sleep")) == 1 })
			job := children(pid, "sleep")[0]
			// While wrap forks the agent's starter, a stop of the group
			// shows to the parent only when it goes on.
			until(t, "the agent", func() bool { return len(glob(dir, "run/nodes/*/meta.yaml")) == 1 })
			for range 2 {
				// After a stop wrap takes a moment to catch this again.
				until(t, "wrap's catching SIGTSTP", func() bool {
					caught, err := strconv.ParseUint(statusField(pid, "SigCgt"), 16, 64)
					return err == nil && caught&(1<<(unix.SIGTSTP-1)) != 0
				})
				unix.Kill(c.target(pid, job), c.signal)
				if ws := waitFor(t, pid, unix.WUNTRACED); !ws.Stopped() || ws.StopSignal() != syscall.Signal(c.signal) {
					t.Fatalf("the parent sees %#x", uint32(ws))
				}
				until(t, "the job's stop", func() bool { return strings.HasPrefix(statusField(job, "State"), "T") })
				unix.Kill(-pid, unix.SIGCONT)
				if ws := waitFor(t, pid, unix.WCONTINUED); !ws.Continued() {
					t.Fatalf("the parent sees %#x", uint32(ws))
				}
				until(t, "the job's going on", func() bool { return strings.HasPrefix(statusField(job, "State"), "S") })
			}
			unix.Kill(pid, unix.SIGTERM)
			if ws := waitFor(t, pid, 0); !ws.Signaled() || ws.Signal() != unix.SIGTERM {
				t.Errorf("ended with %#x", uint32(ws))
			}
		})
	}
}

// waitFor is wait4 with a time limit.
func waitFor(t *testing.T, pid, options int) (ws unix.WaitStatus) {
	t.Helper()
	until(t, "a status of the process", func() bool {
		got, err := unix.Wait4(pid, &ws, options|unix.WNOHANG, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got == pid
	})
	return ws
}

func TestJobStopsItself(t *testing.T) {
	t.Parallel()
	j := launch(t, true, "selfstop")
	until(t, "wrap's stop", func() bool { return strings.HasPrefix(statusField(j.pid(), "State"), "T") })
	unix.Kill(j.pid(), unix.SIGCONT) // wrap alone: it passes it on
	j.waitFor("continued")
	j.stdin.Close()
	if o := j.end(); o.status != 5<<8 {
		t.Errorf("ended with %v", o)
	}
}

// TestTerminal: a session of its own on a pty, its leader a shell that runs the
// job in the foreground.
func TestTerminal(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	log := filepath.Join(dir, "log")
	master, slave := openPTY(t)
	job := strings.Join(wrapped(t, dir, self("tty", log)...), " ")
	shell := exec.Command("bash", "--norc", "--noprofile", "-i")
	shell.Dir = dir
	shell.Env = append(os.Environ(), "PS1=prompt>", "HISTFILE=", "TERM=dumb")
	shell.Stdin, shell.Stdout, shell.Stderr = slave, slave, slave
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	t.Cleanup(func() {
		shell.Process.Kill()
		shell.Wait()
	})
	screen := readAll(master)
	say := func(text string) {
		if _, err := master.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(text string) {
		t.Helper()
		for deadline := time.Now().Add(patience); !strings.Contains(screen(), text); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("no %q on the screen:\n%s", text, screen())
			}
		}
	}
	j := &child{t: t, log: log}

	say(job + "; echo status=$?\n")
	j.waitFor("ready")
	say("\x1a") // Ctrl-Z
	shows("Stopped")
	wraps := children(shell.Process.Pid, "gswarm")
	if len(wraps) != 1 {
		t.Fatalf("the shell's children: %v\n%s", wraps, screen())
	}
	inner := children(wraps[0], "")
	say("jobs; fg; echo status=$?\n")
	until(t, "the job's going on", func() bool {
		for _, pid := range append(inner, wraps[0]) {
			if strings.HasPrefix(statusField(pid, "State"), "T") {
				return false
			}
		}
		return true
	})
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 11, Col: 77}); err != nil {
		t.Fatal(err)
	}
	j.waitFor("SIGWINCH")
	say("\x03") // Ctrl-C, which this job logs and survives
	j.waitFor("SIGINT")
	time.Sleep(afterthought)
	say("\x1c") // Ctrl-\
	j.waitFor("SIGQUIT")
	time.Sleep(afterthought)
	for _, s := range []string{"SIGINT", "SIGQUIT", "SIGWINCH"} {
		if n := j.count(s); n != 1 {
			t.Errorf("the job got %s %d times: %v", s, n, j.lines())
		}
	}
	unix.Kill(wraps[0], unix.SIGKILL)
	shows("status=137")

	// A job that does not handle it ends, and the shell sees it end so.
	say(strings.Join(wrapped(t, filepath.Join(dir, "2"), "sh", "-c", "'echo rea\"\"dy2; exec sleep 60'"), " ") + "\n")
	shows("ready2")
	say("\x03")
	say("echo second=$?\n")
	shows("second=130")
	say("exit\n")
}

func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// readAll reads in the background and returns what there is so far.
func readAll(f *os.File) func() string {
	var text syncBuffer
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			text.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return text.String
}
