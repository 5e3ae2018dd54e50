package launcher

import (
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// EndAs ends this process the way the job ended: with its exit code, or by its
// signal, so that a shell, srun or mpirun sees and prints what it would have
// without wrap. It does not return.
//
// os/signal cannot do this: the runtime keeps its handlers. The default action
// is restored by the system call itself. The process leaves no core of its own,
// which is why the "core dumped" bit of the job's status is lost.
func EndAs(e Ending) {
	if !e.Status.Signaled() {
		os.Exit(e.Status.ExitStatus())
	}
	runtime.LockOSThread()
	sig := e.Status.Signal()
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) //nolint:errcheck // only a core too many
	setAction(sig, sigaction{})
	setThreadMask(^(uint64(1) << (uint(sig) - 1)))
	unix.Tgkill(os.Getpid(), unix.Gettid(), sig) //nolint:errcheck // the exit below is the way out
	time.Sleep(100 * time.Millisecond)
	// The signal's default action does not end a process, yet it ended the
	// job: only a shell's convention is left.
	os.Exit(128 + int(sig))
}
