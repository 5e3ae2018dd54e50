package rank

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/table"
)

// threadTree is a tree of one rank, process 110, whose threads tests change.
type threadTree struct {
	t    *testing.T
	root string
	tr   *Tracker
	out  *fakeOut
	most int64 // the highest sum of delays so far
}

func newThreadTree(t *testing.T) *threadTree {
	o := options(unpack(t, "torchrun-v2"))
	o.Job, o.Run = Variable{"SLURM_JOB_ID", "9"}, "/run9"
	return &threadTree{t: t, root: filepath.Join(o.ProcRoot, "110"), tr: open(t, o), out: newFakeOut()}
}

// has gives the process n threads by its own account.
func (x *threadTree) has(n int) {
	x.t.Helper()
	path := filepath.Join(x.root, "stat")
	text, err := os.ReadFile(path)
	if err != nil {
		x.t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	f[17] = strconv.Itoa(n)
	put(x.t, path, head+") "+strings.Join(f, " ")+"\n")
	if err := os.MkdirAll(filepath.Join(x.root, "task", "110"), 0o755); err != nil {
		x.t.Fatal(err)
	}
}

// thread sets what a thread has counted.
func (x *threadTree) thread(tid int, ran, delay, voluntary, involuntary int64) {
	dir := filepath.Join(x.root, "task", strconv.Itoa(tid))
	put(x.t, filepath.Join(dir, "schedstat"), fmt.Sprintf("%d %d 7\n", ran, delay))
	put(x.t, filepath.Join(dir, "status"), fmt.Sprintf("Name:\tx\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t%d\n", voluntary, involuntary))
}

func (x *threadTree) end(tid int) { os.RemoveAll(filepath.Join(x.root, "task", strconv.Itoa(tid))) }

// read returns the sums less what the main thread has, and why they are null.
func (x *threadTree) read() (sum counts, why string) {
	x.t.Helper()
	x.out.batch.Reset()
	if err := x.tr.Read(x.out); err != nil {
		x.t.Fatal(err)
	}
	b := x.out.batch
	for row := range b.Rows() {
		if b.Ints(table.RankPID)[row] != 110 {
			continue
		}
		if !b.Valid(table.RankThreadsRunDelay)[row] {
			return counts{}, x.out.absent["threads_run_delay_ns[110]"]
		}
		if d := b.Ints(table.RankThreadsRunDelay)[row]; d < x.most {
			x.t.Errorf("the sum went back from %d to %d", x.most, d)
		} else {
			x.most = d
		}
		return counts{
			b.Ints(table.RankThreadsRunDelay)[row] - b.Ints(table.RankRunDelay)[row],
			b.Ints(table.RankThreadsVoluntary)[row] - b.Ints(table.RankVoluntary)[row],
			b.Ints(table.RankThreadsInvoluntary)[row] - b.Ints(table.RankInvoluntary)[row],
		}, ""
	}
	x.t.Fatal("process 110 has no row")
	return
}

// want reads until switches have had their turn, and then asserts.
func (x *threadTree) want(what string, want counts) {
	x.t.Helper()
	for range turns {
		x.read()
	}
	if got, why := x.read(); got != want || why != "" {
		x.t.Errorf("%s: got %v %s, want %v", what, got, why, want)
	}
}

func TestThreadSums(t *testing.T) {
	x := newThreadTree(t)
	x.want("one thread", counts{})
	x.has(3)
	x.thread(201, 10, 1000, 10, 1)
	x.thread(202, 10, 2000, 20, 2)
	x.want("two more", counts{3000, 30, 3})
	x.thread(201, 20, 1500, 11, 1)
	x.want("one ran", counts{3500, 31, 3})
	x.end(202)
	x.want("one ended", counts{3500, 31, 3})
	x.thread(202, 1, 5, 1, 0)
	x.want("its id was given to another", counts{3505, 32, 3})
	x.thread(202, 0, 1, 0, 0) // and to another between two readings
	for range 2 * longestRest {
		x.read()
	}
	x.want("and again", counts{3506, 32, 3})
	os.Remove(filepath.Join(x.root, "task", "201", "schedstat"))
	os.Remove(filepath.Join(x.root, "task", "201", "status"))
	x.want("vanishing", counts{3506, 32, 3})
	x.end(201)
	x.end(202)
	x.has(1)
	x.want("one thread again", counts{3506, 32, 3})
}

// TestThreadsThatRest asserts that a thread that does not run is left alone
// for a while, and no longer than documented.
func TestThreadsThatRest(t *testing.T) {
	x := newThreadTree(t)
	x.has(2)
	x.thread(203, 10, 100, 1, 0)
	for range 20 {
		x.want("at rest", counts{100, 1, 0})
	}
	x.thread(203, 11, 200, 2, 0)
	for i := range 2 * longestRest {
		if sum, _ := x.read(); sum.delay == 200 {
			return
		} else if i == 2*longestRest-1 {
			t.Errorf("not looked at in %d readings", i+1)
		}
	}
}

// TestManyThreads asserts that no sum is shown before all threads have been
// looked at, nor of a process with too many.
func TestManyThreads(t *testing.T) {
	x := newThreadTree(t)
	const n = 600
	x.has(n + 1)
	for i := range n {
		x.thread(1000+i, 10, 5, 2, 1)
	}
	shown := 0
	for i := range 20 {
		sum, why := x.read()
		switch {
		case why == "not_sampled" && shown == 0:
		case sum == counts{n * 5, n * 2, n} && i > 0:
			shown++
		default:
			t.Fatalf("reading %d: %v %q", i, sum, why)
		}
	}
	if shown == 0 {
		t.Error("no sum in 20 readings")
	}
	x.has(maxThreads + 1)
	if _, why := x.read(); why != "not_sampled" {
		t.Errorf("with too many threads: %q", why)
	}
	if x.tr.open > numFiles*len(x.tr.procs) {
		t.Errorf("%d files open", x.tr.open)
	}
}

// TestThreadsUnreadable asserts what is said of threads that cannot be read.
func TestThreadsUnreadable(t *testing.T) {
	x := newThreadTree(t)
	x.has(2)
	x.thread(203, 10, 100, 1, 0)
	put(t, filepath.Join(x.root, "task", "203", "schedstat"), "x y z\n")
	if _, why := x.read(); why != "invalid_value" {
		t.Errorf("garbage: %q", why)
	}
	x.thread(203, 10, 100, 1, 0)
	put(t, filepath.Join(x.root, "task", "203", "status"), "voluntary_ctxt_switches:\t1")
	if _, why := x.read(); why != "invalid_value" {
		t.Errorf("cut short: %q", why)
	}
	os.RemoveAll(filepath.Join(x.root, "task"))
	x.read() // which notices
	if _, why := x.read(); why != "not_found" {
		t.Errorf("no threads listed: %q", why)
	}
	x.has(2)
	x.thread(203, 10, 100, 1, 0)
	x.want("it is back", counts{100, 1, 0})
}

// beThreads is a process with so many threads, one in ten of which runs a little
// every few milliseconds.
func beThreads(n int) {
	for i := range n {
		go func() {
			runtime.LockOSThread()
			wait := unix.Timespec{Sec: 1000}
			if i%10 == 0 {
				wait = unix.Timespec{Nsec: 5e6}
			}
			for {
				unix.Nanosleep(&wait, nil)
			}
		}()
	}
	io.Copy(io.Discard, os.Stdin) // until the test has ended
}

// startThreads runs a process with n threads that belongs to a run.
func startThreads(t testing.TB, run string, n int) (pid int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), being("threads", strconv.Itoa(n)), runVar+"=:"+run, "PMI_RANK=0")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	for range 1000 {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", cmd.Process.Pid))
		if err == nil && len(tasks) > n {
			return cmd.Process.Pid
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the threads did not come")
	return 0
}

// addUp sums what the kernel says of a process's threads now.
func addUp(t *testing.T, pid int) (sum counts) {
	t.Helper()
	dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no threads: %v", err)
	}
	for _, d := range dirs {
		var ran int64
		sched, err1 := os.ReadFile(d + "/schedstat")
		status, err2 := os.ReadFile(d + "/status")
		if err1 != nil || err2 != nil {
			continue // it has ended
		}
		var c counts
		if _, err := fmt.Sscan(string(sched), &ran, &c.delay); err != nil {
			t.Fatal(err)
		}
		c.voluntary, c.involuntary = lookup(status, "voluntary_ctxt_switches"), lookup(status, "nonvoluntary_ctxt_switches")
		sum.add(c)
	}
	return sum
}

// TestThreadsOfThisKernel compares the sums with what the kernel says before and
// after: invariants only.
func TestThreadsOfThisKernel(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("the kernel keeps no schedstat")
	}
	run := t.TempDir()
	pid := startThreads(t, run, 40)
	tr, out := open(t, Options{UID: os.Getuid(), Run: run}), newFakeOut()
	if err := tr.Read(out); err != nil {
		t.Fatal(err)
	}
	before := addUp(t, pid)
	for range 2 * longestRest { // until each has been looked at again
		time.Sleep(10 * time.Millisecond)
		out.batch.Reset()
		if err := tr.Read(out); err != nil {
			t.Fatal(err)
		}
	}
	after := addUp(t, pid)
	if out.batch.Rows() != 1 || !out.batch.Valid(table.RankThreadsRunDelay)[0] {
		t.Fatalf("got %s", out.dump())
	}
	b := out.batch
	got := counts{b.Ints(table.RankThreadsRunDelay)[0], b.Ints(table.RankThreadsVoluntary)[0], b.Ints(table.RankThreadsInvoluntary)[0]}
	if got.back(before) || after.back(got) {
		t.Errorf("got %v, want between %v and %v", got, before, after)
	}
}
