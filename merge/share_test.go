package merge

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

// whole merges in one task and returns the files.
func whole(t *testing.T, dir string, opts Options) map[string]string {
	t.Helper()
	if _, err := Run(context.Background(), dir, opts); err != nil {
		t.Fatal(err)
	}
	return tree(t, dir)
}

func noLeftovers(t *testing.T, dir string) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(dir, ".timeline*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTasksGiveTheBytesOfOne(t *testing.T) {
	for _, sorted := range []bool{false, true} {
		dir := testRun{nodes: 3, seconds: 35, seal: true, killed: 1}.write(t)
		want := whole(t, dir, Options{Sort: sorted})
		os.RemoveAll(filepath.Join(dir, "timeline"))
		const tasks = 3
		last := 0
		for i := range tasks {
			s, err := Run(context.Background(), dir, Options{Sort: sorted, Task: i, Tasks: tasks})
			if err != nil {
				t.Fatal(err)
			}
			if i < tasks-1 && (!s.Others || s.PartsLeft == 0) {
				t.Errorf("task %d of %d finished: %+v", i, tasks, s)
			}
			if !s.Others {
				last++
				if !s.Incomplete || s.Rows["gpu"] != 3*35*80 {
					t.Errorf("the last task says %+v", s)
				}
			}
		}
		if last != 1 {
			t.Errorf("%d tasks finished", last)
		}
		sameTree(t, want, tree(t, dir))
		noLeftovers(t, dir)
	}
}

// TestTasksAtOnce runs all tasks at once, each of them twice.
func TestTasksAtOnce(t *testing.T) {
	dir := testRun{nodes: 3, seconds: 35, seal: true, killed: -1}.write(t)
	want := whole(t, dir, Options{})
	os.RemoveAll(filepath.Join(dir, "timeline"))
	const tasks = 4
	var all sync.WaitGroup
	for i := range 2 * tasks {
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := Run(context.Background(), dir, Options{Task: i % tasks, Tasks: tasks}); err != nil {
				t.Errorf("task %d: %v", i%tasks, err)
			}
		}()
	}
	all.Wait()
	sameTree(t, want, tree(t, dir))
	noLeftovers(t, dir)
}

// TestTasksAgain runs tasks when all is over: some of them, all, and more than
// there are files.
func TestTasksAgain(t *testing.T) {
	dir := testRun{nodes: 2, seconds: 25, seal: true, killed: 1}.write(t)
	want := whole(t, dir, Options{})
	for _, tasks := range []int{2, 100} {
		for _, i := range []int{1, 0, tasks - 1} {
			s, err := Run(context.Background(), dir, Options{Task: i, Tasks: tasks})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 && (!s.Incomplete || s.Rows["gpu"] != 2*25*80 || len(s.Nodes) != 2) || i != 0 && !s.Others {
				t.Errorf("task %d of %d says %+v", i, tasks, s)
			}
			noLeftovers(t, dir)
		}
	}
	sameTree(t, want, tree(t, dir))
	// What lacks a file is made anew.
	files, _ := filepath.Glob(filepath.Join(dir, "timeline", "gpu", "*"))
	os.Remove(files[0])
	for i := range 2 {
		if _, err := Run(context.Background(), dir, Options{Task: i, Tasks: 2}); err != nil {
			t.Fatal(err)
		}
	}
	sameTree(t, want, tree(t, dir))
	noLeftovers(t, dir)
	// So is what was made from other data, and a task that has no file of its
	// own begins nothing.
	os.RemoveAll(filepath.Join(dir, "timeline"))
	if s, err := Run(context.Background(), dir, Options{Task: 99, Tasks: 100}); err != nil || !s.Others {
		t.Errorf("%+v, %v", s, err)
	}
	noLeftovers(t, dir)
}

// TestMended merges a damaged shard, and again when it is mended, which changes
// neither its size nor what the plan is made from.
func TestMended(t *testing.T) {
	dir := testRun{nodes: 2, seconds: 25, seal: true, killed: -1}.write(t)
	want := whole(t, dir, Options{})
	path := rundir.Dir(dir).Join("nodes", "n1", "host-1.parquet")
	flip := func() {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[40] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flip()
	whole(t, dir, Options{})
	flip()
	for i := range 2 {
		if _, err := Run(context.Background(), dir, Options{Task: i, Tasks: 2}); err != nil {
			t.Fatal(err)
		}
	}
	sameTree(t, want, tree(t, dir))
}

// TestTaskKilled leaves a share as a killed task does: one file finished, one
// half written, one whole without its result.
func TestTaskKilled(t *testing.T) {
	dir := testRun{nodes: 2, seconds: 25, seal: true, killed: -1}.write(t)
	want := whole(t, dir, Options{})
	os.RemoveAll(filepath.Join(dir, "timeline"))
	if _, err := Run(context.Background(), dir, Options{Task: 0, Tasks: 2}); err != nil {
		t.Fatal(err)
	}
	share, _ := filepath.Glob(filepath.Join(dir, sharePrefix+"*"))
	if len(share) != 1 {
		t.Fatalf("shares %v", share)
	}
	done, _ := filepath.Glob(filepath.Join(share[0], "*", "*.done"))
	if len(done) < 2 {
		t.Fatalf("results %v", done)
	}
	os.Remove(done[0])
	part := done[1][:len(done[1])-len(".done")]
	if err := os.Truncate(part, 100); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(filepath.Dir(part), ".part-0000.parquet.0123.tmp"), []byte("half"), 0o600)
	// A share of another plan, left for ever.
	os.MkdirAll(filepath.Join(dir, sharePrefix+"0000"), 0o700)
	for i := range 2 {
		if _, err := Run(context.Background(), dir, Options{Task: i, Tasks: 2}); err != nil {
			t.Fatal(err)
		}
	}
	got := tree(t, dir)
	for name := range got {
		if filepath.Ext(name) == ".tmp" {
			t.Errorf("%s is in the timeline", name)
			delete(got, name)
		}
	}
	sameTree(t, want, got)
	if _, err := Run(context.Background(), dir, Options{}); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, dir)
}

// TestTaskTakesUpLosses damages a shard: whichever task reads it, the one that
// finishes tells of it.
func TestTaskTakesUpLosses(t *testing.T) {
	dir := testRun{nodes: 2, seconds: 25, seal: true, killed: -1}.write(t)
	path := rundir.Dir(dir).Join("nodes", "n1", "host-1.parquet")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[40] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	want := whole(t, dir, Options{})
	os.RemoveAll(filepath.Join(dir, "timeline"))
	var s Summary
	for i := range 2 {
		if s, err = Run(context.Background(), dir, Options{Task: i, Tasks: 2}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.Missing) != 1 || s.Missing[0].Code != "corrupt_shard" || s.Rows["host"] != 40 {
		t.Errorf("%+v", s)
	}
	sameTree(t, want, tree(t, dir))
}

func TestNoSuchTask(t *testing.T) {
	if _, err := Run(context.Background(), t.TempDir(), Options{Task: 4, Tasks: 4}); !errors.Is(err, errNoTask) {
		t.Errorf("got %v", err)
	}
}

func TestShare(t *testing.T) {
	parts := make([]part, 37)
	total := int64(0)
	for i := range parts {
		parts[i].rows = int64(i*i) * 1000
		total += parts[i].rows
	}
	seen := make(map[int]int)
	for task := range 5 {
		rows := int64(0)
		for _, i := range share(parts, task, 5) {
			seen[i]++
			rows += parts[i].rows
		}
		if rows > total/4 {
			t.Errorf("task %d has %d of %d rows", task, rows, total)
		}
	}
	for i := range parts {
		if seen[i] != 1 {
			t.Errorf("part %d is done %d times", i, seen[i])
		}
	}
}

// TestSorted merges into one order: nodes with clocks of their own, shards and
// spools, and checks it against the tiled timeline.
func TestSorted(t *testing.T) {
	for _, seal := range []bool{true, false} {
		dir := testRun{nodes: 3, seconds: 35, seal: seal, killed: -1}.write(t)
		tiled := whole(t, dir, Options{})
		want := timeline(t, dir, table.GPU)
		whole(t, dir, Options{Sort: true})
		got := timeline(t, dir, table.GPU)
		want.SortByTime(table.TLTimeNS, -1)
		times := want.Ints(table.TLTimeNS)
		gpu := want.Table.Index(gpuColumn)
		for from := 0; from < len(times); {
			to := from + 1
			for to < len(times) && times[to] == times[from] {
				to++
			}
			want.SortTies(from, to, table.TLNode, gpu)
			from = to
		}
		if got.Rows() != want.Rows() {
			t.Fatalf("%d rows, want %d", got.Rows(), want.Rows())
		}
		for i := range want.Table.Columns {
			for r := range want.Rows() {
				same := want.Valid(i)[r] == got.Valid(i)[r]
				switch want.Table.Columns[i].Type {
				case table.String:
					same = same && want.Strings(i)[r] == got.Strings(i)[r]
				case table.Float32, table.Float64:
					same = same && want.Floats(i)[r] == got.Floats(i)[r]
				default:
					same = same && want.Ints(i)[r] == got.Ints(i)[r]
				}
				if !same {
					t.Fatalf("row %d differs in %s", r, want.Table.Columns[i].Name)
				}
			}
		}
		sameTree(t, tiled, whole(t, dir, Options{}))
		noLeftovers(t, dir)
	}
}
