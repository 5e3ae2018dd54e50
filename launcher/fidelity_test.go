package launcher_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// deadly are the signals by which a job can end.
var deadly = []unix.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE,
	unix.SIGSEGV, unix.SIGSYS, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM, unix.SIGTERM, unix.SIGXCPU,
	unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGKILL, unix.SIGPROF, unix.SIGIO, unix.SIGPWR, unix.SIGSTKFLT, rtmin2,
}

// rtmin2 is SIGRTMIN+2 as the C library counts.
const rtmin2 = unix.Signal(36)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	step := 1
	if testing.Short() {
		step = 15
	}
	dir := tempDir(t)
	for code := 0; code < 256; code += step {
		argv := wrapped(t, filepath.Join(dir, fmt.Sprint(code)), "sh", "-c", fmt.Sprintf("exit %d", code))
		o := finish(t, exec.Command(argv[0], argv[1:]...))
		if !o.status.Exited() || o.status.ExitStatus() != code {
			t.Errorf("exit %d: %v", code, o)
		}
	}
}

func TestDiesBySignal(t *testing.T) {
	t.Parallel()
	for _, s := range deadly {
		t.Run(signalName(s), func(t *testing.T) {
			t.Parallel()
			bare, _ := compare(t, nil, "sh", "-c", fmt.Sprintf("ulimit -c 0; echo out; echo err >&2; kill -%d $$; sleep 60", int(s)))
			if !bare.status.Signaled() || bare.status.Signal() != syscall.Signal(s) {
				t.Errorf("the job did not die by it: %v", bare)
			}
		})
	}
}

// TestCoreDumped is the one known difference of a status: the job leaves its
// core, wrap leaves none and so cannot say that it did.
func TestCoreDumped(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	job := []string{"sh", "-c", "ulimit -c unlimited; kill -QUIT $$; sleep 60"}
	run := func(argv []string) outcome {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = dir
		return finish(t, cmd)
	}
	bare, under := run(job), run(wrapped(t, dir, job...))
	const coreFlag = 0x80
	if under.status != bare.status&^coreFlag {
		t.Errorf("bare: %v\nwrapped: %v", bare, under)
	}
}

func TestSameToTheJob(t *testing.T) {
	t.Parallel()
	files := tempDir(t)
	for _, name := range []string{"three", "seven"} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plain := filepath.Join(files, "plain") // a script without #!
	if err := os.WriteFile(plain, []byte("echo plain $1; exit 9\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	notExecutable := filepath.Join(files, "data")
	if err := os.WriteFile(notExecutable, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(kv ...string) func(*exec.Cmd) {
		return func(c *exec.Cmd) { c.Env = append(os.Environ(), kv...) }
	}
	// The outer shell sets the scene, "$@" is the job.
	for _, c := range []struct {
		name    string
		scene   string // of an outer shell, "" for none
		job     []string
		prepare func(*exec.Cmd)
	}{
		{name: "output", job: []string{"sh", "-c", `printf 'a\0b'; printf 'no newline' >&2; exit 1`}},
		{name: "stdin", scene: `echo hello | "$@"`, job: []string{"cat"}},
		{name: "arguments", job: []string{"printf", "%s|", "", "a b", "$x", "--", "-o", "--quiet", "*"}},
		{name: "cwd", scene: `cd /usr && "$@"`, job: []string{"pwd"}},
		{name: "limits", scene: `ulimit -S -n 137; ulimit -c 0; "$@"`, job: []string{"sed", "/Max p[er]/d", "/proc/self/limits"}},
		{name: "umask", scene: `umask 0137; "$@"`, job: []string{"sh", "-c", "umask"}},
		{name: "nice", scene: `nice -n 3 "$@"`, job: []string{"nice"}},
		{name: "ignored", scene: `trap "" HUP INT QUIT USR1 PIPE ALRM TERM TSTP; "$@"`, job: []string{"grep", "^SigIgn", "/proc/self/status"}},
		{name: "nohup", scene: `nohup "$@"`, job: []string{"grep", "^SigIgn", "/proc/self/status"}},
		{name: "caught", job: []string{"grep", "^SigCgt", "/proc/self/status"}},
		{name: "blocked none", job: []string{"grep", "^SigBlk", "/proc/self/status"}},
		{name: "no stdin", scene: `"$@" <&-`, job: []string{"sh", "-c", "ls /proc/$$/fd"}},
		{name: "no stdout", scene: `"$@" >&-`, job: []string{"sh", "-c", "ls /proc/$$/fd >&2"}},
		{name: "no stderr", scene: `"$@" 2>&-`, job: []string{"sh", "-c", "ls /proc/$$/fd"}},
		{name: "none of them", scene: `"$@" <&- >&- 2>&-; cat f`, job: []string{"sh", "-c", "ls /proc/$$/fd 2>&1 9>f >&9"}},
		{name: "descriptors", scene: `exec 3<` + files + `/three 7<` + files + `/seven; PMI_FD=3 "$@"`,
			job: []string{"sh", "-c", "cat <&3 <&$PMI_FD; cat <&7; ls /proc/$$/fd"}},
		{name: "environment", job: []string{"sh", "-c", "env | grep -v -e ^GSWARM_X_RUN= -e ^GSWARM_MARK= | grep -v ^_="}, prepare: env("ODD=a=b\nc", "EMPTY=", "_X=1")},
		{name: "not found", job: []string{"gswarm-no-such-command"}, scene: `"$@" 2>/dev/null`},
		{name: "no such path", job: []string{"./none/such"}, scene: `"$@" 2>/dev/null`},
		{name: "not executable", job: []string{notExecutable}, scene: `"$@" 2>/dev/null`},
		{name: "directory", job: []string{files}, scene: `"$@" 2>/dev/null`},
		{name: "not executable in PATH", job: []string{"data"}, scene: `PATH=` + files + `:$PATH; "$@" 2>/dev/null`},
		{name: "no interpreter line", job: []string{plain, "x"}, scene: `"$@"`},
		{name: "kill 0", job: []string{"sh", "-c", `trap 'echo got' USR1; kill -USR1 0; exit 4`}, prepare: ownGroup},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.scene == "" {
				compare(t, c.prepare, c.job...)
				return
			}
			// compare puts wrap in front of the whole; here it must stand
			// between the scene and the job.
			dir := tempDir(t)
			run := func(argv []string) outcome {
				cmd := exec.Command("sh", append([]string{"-c", c.scene, "scene"}, argv...)...)
				cmd.Dir = dir
				if c.prepare != nil {
					c.prepare(cmd)
				}
				return finish(t, cmd)
			}
			bare, under := run(c.job), run(wrapped(t, dir, c.job...))
			if bare.status != under.status || bare.stdout != under.stdout || bare.stderr != ours(t, under.stderr) {
				t.Errorf("bare: %v\nwrapped: %v", bare, under)
			}
		})
	}
}

// TestPMISocket plays MPICH's proxy, which kills whom it has started as soon as a
// PMI socket ends before MPI_Finalize. Without wrap that is the rank, which has
// ended by then, and how it ended is what counts.
func TestPMISocket(t *testing.T) {
	t.Parallel()
	for _, under := range []bool{false, true} {
		argv := []string{"sh", "-c", "exit 7"}
		if under {
			argv = wrapped(t, tempDir(t), argv...)
		}
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		rank, proxy := os.NewFile(uintptr(pair[0]), "rank"), os.NewFile(uintptr(pair[1]), "proxy")
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "PMI_FD=3")
		cmd.ExtraFiles = []*os.File{rank}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		rank.Close()
		if n, err := proxy.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the socket: %d %v", n, err)
		}
		cmd.Process.Kill()
		proxy.Close()
		if cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
			t.Errorf("wrapped %v: %v", under, cmd.ProcessState)
		}
	}
}

func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func TestBlockedSignalsStayBlocked(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	job := []string{"/usr/bin/grep", "^SigBlk", "/proc/self/status"}
	run := func(job []string) outcome {
		argv := self("mask", append([]string{"1,10,15,36"}, job...)...)
		return finish(t, exec.Command(argv[0], argv[1:]...))
	}
	bare, under := run(job), run(wrapped(t, dir, job...))
	if !strings.Contains(bare.stdout, "4201") || bare.status != under.status || bare.stdout != under.stdout {
		t.Errorf("bare: %v\nwrapped: %v", bare, under)
	}
}
