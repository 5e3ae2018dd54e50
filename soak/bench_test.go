package soak_test

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// recorded is the rows of a node's directory, second by second, as its agent
// flushed them. GSWARM_BENCH_NODE names the directory.
func recorded(b *testing.B) (seconds [][]*table.Batch, rows map[string]int64) {
	dir := os.Getenv("GSWARM_BENCH_NODE")
	if dir == "" {
		b.Skip("GSWARM_BENCH_NODE names no node's directory")
	}
	nd, err := shard.OpenNode(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer nd.Close()
	bySecond := map[int64]map[*table.Table]*table.Batch{}
	rows = map[string]int64{}
	for _, t := range table.All() {
		err := nd.Rows(t, func(from *table.Batch) error {
			for r, at := range from.Ints(table.ColT) {
				sec := bySecond[at/1e9]
				if sec == nil {
					sec = map[*table.Table]*table.Batch{}
					bySecond[at/1e9] = sec
				}
				if sec[t] == nil {
					sec[t] = table.NewBatch(t, 0)
				}
				sec[t].AppendRange(from, r, r+1)
				rows[t.Name]++
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	keys := make([]int64, 0, len(bySecond))
	for k := range bySecond {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		var all []*table.Batch
		for _, batch := range bySecond[k] {
			all = append(all, batch)
		}
		slices.SortFunc(all, func(a, b *table.Batch) int { return cmp.Compare(a.Table.Name, b.Table.Name) })
		seconds = append(seconds, all)
	}
	return seconds, rows
}

// cpu is the process's CPU time: on a machine that does other things, too, wall
// time says little.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func spool(b *testing.B, path string, seconds [][]*table.Batch) *shard.Spool {
	s, err := shard.CreateSpool(path, shard.SpoolMeta{Node: "n"})
	if err != nil {
		b.Fatal(err)
	}
	for _, sec := range seconds {
		for _, batch := range sec {
			if err := s.Append(batch); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// BenchmarkRecordedFlush is one flush of a recorded second, without sync.
func BenchmarkRecordedFlush(b *testing.B) {
	seconds, _ := recorded(b)
	s := spool(b, filepath.Join(b.TempDir(), "spool-0"), seconds[:2])
	before := s.Size()
	b.ReportAllocs()
	b.ResetTimer()
	begin := cpu(b)
	for i := range b.N {
		for _, batch := range seconds[i%len(seconds)] {
			if err := s.Append(batch); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu(b)-begin).Microseconds())/float64(b.N), "cpu-µs/second")
	b.ReportMetric(float64(s.Size()-before)/float64(b.N), "B/s")
}

// BenchmarkRecordedEnd is the flush, the end mark and the sync that a node's end
// owes.
func BenchmarkRecordedEnd(b *testing.B) {
	seconds, _ := recorded(b)
	for i := range b.N {
		b.StopTimer()
		path := filepath.Join(b.TempDir(), "spool-0")
		s := spool(b, path, seconds[:min(len(seconds), 60)])
		b.StartTimer()
		for _, batch := range seconds[i%len(seconds)] {
			if err := s.Append(batch); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.End(1, "done"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRecordedSeal seals all that was recorded, and says what a second of
// it costs and what a row of each table takes.
func BenchmarkRecordedSeal(b *testing.B) {
	seconds, rows := recorded(b)
	sizes := map[string]int64{}
	var spooled int64
	var used time.Duration
	for range b.N {
		b.StopTimer()
		s := spool(b, filepath.Join(b.TempDir(), "spool-0"), seconds)
		spooled = s.Size()
		if err := s.End(1, "tile"); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		begin := cpu(b)
		files, err := shard.Seal(s.Path())
		used += cpu(b) - begin
		b.StopTimer()
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range files {
			st, err := os.Stat(f)
			if err != nil {
				b.Fatal(err)
			}
			sizes[filepath.Base(f)] = st.Size()
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(used.Microseconds())/float64(b.N)/float64(len(seconds)), "cpu-µs/second")
	total, all, gpu := int64(0), int64(0), int64(0)
	for _, t := range table.All() {
		n, size := rows[t.Name], sizes[t.Name+"-0.parquet"]
		if n == 0 {
			continue
		}
		total, all = total+size, all+n
		if strings.HasPrefix(t.Name, "gpu") {
			gpu += size
		}
		b.Logf("%-16s %8d rows %9d bytes %7.1f B/row", t.Name, n, size, float64(size)/float64(n))
	}
	b.Logf("spool %d bytes, %.1f B/row; shards %d bytes, %.1f B/row; gpu* %.1f B per gpu row",
		spooled, float64(spooled)/float64(all), total, float64(total)/float64(all), float64(gpu)/float64(max(rows["gpu"], 1)))
}
