package launcher_test

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// afterthought is how long a job that counts signals stays when all is over, so
// that a signal that comes twice is seen twice. wrap forwards within 20 ms.
const afterthought = 250 * time.Millisecond

// play is the job that a role stands for. It does not return.
func play(role string, args []string) {
	switch role {
	case "log": // log what comes until stdin ends
		logSignals(args[0])
		io.Copy(io.Discard, os.Stdin) // until its end
		time.Sleep(afterthought)
		os.Exit(3)
	case "grace": // take a second over SIGTERM
		term := make(chan os.Signal, 1)
		signal.Notify(term, unix.SIGTERM)
		write(args[0], "ready")
		<-term
		write(args[0], "term")
		time.Sleep(time.Second)
		os.Exit(7)
	case "tty": // a job on a terminal, whose stdin is the terminal
		logSignals(args[0])
		time.Sleep(patience)
		os.Exit(4)
	case "wait": // be stopped, continued, killed; end with stdin
		write(args[0], "ready")
		io.Copy(io.Discard, os.Stdin) // until its end
		os.Exit(5)
	case "selfstop":
		write(args[0], "ready")
		unix.Kill(os.Getpid(), unix.SIGSTOP)
		write(args[0], "continued")
		io.Copy(io.Discard, os.Stdin) // until its end
		os.Exit(5)
	case "mask": // run a command with signals blocked
		runtime.LockOSThread()
		var set uint64
		for _, f := range strings.Split(args[0], ",") {
			n, _ := strconv.Atoi(f)
			set |= 1 << (n - 1)
		}
		syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, uintptr(unsafe.Pointer(&set)), 0, 8, 0, 0)
		exe := args[1]
		os.Unsetenv(roleVar)
		fmt.Fprintln(os.Stderr, syscall.Exec(exe, args[1:], os.Environ()))
		os.Exit(125)
	}
	fmt.Fprintf(os.Stderr, "no role %q\n", role)
	os.Exit(125)
}

// logSignals writes the name of every signal that comes into a file.
func logSignals(path string) {
	c := make(chan os.Signal, 256)
	for s := syscall.Signal(1); s <= 64; s++ {
		switch s {
		case unix.SIGURG, unix.SIGCHLD, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		default:
			signal.Notify(c, s)
		}
	}
	go func() {
		for s := range c {
			write(path, signalName(unix.Signal(s.(syscall.Signal))))
		}
	}()
	write(path, "ready")
}

func write(path, line string) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(f, line)
	f.Close()
}
