package launcher

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// canary is a small process that sits where the job sits: same parent, same
// process group, same terminal. Who signals a whole group or a whole tree of
// processes (a terminal, mpirun, Slurm's linuxproc, a script's "kill 0") hits
// the job, wrap and the canary alike; who signals wrap alone does not hit the
// canary. So wrap forwards exactly those signals that the canary did not see,
// and the job gets each signal once, as it would without wrap.
//
// It is a plain fork that never returns to Go: all its signals are blocked, it
// waits for them in the kernel and writes the number of each into a pipe. It
// dies with the thread that made it.
type canary struct {
	pid  int
	read *os.File

	mu   sync.Mutex
	seen map[unix.Signal][]time.Time
	news chan struct{}
}

const (
	// canaryWindow is how far apart the two deliveries of one signal to a
	// group may come. The kernel delivers both within microseconds; a
	// loaded node schedules the canary later.
	canaryWindow = 20 * time.Millisecond
	// canaryMemory is how long a delivery is remembered that wrap has not
	// matched yet.
	canaryMemory = 250 * time.Millisecond
)

// startCanary forks the canary. The caller's goroutine must be locked to a
// thread that lives as long as the job.
func startCanary() (*canary, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the signal canary: %w", err)
	}
	defer w.Close()
	set := forwardable()
	name := [16]byte{'g', 's', 'w', 'a', 'r', 'm', '-', 's', 'i', 'g', 'n', 'a', 'l', 's'}
	self := os.Getpid()
	wfd := w.Fd()

	syscall.ForkLock.Lock()
	var all, old [1]uint64
	all[0] = ^uint64(0)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	pid, errno := forkCanary(wfd, uintptr(self), &set, &name)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&old)), 0, 8, 0, 0)
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(w)
	if errno != 0 {
		r.Close()
		return nil, fmt.Errorf("starting the signal canary: %w", errno)
	}
	c := &canary{pid: int(pid), read: r, seen: map[unix.Signal][]time.Time{}, news: make(chan struct{}, 1)}
	go c.listen()
	return c, nil
}

// forkCanary forks and, in the child, never returns. Between the fork and its
// end the child makes raw system calls only: it has one thread of a runtime
// that had many, so it must not allocate, grow its stack or be scheduled.
//
//go:norace
//go:nosplit
//go:noinline
func forkCanary(pipe, parent uintptr, set *uint64, name *[16]byte) (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0, 0)
	if p, _, _ := syscall.RawSyscall6(syscall.SYS_GETPPID, 0, 0, 0, 0, 0, 0); p != parent {
		syscall.RawSyscall6(syscall.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
	}
	syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0, 0)
	// Hold none of the job's descriptors: a reader of its output waits for
	// the last writer.
	if pipe > 0 {
		syscall.RawSyscall6(unix.SYS_CLOSE_RANGE, 0, pipe-1, 0, 0, 0, 0)
	}
	syscall.RawSyscall6(unix.SYS_CLOSE_RANGE, pipe+1, ^uintptr(0)>>33, 0, 0, 0, 0)
	var b [1]byte
	for {
		sig, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(set)), 0, 0, 8, 0, 0)
		if e == syscall.EINTR {
			continue
		}
		if e != 0 {
			syscall.RawSyscall6(syscall.SYS_EXIT_GROUP, 1, 0, 0, 0, 0, 0)
		}
		b[0] = byte(sig)
		syscall.RawSyscall6(syscall.SYS_WRITE, pipe, uintptr(unsafe.Pointer(&b)), 1, 0, 0, 0)
	}
}

func (c *canary) listen() {
	buf := make([]byte, 64)
	for {
		n, err := c.read.Read(buf)
		if err != nil {
			return
		}
		now := time.Now()
		c.mu.Lock()
		for _, b := range buf[:n] {
			s := unix.Signal(b)
			c.seen[s] = append(c.seen[s], now)
		}
		c.mu.Unlock()
		select {
		case c.news <- struct{}{}:
		default:
		}
	}
}

// saw reports whether the canary got sig too, waiting a moment for it to say
// so. Each delivery is matched once.
func (c *canary) saw(sig unix.Signal) bool {
	if c == nil {
		return false
	}
	deadline := time.NewTimer(canaryWindow)
	defer deadline.Stop()
	for {
		if c.take(sig) {
			return true
		}
		select {
		case <-c.news:
		case <-deadline.C:
			return c.take(sig)
		}
	}
}

func (c *canary) take(sig unix.Signal) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	times := c.seen[sig]
	for len(times) > 0 && time.Since(times[0]) > canaryMemory {
		times = times[1:]
	}
	ok := len(times) > 0
	if ok {
		times = times[1:]
	}
	c.seen[sig] = times
	return ok
}

// stop ends the canary and reaps it.
func (c *canary) stop() {
	if c == nil {
		return
	}
	unix.Kill(c.pid, unix.SIGKILL) //nolint:errcheck // it may be gone already
	var ws unix.WaitStatus
	unix.Wait4(c.pid, &ws, 0, nil) //nolint:errcheck // likewise
	c.read.Close()
}
