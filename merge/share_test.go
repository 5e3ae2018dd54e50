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
			_, err := Run(context.Background(), dir, Options{Task: i % tasks, Tasks: tasks})
			var busy *BusyError
			if err != nil && !errors.As(err, &busy) {
				t.Errorf("task %d: %v", i%tasks, err)
			}
		}()
	}
	all.Wait()
	// A task that came when all was over may have begun again: that share is
	// left for its other tasks. The next merge of the whole clears it.
	if _, err := Run(context.Background(), dir, Options{}); err != nil {
		t.Fatal(err)
	}
	sameTree(t, want, tree(t, dir))
	noLeftovers(t, dir)
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
