package launcher

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
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
	pipe int // read end, never blocking

	mu  sync.Mutex
	log map[unix.Signal]sightings
	// slept and woke are the monotonic times between which wrap was stopped
	// last; woke is 0 while it is.
	slept, woke int64
}

// sighting is what the canary writes into the pipe: a signal, and when it came
// by CLOCK_MONOTONIC.
type sighting struct {
	signal, sec, nsec int64
}

// sightings is what is known of the canary's deliveries of one signal.
type sightings struct {
	seen    int64 // when the last came that no delivery to wrap was matched with
	matched int64 // when a delivery to wrap was last matched
}

// monotonic returns CLOCK_MONOTONIC in nanoseconds, which the canary's raw
// system call and this process share.
func monotonic() int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) //nolint:errcheck // the clock exists
	return ts.Nano()
}

const (
	// canaryWindow is how far apart the deliveries of one signal to the
	// members of a group may come: the kernel takes microseconds, who walks
	// through a tree of processes longer. Within it a second delivery counts
	// as the first, as pending signals of one kind are one to the kernel.
	canaryWindow = 20 * time.Millisecond
	// canaryMemory is how long a sighting is remembered that no delivery to
	// wrap matches.
	canaryMemory = 250 * time.Millisecond
	// canaryPatience is how long a canary may take, on a loaded node, to say
	// what it has got.
	canaryPatience = 2 * time.Second
	canaryPoll     = time.Millisecond
)

// startCanary forks the canary. The caller's goroutine must be locked to a
// thread that lives as long as the job.
func startCanary() (*canary, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("starting the signal canary: %w", err)
	}
	r, w := ends[0], ends[1]
	defer unix.Close(w)       // the canary has its own
	unix.SetNonblock(r, true) //nolint:errcheck // a pipe takes it
	set := forwardable()
	name := [16]byte{'g', 's', 'w', 'a', 'r', 'm', '-', 's', 'i', 'g', 'n', 'a', 'l', 's'}
	self := os.Getpid()

	syscall.ForkLock.Lock()
	mask := setThreadMask(^uint64(0))
	pid, errno := forkCanary(uintptr(w), uintptr(self), &set, &name)
	setThreadMask(mask)
	syscall.ForkLock.Unlock()
	if errno != 0 {
		unix.Close(r) // nothing was written
		return nil, fmt.Errorf("starting the signal canary: %w", errno)
	}
	return &canary{pid: int(pid), pipe: r, log: map[unix.Signal]sightings{}}, nil
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
	var e syscall.Errno
	if pipe > 0 {
		_, _, e = syscall.RawSyscall6(unix.SYS_CLOSE_RANGE, 0, pipe-1, 0, 0, 0, 0)
	}
	syscall.RawSyscall6(unix.SYS_CLOSE_RANGE, pipe+1, ^uintptr(0)>>33, 0, 0, 0, 0)
	if e != 0 { // a kernel before 5.9
		for fd := uintptr(0); fd < 1024; fd++ {
			if fd != pipe {
				syscall.RawSyscall6(syscall.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
			}
		}
	}
	var b sighting
	for {
		sig, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(set)), 0, 0, 8, 0, 0)
		if e == syscall.EINTR {
			continue
		}
		if e != 0 {
			syscall.RawSyscall6(syscall.SYS_EXIT_GROUP, 1, 0, 0, 0, 0, 0)
		}
		b.signal = int64(sig)
		syscall.RawSyscall6(syscall.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&b.sec)), 0, 0, 0, 0)
		syscall.RawSyscall6(syscall.SYS_WRITE, pipe, uintptr(unsafe.Pointer(&b)), unsafe.Sizeof(b), 0, 0, 0)
	}
}

// saw reports whether the canary got sig too. It gives who sends to a group
// canaryWindow to reach all of it, and a canary that has not had its turn on a
// processor the time to say what it got.
func (c *canary) saw(sig unix.Signal) bool {
	if c == nil {
		return false
	}
	begin := monotonic()
	for {
		// In this order: what it got before it was quiet is in the pipe.
		quiet := c.quiet(sig)
		if c.match(sig, begin) {
			return true
		}
		waited := time.Duration(monotonic() - begin)
		if waited >= canaryWindow && quiet || waited >= canaryPatience {
			return false
		}
		time.Sleep(canaryPoll)
	}
}

// quiet reports whether the canary has nothing more to say of sig: it sleeps
// and the signal is not pending on it.
func (c *canary) quiet(sig unix.Signal) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid))
	if err != nil {
		return true // it is gone
	}
	sleeping, pending := true, false
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "State":
			sleeping = !strings.HasPrefix(value, "R")
		case "SigPnd", "ShdPnd":
			set, err := strconv.ParseUint(value, 16, 64)
			pending = pending || err == nil && set&(1<<(sig-1)) != 0
		}
	}
	return sleeping && !pending
}

// match reads what the canary wrote and matches a delivery of sig to wrap, at
// that time, with a sighting of it.
func (c *canary) match(sig unix.Signal, at int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var got sighting
		b := unsafe.Slice((*byte)(unsafe.Pointer(&got)), unsafe.Sizeof(got))
		n, err := unix.Read(c.pipe, b) // whole ones: a pipe takes and gives such a length at once
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != len(b) {
			break
		}
		l := c.log[unix.Signal(got.signal)]
		l.seen = got.sec*int64(time.Second) + got.nsec
		c.log[unix.Signal(got.signal)] = l
	}
	l := c.log[sig]
	since := at - l.seen
	woke := c.woke
	if woke == 0 {
		woke = at // still, or not yet noticed
	}
	if c.slept != 0 && l.seen < woke && at >= woke {
		since -= woke - max(c.slept, l.seen)
	}
	seen := l.seen != 0 && since < int64(canaryMemory)
	again := l.matched != 0 && at-l.matched < int64(canaryWindow)
	l.seen = 0
	if seen {
		l.matched = at
	}
	c.log[sig] = l
	return seen || again
}

// absent tells that wrap was stopped from one time to another, or, with 0 for
// the other, that it is about to be. What both got before may come to wrap's
// notice only afterwards: the Ctrl-Z that stopped them must not be sent to the
// job again when it is continued.
func (c *canary) absent(slept, woke int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slept, c.woke = slept, woke
}

// stop ends the canary and reaps it.
func (c *canary) stop() {
	if c == nil {
		return
	}
	unix.Kill(c.pid, unix.SIGKILL) //nolint:errcheck // it may be gone already
	var ws unix.WaitStatus
	unix.Wait4(c.pid, &ws, 0, nil) //nolint:errcheck // likewise
}
