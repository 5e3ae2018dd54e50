// Command mergebench makes a run directory of made-up shards for the benchmark
// of the merge: as many nodes and rows as asked for, each node with a clock of
// its own and the exchanges that tie it to the first. It is deterministic and no
// part of gswarm's binary.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/rows"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

const (
	base = int64(4e14)            // the reference's raw clock when the run begins
	wall = int64(1_763_640_000e9) // what its wall clock shows then: a multiple of every tile
	gpus = 8
	tick = int64(100e6)
)

type settings struct {
	out   string
	table string
	nodes int
	rows  int64
	tile  time.Duration
	host  bool
	times bool
	// groups is the number of row groups of a timeline of which only the
	// footers matter.
	groups int
}

func main() {
	var s settings
	flag.StringVar(&s.out, "o", "", "the run directory to make")
	flag.StringVar(&s.table, "table", "host", "the table that gets the rows: host has 27 columns, gpu is what queries are about")
	flag.IntVar(&s.nodes, "nodes", 64, "nodes, each with one shard")
	flag.Int64Var(&s.rows, "rows", 50e6, "rows of the table, over all nodes")
	flag.DurationVar(&s.tile, "tile", 5*time.Minute, "length of the stretch that a row group holds")
	flag.BoolVar(&s.host, "with-host", false, "also one row of host for each node and second")
	flag.BoolVar(&s.times, "times", false, "instead decode, correct and encode the time columns of the run, and write nothing")
	footers := flag.String("footers", "", "instead write timelines of -groups row groups of few rows, with so many in a file: 128,512")
	flag.IntVar(&s.groups, "groups", 12*1024, "row groups of a timeline of -footers")
	flag.Parse()
	t, perFile, err := table.ByName(s.table), []int(nil), error(nil)
	if *footers != "" {
		perFile, err = numbers(*footers)
	}
	if s.out == "" || t == nil || t.Shape == table.Windowed || s.nodes < 1 || err != nil {
		flag.Usage()
		os.Exit(2)
	}
	do := s.run
	switch {
	case s.times:
		do = s.correct
	case perFile != nil:
		do = func() error { return s.footers(perFile) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "mergebench:", err)
		os.Exit(1)
	}
}

func (s settings) run() error {
	d := rundir.Dir(s.out)
	if err := os.MkdirAll(d.Nodes(), rundir.DirMode); err != nil {
		return err
	}
	end := time.Unix(0, wall+s.duration()).UTC()
	run := &rundir.Run{
		ID: "bench", Begin: time.Unix(0, wall).UTC(), End: &end, Tile: s.tile,
		Reference: &rundir.Reference{Node: s.node(0), Anchor: clock.Anchor{Raw: clock.NodeTime(base), Realtime: wall, Width: 100}},
	}
	for i := range s.nodes {
		run.Nodes = append(run.Nodes, s.node(i))
	}
	next, errs := make(chan int), make(chan error, s.nodes)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range next {
				if err := s.write(d, i); err != nil {
					errs <- err
				}
			}
		}()
	}
	for i := range s.nodes {
		next <- i
	}
	close(next)
	all.Wait()
	if len(errs) > 0 {
		return <-errs
	}
	if err := s.writeClocks(d); err != nil {
		return err
	}
	return rundir.WriteRun(d, run)
}

// writeClocks tells other programs what gswarm finds out from the exchanges:
// each node's raw clock when the run begins, and how fast it runs.
func (s settings) writeClocks(d rundir.Dir) error {
	text := "node,raw0,ppb,wall0\n"
	for i := range s.nodes {
		c := clockOf(i)
		text += fmt.Sprintf("%s,%d,%d,%d\n", s.node(i), c.at(base), c.ppb, wall)
	}
	return os.WriteFile(d.Join("clocks.csv"), []byte(text), rundir.FileMode)
}

func (s settings) node(i int) string { return fmt.Sprintf("node%04d", i) }

func (s settings) perNode() int64 { return (s.rows + int64(s.nodes) - 1) / int64(s.nodes) }

// duration is how long the run lasted: a row for each GPU and tick.
func (s settings) duration() int64 { return (s.perNode() + gpus - 1) / gpus * tick }

// skewed is a node's clock.
type skewed struct{ offset, ppb int64 }

func clockOf(node int) skewed {
	if node == 0 {
		return skewed{}
	}
	return skewed{offset: int64(node) * 1e12, ppb: int64(node%41-20) * 1000}
}

func (c skewed) at(t int64) int64 { return c.offset + t + (t-base)/1e6*c.ppb/1000 }

func (s settings) write(d rundir.Dir, i int) error {
	name := s.node(i)
	if err := os.MkdirAll(d.Node(name), rundir.DirMode); err != nil {
		return err
	}
	if err := rundir.WriteNodeMeta(d, name, &rundir.NodeMeta{Node: name, End: &rundir.NodeEnd{Reason: "job ended"}}); err != nil {
		return err
	}
	c := clockOf(i)
	rng := rand.New(rand.NewPCG(1, uint64(i))) //nolint:gosec // made-up data
	t := table.ByName(s.table)
	seconds := s.duration() / 1e9
	w := &writer{dir: d.Node(name), kv: map[string]string{}}
	set := shard.Set{
		SpoolMeta: shard.SpoolMeta{FormatVersion: table.Version, Node: name, Tile: s.tile, Created: clock.NodeTime(c.at(base))},
		End:       &shard.End{T: clock.NodeTime(c.at(base + s.duration())), Reason: "job ended"},
		Rows:      map[string]int64{t.Name: s.perNode(), table.ClockExchange.Name: 0},
	}
	ex := exchanges(i, c, seconds, s.node(0))
	set.Rows[table.ClockExchange.Name] = int64(ex.Rows())
	if s.host && t != table.Host {
		set.Rows[table.Host.Name] = seconds
	}
	kv, err := json.Marshal(set)
	if err != nil {
		return err
	}
	w.kv["gswarm.set"] = string(kv)
	if ex.Rows() > 0 {
		if err := w.all(ex); err != nil {
			return err
		}
	} else {
		delete(set.Rows, table.ClockExchange.Name)
		kv, err := json.Marshal(set)
		if err != nil {
			return err
		}
		w.kv["gswarm.set"] = string(kv)
	}
	if s.host && t != table.Host {
		if err := w.each(table.Host, seconds, s.tile, 1e9, 1, c, rng); err != nil {
			return err
		}
	}
	return w.each(t, s.perNode(), s.tile, tick, gpus, c, rng)
}

type writer struct {
	dir string
	kv  map[string]string
}

func (w *writer) create(t *table.Table) (*shard.ParquetWriter, error) {
	return shard.CreateParquet(fmt.Sprintf("%s/%s-1.parquet", w.dir, t.Name), t, w.kv)
}

func (w *writer) all(b *table.Batch) error {
	f, err := w.create(b.Table)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := f.Write(b); err != nil {
		return err
	}
	return f.Close()
}

// each writes n rows, a row group for each tile.
func (w *writer) each(t *table.Table, n int64, tile time.Duration, step, perStep int64, c skewed, rng *rand.Rand) error {
	f, err := w.create(t)
	if err != nil {
		return err
	}
	defer f.Abort()
	m := newMaker(t, rng)
	b := table.NewBatch(t, 1<<12)
	last := int64(0)
	for i := range n {
		at := i/perStep*step + i%perStep*50e3
		if k := at / int64(tile); k != last || b.Rows() >= 1<<14 {
			if err := f.Write(b); err != nil {
				return err
			}
			b.Reset()
			if k != last {
				if err := f.Cut(); err != nil {
					return err
				}
				last = k
			}
		}
		m.row(b, c.at(base+at)+rng.Int64N(5000), i%perStep)
	}
	if err := f.Write(b); err != nil {
		return err
	}
	return f.Close()
}

// maker makes rows that compress about as well as real ones: counters that
// grow unevenly, levels that move little, and a third of noise.
type maker struct {
	t     *table.Table
	rng   *rand.Rand
	state [gpus][]int64
	uuid  [gpus]string
}

func newMaker(t *table.Table, rng *rand.Rand) *maker {
	m := &maker{t: t, rng: rng}
	for g := range m.state {
		m.state[g] = make([]int64, len(t.Columns))
		m.uuid[g] = fmt.Sprintf("GPU-%08x-%04x-4000-8000-%012x", rng.Uint32(), g, rng.Uint64()>>16)
	}
	return m
}

func (m *maker) row(b *table.Batch, t, g int64) {
	r := b.Append()
	r.Read(t, t+20e3+m.rng.Int64N(20e3))
	for i, c := range m.t.Columns {
		if i < table.ColBegin {
			continue
		}
		v := &m.state[g][i]
		switch {
		case c.Name == "gpu":
			r.Int(i, g)
		case c.Name == "gpu_uuid":
			r.String(i, m.uuid[g])
		case c.Type == table.String:
			r.String(i, "x")
		case c.Type == table.Float32 || c.Type == table.Float64:
			r.Float(i, float64(m.rng.Float32())*100)
		case c.Unit == "percent":
			r.Int(i, m.rng.Int64N(101))
		case c.Name == "power_now_mw" || c.Name == "power_avg_mw":
			r.Int(i, 400e3+g*7e3+m.rng.Int64N(60e3))
		case c.Type == table.Int32:
			if m.rng.IntN(16) == 0 {
				*v += m.rng.Int64N(3) - 1
			}
			r.Int(i, 40+*v)
		case i%3 == 0: // a counter that grows by noise
			*v += m.rng.Int64N(1 << 20)
			r.Int(i, *v)
		case i%3 == 1: // a level
			*v += m.rng.Int64N(1<<13) - 1<<12
			r.Int(i, 1<<34+*v<<12)
		default: // a counter that mostly stands
			if m.rng.IntN(8) == 0 {
				*v += 10e6
			}
			r.Int(i, *v)
		}
	}
}

// exchanges ties a node's clock to the first node's: a burst of eight every ten
// seconds.
func exchanges(node int, c skewed, seconds int64, peer string) *table.Batch {
	b := table.NewBatch(table.ClockExchange, 8)
	if node == 0 {
		return b
	}
	for sec := int64(0); sec <= seconds+1; sec += 10 {
		for q := range int64(8) {
			t1 := base + sec*1e9 + q*1e6
			rows.AppendExchange(b, clock.Exchange{
				Peer: peer, Burst: sec, Seq: int32(q), T1: clock.NodeTime(c.at(t1)),
				T2: clock.NodeTime(t1 + 20e3), T3: clock.NodeTime(t1 + 25e3), T4: clock.NodeTime(c.at(t1 + 45e3)),
			})
		}
	}
	return b
}
