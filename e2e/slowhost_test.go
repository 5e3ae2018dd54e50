//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gswarm/gswarm/table"
)

// growth is what a rank's process did between its first row and its last.
type growth struct {
	first, last map[string]any
	rows        int
}

// of returns a counter's growth by the second.
func (g *growth) of(column string) float64 {
	a, aok := g.first[column].(int64)
	z, zok := g.last[column].(int64)
	t := g.last[table.TimeNS].(int64) - g.first[table.TimeNS].(int64)
	if !aok || !zok || t <= 0 {
		return -1
	}
	return float64(z-a) * 1e9 / float64(t)
}

// TestSlowHost runs four ranks, each with a trouble of its own host's making, and
// looks for each in the tables: it has to stand out at its rank, and only
// there. It has the cluster to itself, since it measures who waits for a CPU.
func TestSlowHost(t *testing.T) {
	c := up(t, "cgroup")
	for _, position := range []string{"front", "behind"} {
		t.Run(position, func(t *testing.T) {
			b := c.box(t)
			data := b.path("data")
			must(t, os.WriteFile(data, nil, 0o600))
			must(t, os.Truncate(data, 600<<20))
			command := "gswarm wrap -- srun --cpus-per-task=2 python3"
			if position == "behind" {
				command = "srun --cpus-per-task=2 gswarm wrap -- python3"
			}
			r := b.batch("-N4 -n4 --cpus-per-task=2 --mem=150", fmt.Sprintf("export DATA=%s\n%s %s/e2e/testdata/slowhost.py\n", data, command, repo(t)))
			dir := "gswarm-" + r.job
			if position == "behind" {
				dir += ".0"
			}
			if m := b.gswarm("merge", dir); m.code != 0 {
				t.Fatalf("merge: %d\n%s%s", m.code, m.stdout, m.stderr)
			}
			ranks := map[int64]*growth{}
			var others []string
			b.rows(dir, table.Rank, func(cells map[string]any) {
				n, ok := cells["rank"].(int64)
				if cells["role"] != "rank" {
					others = append(others, fmt.Sprint(cells["role"], " ", cells["name"]))
					return
				}
				if !ok {
					t.Errorf("a rank without a number: %v", cells)
					return
				}
				if cells["name"] != "python3" {
					return
				}
				if want := fmt.Sprintf("n%d", n+1); cells["node"] != want {
					t.Errorf("rank %d on %v, want %s", n, cells["node"], want)
				}
				g := ranks[n]
				if g == nil {
					g = &growth{first: cells}
					ranks[n] = g
				}
				g.last = cells
				g.rows++
			})
			if len(ranks) != 4 {
				t.Fatalf("%d ranks found, and %q", len(ranks), others)
			}
			if all := strings.Join(others, ","); !strings.Contains(all, "other sh") || position == "front" && !strings.Contains(all, "launcher srun") {
				t.Errorf("processes beside the ranks: %q", all)
			}
			for _, column := range []string{
				"affinity_count", "run_delay_ns", "switches_involuntary_count", "faults_major_count", "cgroup_mem_limit_hits_count", "read_call_bytes",
			} {
				for n := range int64(4) {
					t.Logf("rank %d %-28s last %v, %.0f a second, %d rows", n, column, ranks[n].last[column], ranks[n].of(column), ranks[n].rows)
				}
			}
			// most asserts that a rank's value is so many times that of
			// those it is held against.
			most := func(column string, rank int64, times float64, than ...int64) {
				t.Helper()
				for _, n := range than {
					if mine, other := ranks[rank].of(column), ranks[n].of(column); mine <= times*other || mine <= 0 {
						t.Errorf("%s: rank %d has %.0f a second, rank %d %.0f", column, rank, mine, n, other)
					}
				}
			}
			if ranks[0].last["affinity_count"] != int64(1) || ranks[3].last["affinity_count"] == int64(1) {
				t.Errorf("affinity: rank 0 %v, rank 3 %v", ranks[0].last["affinity"], ranks[3].last["affinity"])
			}
			if d := ranks[1].of("run_delay_ns"); d < 0.2e9 {
				t.Errorf("rank 1 waited for a CPU %.3f of the time", d/1e9)
			}
			most("run_delay_ns", 1, 3, 0, 3)
			most("run_delay_ns", 1, 1, 2) // which computes too
			most("switches_involuntary_count", 1, 2, 0, 3)
			most("faults_major_count", 2, 2, 0, 1, 3)
			most("cgroup_mem_limit_hits_count", 2, 10, 0, 1, 3)
			most("read_call_bytes", 0, 10, 3)
			if c.proctrack == "cgroup" && ranks[2].last["cgroup_mem_limit_bytes"] != int64(150<<20) {
				t.Errorf("memory limit: %v", ranks[2].last["cgroup_mem_limit_bytes"])
			}
			marks := map[string]int{}
			b.rows(dir, table.Event, func(cells map[string]any) {
				if cells["kind"] == "mark" {
					marks[fmt.Sprint(cells["rank"])]++
				}
			})
			for n := range 4 {
				if marks[fmt.Sprint(n)] != 2 {
					t.Errorf("marks by rank: %v", marks)
				}
			}
		})
	}
}
