package rank

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// largeTree writes the /proc of a node of 256 CPUs with 500 processes of the
// job, eight of them ranks, among 4000 of others.
func largeTree(b *testing.B) string {
	b.Helper()
	root := unpack(b, "torchrun-v2")
	proc := filepath.Join(root, "proc")
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(proc, "110", name))
		if err != nil {
			b.Fatal(err)
		}
		return string(text)
	}
	files := map[string]string{}
	for _, name := range []string{"stat", "status", "sched", "schedstat", "io", "cmdline", "environ", "limits", "cgroup"} {
		files[name] = read(name)
	}
	for i := range 500 {
		pid := fmt.Sprint(1000 + i)
		for name, text := range files {
			if name == "stat" {
				text = strings.Replace(text, "110 (python3) S 100 ", pid+" (python3) S "+fmt.Sprint(max(100, 1000+i-i%60))+" ", 1)
			}
			put(b, filepath.Join(proc, pid, name), text)
		}
	}
	for i := range 4000 {
		put(b, filepath.Join(proc, fmt.Sprint(10000+i), "environ"), "")
	}
	return root
}

// BenchmarkReadTree is one reading of a large node: what a second of sampling
// costs in the agent, without what the kernel needs to write the files' text.
func BenchmarkReadTree(b *testing.B) {
	o := options(largeTree(b))
	o.Job = Variable{"SLURM_JOB_ID", "9"}
	benchmark(b, o, 500)
}

// BenchmarkReadThisNode is the same with the kernel's share, on the machine
// that it runs on, with 500
// sleeping processes of which 128 are ranks.
func BenchmarkReadThisNode(b *testing.B) {
	const n = 500
	run := b.TempDir()
	for i := range n {
		env := append(os.Environ(), runVar+"=:"+run)
		if i < 128 {
			env = append(env, fmt.Sprintf("PMI_RANK=%d", i))
		}
		startSleep(b, env)
	}
	time.Sleep(200 * time.Millisecond) // until all have called exec
	benchmark(b, Options{UID: os.Getuid(), Run: run}, n)
}

// BenchmarkReadThreads is that of eight ranks of 200 threads each, twenty of which
// run, among 492 processes of one thread.
func BenchmarkReadThreads(b *testing.B) {
	const n = 492
	run := b.TempDir()
	for range n {
		startSleep(b, append(os.Environ(), runVar+"=:"+run))
	}
	for range 8 {
		startThreads(b, run, 200)
	}
	benchmark(b, Options{UID: os.Getuid(), Run: run}, n+8)
}

func startSleep(b *testing.B, env []string) {
	b.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

func benchmark(b *testing.B, o Options, n int) {
	tr, out := open(b, o), newFakeOut()
	out.quiet = true
	for range 4 {
		out.batch.Reset()
		if err := tr.Read(out); err != nil {
			b.Fatal(err)
		}
	}
	if out.batch.Rows() < n {
		b.Fatalf("%d rows", out.batch.Rows())
	}
	b.ReportAllocs()
	runtime.LockOSThread()
	before := cpuTime()
	for b.Loop() {
		out.batch.Reset()
		out.events = out.events[:0]
		if err := tr.Read(out); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}

// cpuTime is this thread's, which a busy machine does not lengthen.
func cpuTime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
