package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/rundir"
)

// Exit codes of a command that could not be started, as shells use them.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// StartError says that the command could not be started.
type StartError struct {
	Command string
	Code    int
	Err     error
}

func (e *StartError) Error() string { return fmt.Sprintf("starting %s: %v", e.Command, e.Err) }
func (e *StartError) Unwrap() error { return e.Err }

// Ending is how the job ended.
type Ending struct {
	Status unix.WaitStatus
}

// Exit is the ending in the words of run.yaml.
func (e Ending) Exit() rundir.Exit {
	if e.Status.Signaled() {
		s := e.Status.Signal()
		name := unix.SignalName(s)
		if name == "" {
			name = fmt.Sprintf("SIG%d", int(s))
		}
		return rundir.Exit{Code: 128 + int(s), Signal: name}
	}
	return rundir.Exit{Code: e.Status.ExitStatus()}
}

// job is the wrapped command while it runs.
type job struct {
	pid     int
	started chan error
	ended   chan Ending
	// hurry is closed when somebody wants wrap itself to end, after the job.
	hurry chan struct{}

	mu   sync.Mutex
	over bool // the job was waited for; its pid may be another's by now
}

// startJob runs the command with everything that wrap itself was given:
// descriptors, terminal, process group, environment, ignored signals and
// limits. It returns when the command runs or could not be started.
//
// The job dies with SIGKILL if wrap is killed by SIGKILL.
func startJob(argv, env []string) (*job, error) {
	path, err := lookUp(argv[0])
	if err != nil {
		return nil, err
	}
	j := &job{started: make(chan error, 1), ended: make(chan Ending, 1), hurry: make(chan struct{})}
	go j.run(path, argv, env)
	if err := <-j.started; err != nil {
		return nil, err
	}
	return j, nil
}

// run starts the command and sees it to its end. It stays on one thread: the
// kernel sends the parent-death signal when the thread that forked ends.
func (j *job) run(path string, argv, env []string) {
	runtime.LockOSThread()
	was := inherit()
	signals := catchSignals(was.ignored)
	canary, err := startCanary()
	if err != nil {
		canary = nil // signals to the whole group will come twice; the job goes on
	}
	attr := &syscall.ProcAttr{
		Env:   env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}
	for fd := range attr.Files {
		if was.closed&(1<<fd) != 0 {
			attr.Files[fd] = ^uintptr(0)
		}
	}
	mask := setThreadMask(was.blocked)
	j.pid, err = syscall.ForkExec(path, argv, attr)
	if errors.Is(err, syscall.ENOEXEC) {
		// A script without a #! line: what execvp(3) and every shell do.
		argv = append([]string{"/bin/sh", path}, argv[1:]...)
		j.pid, err = syscall.ForkExec("/bin/sh", argv, attr)
	}
	setThreadMask(mask)
	if err != nil {
		canary.stop()
		code := codeNotExecutable
		if errors.Is(err, fs.ErrNotExist) {
			code = codeNotFound
		}
		j.started <- &StartError{Command: argv[0], Code: code, Err: err}
		return
	}
	letGo(env)
	j.started <- nil
	go j.forward(signals, canary)
	status := j.wait(canary)
	canary.stop()
	j.ended <- Ending{status}
	select {} // the thread must outlive what it forked; the process ends soon
}

// letGo closes what the job has inherited by now and wrap has no use for: when
// the job closes its end of a pipe, the other side must see that. stderr stays,
// for what is said at the end, and so does the socket of a PMI server: to
// MPICH's, its end before MPI_Finalize is a crash, upon which it kills whom it
// has started, and that is wrap, which is still to end as the job ended.
func letGo(env []string) {
	pmi, err := strconv.Atoi(Process{Env: env}.Getenv("PMI_FD"))
	if err != nil {
		pmi = -1
	}
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for fd := range 2 {
			unix.Dup3(null, fd, unix.O_CLOEXEC) //nolint:errcheck // then it stays open
		}
		unix.Close(null) // nothing was written
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		if fd == pmi {
			unix.CloseOnExec(fd) // no agent of wrap's is to have it
			continue
		}
		// All that this program opens is closed on exec.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd) // nothing was written
		}
	}
}

// forward passes on what was sent to wrap alone.
func (j *job) forward(signals <-chan os.Signal, c *canary) {
	hurried := false
	for s := range signals {
		sig := unix.Signal(s.(syscall.Signal))
		if j.isOver() {
			if !hurried && ends[sig] {
				hurried = true
				close(j.hurry)
			}
			continue
		}
		if sig == unix.SIGPIPE {
			// wrap's own: an agent that dies breaks the connection to
			// it. Caught, so that it is an error of the write's only.
			continue
		}
		// Each waits for the canary on its own, so that a burst of
		// signals is not drawn out.
		go func() {
			if !c.saw(sig) {
				j.signal(sig)
			}
		}()
	}
}

// ends are the signals by which one asks a program to end.
var ends = map[unix.Signal]bool{unix.SIGHUP: true, unix.SIGINT: true, unix.SIGQUIT: true, unix.SIGTERM: true}

func (j *job) isOver() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.over
}

// signal sends the job a signal unless it has ended.
func (j *job) signal(sig unix.Signal) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.over {
		unix.Kill(j.pid, sig) //nolint:errcheck // it may have become another user's
	}
}

// settle is how long wrap waits, when the job was stopped, to be stopped by the
// same sender.
const settle = 50 * time.Millisecond

// wait waits for the end of the job. If the job stops, wrap stops as well and by
// the same signal, so that the shell sees what it would see without wrap.
func (j *job) wait(c *canary) unix.WaitStatus {
	for {
		// Look first and wait for the rest of it below: once the job is
		// reaped, its pid is free.
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, j.pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		j.mu.Lock()
		var ws unix.WaitStatus
		pid, err := unix.Wait4(j.pid, &ws, unix.WUNTRACED|unix.WNOHANG, nil)
		j.over = err != nil || pid == j.pid && !ws.Stopped()
		over := j.over
		j.mu.Unlock()
		switch {
		case err != nil: // nobody else waits for it, so this does not happen
			return unix.WaitStatus(1 << 8)
		case over:
			return ws
		case pid == j.pid:
			go j.follow(ws.StopSignal(), c)
		}
	}
}

// follow stops wrap after the job was stopped.
func (j *job) follow(s syscall.Signal, c *canary) {
	if s != unix.SIGTSTP { // which wrap catches, so only this stops it
		time.Sleep(settle)
	}
	if stopped(j.pid) {
		slept := monotonic()
		c.absent(slept, 0)
		stopBy(s)
		c.absent(slept, monotonic())
	}
}

// stopped reports whether a process is stopped by job control.
func stopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The name in parentheses may hold anything; the state follows the last
	// closing one.
	i := strings.LastIndexByte(string(b), ')')
	return i >= 0 && i+2 < len(b) && b[i+2] == 'T'
}

// lookUp finds a command as execvp(3) does.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) {
		err = nil
	}
	if err == nil {
		return path, nil
	}
	if strings.ContainsRune(name, filepath.Separator) {
		// Let the kernel say what is wrong with it.
		if st, serr := os.Stat(name); serr == nil && !st.IsDir() {
			return "", &StartError{Command: name, Code: codeNotExecutable, Err: syscall.EACCES}
		} else if serr == nil {
			return "", &StartError{Command: name, Code: codeNotExecutable, Err: errors.New("is a directory")}
		}
		return "", &StartError{Command: name, Code: codeNotFound, Err: syscall.ENOENT}
	}
	if errors.Is(err, fs.ErrPermission) {
		return "", &StartError{Command: name, Code: codeNotExecutable, Err: syscall.EACCES}
	}
	return "", &StartError{Command: name, Code: codeNotFound, Err: errors.New("command not found")}
}

// Become replaces this process by the command: what a wrap inside a wrap does.
// It returns only if that fails.
func Become(argv, env []string) error {
	path, err := lookUp(argv[0])
	if err != nil {
		return err
	}
	was := inherit()
	catchSignals(was.ignored)
	runtime.LockOSThread()
	setThreadMask(was.blocked)
	for fd := range 3 {
		if was.closed&(1<<fd) != 0 {
			unix.Close(fd) // it was closed to begin with
		}
	}
	err = syscall.Exec(path, argv, env)
	if errors.Is(err, syscall.ENOEXEC) {
		err = syscall.Exec("/bin/sh", append([]string{"/bin/sh", path}, argv[1:]...), env)
	}
	return &StartError{Command: argv[0], Code: codeNotExecutable, Err: err}
}
