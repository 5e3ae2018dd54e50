package launcher

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// numSignals is the number of signals that Linux has.
const numSignals = 64

// notForwarded are signals that wrap must leave to the kernel and the runtime:
// those that cannot be caught, those by which the kernel tells a parent of its
// child, job control (handled apart), window changes (the terminal tells every
// process itself), and what Go's runtime uses for itself.
var notForwarded = map[unix.Signal]bool{
	unix.SIGKILL: true, unix.SIGSTOP: true, unix.SIGCHLD: true,
	unix.SIGTSTP: true, unix.SIGTTIN: true, unix.SIGTTOU: true, unix.SIGCONT: true,
	unix.SIGWINCH: true, unix.SIGURG: true, unix.SIGPROF: true,
	32: true, 33: true, // the C library's own
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

// catchSignals has the signals that wrap forwards, and SIGCONT, delivered to
// the returned channel. A signal that is ignored stays ignored, so that the job
// inherits it so (nohup).
func catchSignals(ignored uint64) chan os.Signal {
	c := make(chan os.Signal, 64)
	for s := unix.Signal(1); s <= numSignals; s++ {
		switch {
		case ignored&(1<<(s-1)) != 0 && s != unix.SIGCHLD:
			signal.Ignore(syscall.Signal(s))
		case signal.Ignored(syscall.Signal(s)) && (s == unix.SIGHUP || s == unix.SIGINT):
			// The runtime has noticed these two by itself.
		case !notForwarded[s], s == unix.SIGCONT:
			signal.Notify(c, syscall.Signal(s))
		}
	}
	return c
}
