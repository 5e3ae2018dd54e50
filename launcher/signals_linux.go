package launcher

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inherited is what a process began with, as far as Go's runtime changes it.
type inherited struct {
	closed  uint   // bit n for standard descriptor n
	ignored uint64 // bit n-1 for signal n
	blocked uint64 // likewise
}

// numSignals is the number of signals that Linux has.
const numSignals = 64

// notForwarded are signals that wrap must leave to the kernel and the runtime:
// those that cannot be caught, those by which the kernel tells a parent of its
// child, reading and writing in the terminal's background (the terminal stops
// the whole group), and what Go's runtime and the C library use for themselves.
var notForwarded = map[unix.Signal]bool{
	unix.SIGKILL: true, unix.SIGSTOP: true, unix.SIGCHLD: true,
	unix.SIGTTIN: true, unix.SIGTTOU: true,
	unix.SIGURG: true, unix.SIGPROF: true,
	32: true, 33: true,
}

// forwardable returns the set of signals that wrap forwards, as the kernel
// takes it.
func forwardable() uint64 {
	var set uint64
	for s := unix.Signal(1); s <= numSignals; s++ {
		if !notForwarded[s] {
			set |= 1 << (s - 1)
		}
	}
	return set
}

// catchSignals has the signals that wrap forwards delivered to the returned
// channel. A signal that is ignored stays ignored, so that the job
// inherits it so (nohup).
func catchSignals(ignored uint64) chan os.Signal {
	c := make(chan os.Signal, 64)
	for s := unix.Signal(1); s <= numSignals; s++ {
		switch {
		case ignored&(1<<(s-1)) != 0 && s != unix.SIGCHLD:
			signal.Ignore(syscall.Signal(s))
		case signal.Ignored(syscall.Signal(s)) && (s == unix.SIGHUP || s == unix.SIGINT):
			// The runtime has noticed these two by itself.
		case !notForwarded[s]:
			signal.Notify(c, syscall.Signal(s))
		}
	}
	return c
}

// sigaction is the kernel's struct sigaction.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// setAction sets what the kernel does at a signal, behind the runtime's back:
// os/signal cannot restore a default action. It returns the action before.
func setAction(s unix.Signal, action sigaction) (before sigaction) {
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action)), uintptr(unsafe.Pointer(&before)), 8, 0, 0)
	return before
}

// setThreadMask sets the signals that this thread blocks, which a process that
// it starts inherits, and returns those before. The goroutine must be locked to
// its thread.
func setThreadMask(mask uint64) (before uint64) {
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&mask)), uintptr(unsafe.Pointer(&before)), 8, 0, 0)
	return before
}

// stopBy stops this process as the job was stopped, so that a shell sees the
// same. It returns when the process is continued.
func stopBy(s unix.Signal) {
	if s == unix.SIGSTOP {
		unix.Kill(os.Getpid(), s) //nolint:errcheck // a process may stop itself
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := setAction(s, sigaction{})
	unix.Tgkill(os.Getpid(), unix.Gettid(), s) //nolint:errcheck // likewise
	setAction(s, before)
}
