package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/analysis/plant"
	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/rows"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

const (
	rawBegin  = int64(4e14)            // the reference's raw clock when the run begins
	wallBegin = int64(1_763_640_000e9) // its wall clock then, a multiple of the tile
	ranksEach = 8
)

// settings is the run to make.
type settings struct {
	out         string
	nodes, made int
	length      time.Duration
}

func (s settings) node(i int) string { return fmt.Sprintf("node%04d", i) }

func (s settings) run() error {
	m, err := plant.Load()
	if err != nil {
		return err
	}
	c := m.Long(1, min(s.made, s.nodes), s.length.Nanoseconds())
	d := rundir.Dir(s.out)
	if err := os.MkdirAll(d.Nodes(), rundir.DirMode); err != nil {
		return err
	}
	end := time.Unix(0, wallBegin).Add(s.length).UTC()
	run := &rundir.Run{
		ID: "bench", Command: []string{"srun", "python", "train.py"}, Begin: time.Unix(0, wallBegin).UTC(), End: &end, Tile: plant.Tile, Interval: 100 * time.Millisecond,
		Reference: &rundir.Reference{Node: s.node(0), Anchor: clock.Anchor{Raw: clock.NodeTime(rawBegin), Realtime: wallBegin, Width: 100}},
	}
	for i := range s.nodes {
		run.Nodes = append(run.Nodes, s.node(i))
	}
	next, errs := make(chan int), make(chan error, s.nodes)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := range next {
				if err := s.write(d, i, c); err != nil {
					errs <- fmt.Errorf("%s: %w", s.node(i), err)
				}
			}
		})
	}
	for i := range s.nodes {
		next <- i
	}
	close(next)
	all.Wait()
	if len(errs) > 0 {
		return <-errs
	}
	return rundir.WriteRun(d, run)
}

// copied is one node of the run: a made node under another name.
type copied struct {
	index   int
	from    analysis.NodeFacts
	begin   int64 // of the made run
	offset  int64 // of its raw clock
	ppb     int64
	dir     string
	kv      map[string]string
	counted map[string]int64
}

// raw is what the node's raw clock shows at so many nanoseconds of the run.
func (n *copied) raw(at int64) int64 { return rawBegin + n.offset + at + at/1e6*n.ppb/1000 }

func (n *copied) uuid(gpu int64) string {
	return fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", n.index, gpu)
}

// write writes one node's shards and its account of itself.
func (s settings) write(d rundir.Dir, i int, c *plant.Case) error {
	n := &copied{index: i, from: c.Facts.Nodes[i%len(c.Facts.Nodes)], begin: c.Facts.BeginNS, dir: d.Node(s.node(i)), counted: map[string]int64{}}
	if i > 0 {
		n.offset, n.ppb = int64(i)*1e12, int64(i%41-20)*1000
	}
	if err := os.MkdirAll(n.dir, rundir.DirMode); err != nil {
		return err
	}
	meta := &rundir.NodeMeta{Node: s.node(i), End: &rundir.NodeEnd{Reason: "job ended"}, GPUs: n.gpus()}
	if err := rundir.WriteNodeMeta(d, s.node(i), meta); err != nil {
		return err
	}
	exchanges := n.exchanges(s.node(0), s.length)
	for _, t := range table.All() {
		if b := c.Source.Node(t, n.from.Node); b != nil && b.Rows() > 0 {
			n.counted[t.Name] = int64(b.Rows())
		}
	}
	if exchanges.Rows() > 0 {
		n.counted[table.ClockExchange.Name] = int64(exchanges.Rows())
	}
	set, err := json.Marshal(shard.Set{
		SpoolMeta: shard.SpoolMeta{FormatVersion: table.Version, Node: s.node(i), Tile: plant.Tile, Created: clock.NodeTime(n.raw(0))},
		End:       &shard.End{T: clock.NodeTime(n.raw(s.length.Nanoseconds())), Reason: "job ended"},
		Rows:      n.counted,
	})
	if err != nil {
		return err
	}
	n.kv = map[string]string{"gswarm.set": string(set)}
	if exchanges.Rows() > 0 {
		if err := n.shard(table.ClockExchange, func(f *shard.ParquetWriter) error { return f.Write(exchanges) }); err != nil {
			return err
		}
	}
	for _, t := range table.All() {
		if b := c.Source.Node(t, n.from.Node); b != nil && b.Rows() > 0 {
			if err := n.shard(t, func(f *shard.ParquetWriter) error { return n.table(f, t, b) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// gpus is what the node's meta.yaml says of them.
func (n *copied) gpus() []map[string]any {
	var all []map[string]any
	for _, g := range n.from.GPUs {
		all = append(all, map[string]any{
			"gpu": g.GPU, "uuid": n.uuid(int64(g.GPU)), "name": g.Name, "memory_bytes": g.MemoryBytes, "power_limit_mw": g.PowerLimitMW, "numa_node": g.NUMA, "clock_sm_max_mhz": g.ClockMaxMHz,
		})
	}
	return all
}

func (n *copied) shard(t *table.Table, fill func(*shard.ParquetWriter) error) error {
	f, err := shard.CreateParquet(filepath.Join(n.dir, t.Name+"-1.parquet"), t, maps.Clone(n.kv))
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := fill(f); err != nil {
		return err
	}
	return f.Close()
}

// table writes the rows of a table, a row group for each tile.
func (n *copied) table(f *shard.ParquetWriter, t *table.Table, from *table.Batch) error {
	const most = 1 << 14
	out := table.NewBatch(t, most)
	times := from.Ints(table.TLTimeNS)
	tile := func(i int) int64 { return max(0, n.when(t, times[i])) / int64(plant.Tile) }
	for i := 0; i < len(times); {
		end := i + 1
		for end < len(times) && end-i < most && tile(end) == tile(i) {
			end++
		}
		out.Reset()
		n.fill(out, t, from, i, end)
		if err := f.Write(out); err != nil {
			return err
		}
		if end < len(times) && tile(end) != tile(i) {
			if err := f.Cut(); err != nil {
				return err
			}
		}
		i = end
	}
	return nil
}

// when is the instant in the run at which a row was read: the driver's samples
// of power are fetched once a second.
func (n *copied) when(t *table.Table, at int64) int64 {
	at -= n.begin
	if t == table.GPUPower {
		return at/1e9*1e9 + 1e9
	}
	return at
}

// fill copies rows of the timeline's form into the shard's.
func (n *copied) fill(out *table.Batch, t *table.Table, from *table.Batch, first, end int) {
	out.AppendNulls(end - first)
	own := table.ColBegin
	if t.Shape == table.Windowed {
		own++
	}
	for c := own; c < len(t.Columns); c++ {
		src := c + table.TLRead + 1 - table.ColBegin
		copy(out.Valid(c), from.Valid(src)[first:end])
		copy(out.Ints(c), cut(from.Ints(src), first, end))
		copy(out.Floats(c), cut(from.Floats(src), first, end))
		copy(out.Strings(c), cut(from.Strings(src), first, end))
	}
	times := from.Ints(table.TLTimeNS)[first:end]
	for i, at := range times {
		out.Ints(table.ColT)[i], out.Valid(table.ColT)[i] = n.raw(n.when(t, at)), true
		out.Ints(table.ColRead)[i], out.Valid(table.ColRead)[i] = from.Ints(table.TLRead)[first+i], true
		if t.Shape == table.Windowed {
			out.Ints(table.ColBegin)[i], out.Valid(table.ColBegin)[i] = n.raw(from.Ints(table.TLBegin)[first+i]-n.begin), true
		}
	}
	switch t {
	case table.GPU, table.GPUActivity, table.GPUPower, table.GPUCounter, table.GPUProcess:
		var uuids [ranksEach]string
		for g := range uuids {
			uuids[g] = n.uuid(int64(g))
		}
		for i, g := range out.Ints(own) {
			out.Strings(own + 1)[i] = uuids[g]
		}
	}
	switch t {
	case table.GPUPower:
		for i, at := range times {
			out.Ints(table.PowStamp)[i] = (wallBegin + at - n.begin) / 1000
		}
	case table.GPUProcess:
		n.renumber(out.Ints(table.ProcRank))
	case table.Rank:
		n.renumber(out.Ints(table.RankRank))
	case table.Event:
		n.renumber(out.Ints(table.EventRank))
	case table.ClockBracket:
		for i, at := range times {
			out.Ints(table.BrRaw0)[i], out.Ints(table.BrRaw1)[i] = n.raw(at-n.begin)-600, n.raw(at-n.begin)+600
			out.Ints(table.BrRealtime)[i] = wallBegin + at - n.begin
		}
	}
}

func (n *copied) renumber(ranks []int64) {
	for i, r := range ranks {
		ranks[i] = int64(n.index*ranksEach) + r%ranksEach
	}
}

func cut[T any](s []T, first, end int) []T {
	if s == nil {
		return nil
	}
	return s[first:end]
}

// exchanges ties the node's clock to the reference's: a burst of eight every ten
// seconds.
func (n *copied) exchanges(peer string, length time.Duration) *table.Batch {
	b := table.NewBatch(table.ClockExchange, 8)
	if n.index == 0 {
		return b
	}
	for at := int64(0); at < length.Nanoseconds()+10e9; at += 10e9 {
		for q := range int64(8) {
			t := at + q*1e6
			rows.AppendExchange(b, clock.Exchange{
				Peer: peer, Burst: at / 1e9, Seq: int32(q), T1: clock.NodeTime(n.raw(t)), T2: clock.NodeTime(rawBegin + t + 20e3),
				T3: clock.NodeTime(rawBegin + t + 25e3), T4: clock.NodeTime(n.raw(t + 45e3)),
			})
		}
	}
	return b
}
