package rankagent

import (
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// maxThreads bounds the threads that run Go code at once. Calls into a
	// driver block threads of their own beside them.
	maxThreads = 2
	// memoryLimit makes the collector work harder before the agent grows.
	memoryLimit = 96 << 20
)

// stepAside sets the process up so that it cannot hurt a rank: few threads,
// little memory, first to go when memory runs out, and free of the CPU binding
// of the rank that happened to start it.
func stepAside() {
	runtime.GOMAXPROCS(min(maxThreads, runtime.NumCPU()))
	debug.SetMemoryLimit(memoryLimit)
	debug.SetGCPercent(50)
	// Raising one's own score needs no privilege.
	os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) //nolint:errcheck // a container may forbid it
	var all unix.CPUSet
	for i := range len(all) * 64 {
		all.Set(i)
	}
	// The kernel cuts this down to what the cgroup allows. Every thread has
	// its own mask; those that exist already are few, and inherit to come.
	if tasks, err := os.ReadDir("/proc/self/task"); err == nil {
		for _, t := range tasks {
			if tid := atoi(t.Name()); tid > 0 {
				unix.SchedSetaffinity(tid, &all) //nolint:errcheck // then it stays bound
			}
		}
	}
	unix.Umask(0o077)
}

func atoi(s string) int {
	n := 0
	for _, r := range s {
		if r < '0' || r > '9' {
			return -1
		}
		n = n*10 + int(r-'0')
	}
	return n
}

// catchTerm ignores the signals that are meant for the job and returns the
// channel of those that announce the end.
func catchTerm() <-chan os.Signal {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGPIPE, syscall.SIGALRM)
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGTERM)
	return c
}

// usage returns the process's CPU time in nanoseconds and its resident memory
// in bytes.
func usage() (cpu, rss int64) {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err == nil {
		cpu = ru.Utime.Nano() + ru.Stime.Nano()
	}
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return cpu, 0
	}
	field, pages := 0, int64(0)
	for _, c := range b {
		switch {
		case c == ' ':
			field++
		case field == 1 && c >= '0' && c <= '9':
			pages = pages*10 + int64(c-'0')
		}
	}
	return cpu, pages * int64(os.Getpagesize())
}

// clocksource names the device by which the kernel counts time; empty where it
// does not say.
func clocksource() string {
	b, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
