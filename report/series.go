package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/table"
)

// Grid divides a stretch of time into buckets of equal length.
type Grid struct {
	BeginNS  int64
	BucketNS int64
	Buckets  int
}

func gridOf(s analysis.Span, buckets int, least int64) Grid {
	length := max(s.EndNS-s.BeginNS, 1)
	g := Grid{BeginNS: s.BeginNS, BucketNS: max((length+int64(buckets)-1)/int64(buckets), least)}
	g.Buckets = int((length + g.BucketNS - 1) / g.BucketNS)
	return g
}

// bucket returns the bucket of an instant, and false outside of the grid.
func (g Grid) bucket(ns int64) (int, bool) {
	if ns < g.BeginNS {
		return 0, false
	}
	i := int((ns - g.BeginNS) / g.BucketNS)
	return i, i < g.Buckets
}

// Curve is one metric of one GPU, node or rank, bucket by bucket: mean, least
// and greatest reading. A bucket without a reading has a count of 0, and NaN.
type Curve struct {
	Mean, Min, Max []float32
	count          []int32
	// cells are the buckets while readings come in, side by side in memory.
	cells []cell
}

type cell struct {
	sum, min, max float32
	n             int32
}

func newCurve(buckets int) *Curve { return &Curve{cells: make([]cell, buckets)} }

func (c *Curve) add(bucket int, v float64) {
	f, at := float32(v), &c.cells[bucket]
	if at.n == 0 {
		at.min, at.max = f, f
	}
	at.min, at.max = min(at.min, f), max(at.max, f)
	at.sum += f
	at.n++
}

// finish makes the curve of what has come in.
func (c *Curve) finish() {
	n := len(c.cells)
	all := make([]float32, 3*n)
	c.Mean, c.Min, c.Max, c.count = all[:n:n], all[n:2*n:2*n], all[2*n:], make([]int32, n)
	nan := float32(math.NaN())
	for i, at := range c.cells {
		c.count[i] = at.n
		if at.n == 0 {
			c.Mean[i], c.Min[i], c.Max[i] = nan, nan, nan
		} else {
			c.Mean[i], c.Min[i], c.Max[i] = at.sum/float32(at.n), at.min, at.max
		}
	}
	c.cells = nil
}

// Subject is one GPU, node or rank and its curves, one for each metric of its
// kind; nil where nothing was read.
type Subject struct {
	analysis.Place
	Curves []*Curve
}

// Mark is what the job said of itself at an instant.
type Mark struct {
	NS   int64  `json:"ns"`
	Text string `json:"text"`
}

// Series are the curves of a run. Hosts and ranks are read each second, so their
// grid is coarser than the GPUs' where the run is short.
type Series struct {
	GPUGrid, HostGrid  Grid
	GPUs, Hosts, Ranks []*Subject
	Marks              []Mark
}

// drawn is a metric that is drawn as a curve.
type drawn struct {
	column string
	name   string
	unit   string
	scale  float64 // from the table's unit to the curve's
}

// The metrics of GPUs, hosts and ranks, by the index of their curves.
const (
	curveActive = iota
	curveTensor
	curveDRAM
	curveUtil
	curvePower
	curveMemory
	curveTemp
	curveClock
	curveNVLink
	curvePCIe
	gpuCurves
)

const (
	curveCPU = iota
	curveHostMemory
	hostCurves
)

const (
	curveCores = iota
	curveWaited
	rankCurves
)

const mib = 1.048576e-3 // from MiB/s to GB/s

var (
	gpuDrawn = [gpuCurves]drawn{
		curveActive: {"sm_active_pct", "SM active", "%", 1},
		curveTensor: {"tensor_pct", "tensor cores", "%", 1},
		curveDRAM:   {"dram_pct", "memory bandwidth", "%", 1},
		curveUtil:   {"util_gpu_pct", "“GPU utilisation”", "%", 1},
		curvePower:  {"power_now_mw", "power", "W", 1e-3},
		curveMemory: {"mem_used_bytes", "memory used", "GB", 1e-9},
		curveTemp:   {"temp_c", "temperature", "°C", 1},
		curveClock:  {"clock_sm_mhz", "SM clock", "MHz", 1},
		curveNVLink: {"nvlink_tx_mib_s", "NVLink, sent", "GB/s", mib},
		curvePCIe:   {"pcie_rx_mib_s", "PCIe, both ways", "GB/s", mib},
	}
	hostDrawn = [hostCurves]drawn{
		curveCPU:        {"cpu", "CPUs busy", "%", 1},
		curveHostMemory: {"mem_available_bytes", "memory used", "GB", 1e-9},
	}
	rankDrawn = [rankCurves]drawn{
		curveCores:  {"cores", "cores in use", "cores", 1},
		curveWaited: {"run_delay_ns", "waited for a core", "%", 1},
	}
)

// The shortest buckets: two GPM windows, and two seconds where counters are
// read each second.
const (
	leastGPUBucket  = int64(250e6)
	leastHostBucket = int64(2e9)
)

// ReadSeries makes the curves of a result from the rows that it was made of, in
// one pass over each table, several tables at a time. Of every bucket it keeps the mean and the extremes,
// so that a peak of one reading stays visible however long the run.
func ReadSeries(ctx context.Context, src analysis.Source, r *analysis.Result, buckets int) (*Series, error) {
	whole := runSpan(r)
	in := &intake{
		src: src, grid: gridOf(whole, buckets, leastGPUBucket), slow: gridOf(whole, buckets, leastHostBucket),
		gpus: make(map[gpuKey]*Subject), units: make(map[gpuKey]*Subject), hosts: make(map[string]*Subject), ranks: make(map[rankKey]*Subject),
	}
	// Each fills maps of its own.
	reads := []func(context.Context) error{in.readGPU, in.readActivity, in.readHost, in.readRank, in.readMarks}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(reads))
	var all sync.WaitGroup
	for i, read := range reads {
		all.Go(func() {
			if errs[i] = read(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, fmt.Errorf("reading the curves: %w", err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return in.series(r), nil
}

// runSpan is what there is to draw: the phases cover all readings, the job's own
// begin and end need not.
func runSpan(r *analysis.Result) analysis.Span {
	s := r.Job.Span
	if n := len(r.Phases); n > 0 {
		s = r.Phases[0].Span
		for _, p := range r.Phases {
			s.BeginNS, s.EndNS = min(s.BeginNS, p.BeginNS), max(s.EndNS, p.EndNS)
		}
	}
	return s
}

type gpuKey struct {
	node string
	gpu  int64
}

func keyOf(p analysis.Place) gpuKey {
	if p.GPU == nil {
		return gpuKey{p.Node, -1}
	}
	return gpuKey{p.Node, int64(*p.GPU)}
}

type rankKey struct {
	node string
	rank int64
}

// lookup finds the curves of a row's GPU. Rows come node after node, so what the
// last row's node has is at hand.
type lookup struct {
	all  map[gpuKey]*Subject
	node string
	here []*Subject
}

func (l *lookup) gpu(node string, gpu int64) *Subject {
	const most = 1024 // a GPU's ordinal; a greater one takes the long way
	if node != l.node || l.here == nil {
		l.node, l.here = node, make([]*Subject, 0, 16)
	}
	if gpu < 0 || gpu >= most {
		return subjectOf(l.all, gpuKey{node, gpu}, gpuCurves)
	}
	for int(gpu) >= len(l.here) {
		l.here = append(l.here, nil)
	}
	if l.here[gpu] == nil {
		l.here[gpu] = subjectOf(l.all, gpuKey{node, gpu}, gpuCurves)
	}
	return l.here[gpu]
}

// intake fills curves from rows.
type intake struct {
	src        analysis.Source
	grid, slow Grid
	gpus       map[gpuKey]*Subject // of the table gpu
	units      map[gpuKey]*Subject // of gpu_activity
	hosts      map[string]*Subject
	ranks      map[rankKey]*Subject
	marks      []Mark
}

func subjectOf[K comparable](all map[K]*Subject, key K, curves int) *Subject {
	s := all[key]
	if s == nil {
		s = &Subject{Curves: make([]*Curve, curves)}
		all[key] = s
	}
	return s
}

func (s *Subject) add(curve, buckets, bucket int, v float64) {
	if s.Curves[curve] == nil {
		s.Curves[curve] = newCurve(buckets)
	}
	s.Curves[curve].add(bucket, v)
}

// columnsOf returns the indexes of columns in the timeline's form of a table.
func columnsOf(t *table.Table, names ...string) []int {
	form := table.Timeline(t)
	at := make([]int, len(names))
	for i, n := range names {
		at[i] = form.Index(n)
	}
	return at
}

func (in *intake) readGPU(ctx context.Context) error {
	c := columnsOf(table.GPU, table.TimeNS, table.Node, "gpu", "util_gpu_pct", "power_now_mw", "mem_used_bytes", "temp_c", "clock_sm_mhz", "power_avg_mw")
	curves := []int{curveUtil, curvePower, curveMemory, curveTemp, curveClock}
	of := lookup{all: in.gpus}
	return in.src.Rows(ctx, table.GPU, c, func(b *table.Batch) error {
		times, nodes, gpus := b.Ints(c[0]), b.Strings(c[1]), b.Ints(c[2])
		now, avg := b.Valid(c[4]), b.Valid(c[8])
		for r := range b.Rows() {
			at, ok := in.grid.bucket(times[r])
			if !ok {
				continue
			}
			s := of.gpu(nodes[r], gpus[r])
			for i, curve := range curves {
				if b.Valid(c[3+i])[r] {
					s.add(curve, in.grid.Buckets, at, float64(b.Ints(c[3+i])[r])*gpuDrawn[curve].scale)
				}
			}
			if !now[r] && avg[r] {
				s.add(curvePower, in.grid.Buckets, at, float64(b.Ints(c[8])[r])*gpuDrawn[curvePower].scale)
			}
		}
		return nil
	})
}

// readActivity puts a window where its middle lies.
func (in *intake) readActivity(ctx context.Context) error {
	c := columnsOf(table.GPUActivity, table.TimeNS, table.Node, "gpu", table.TimeBegin, "sm_active_pct", "tensor_pct", "dram_pct", "nvlink_tx_mib_s", "pcie_rx_mib_s", "pcie_tx_mib_s")
	curves := []int{curveActive, curveTensor, curveDRAM, curveNVLink}
	of := lookup{all: in.units}
	return in.src.Rows(ctx, table.GPUActivity, c, func(b *table.Batch) error {
		ends, nodes, gpus, begins := b.Ints(c[0]), b.Strings(c[1]), b.Ints(c[2]), b.Ints(c[3])
		rx, tx := b.Floats(c[8]), b.Floats(c[9])
		for r := range b.Rows() {
			at, ok := in.grid.bucket(begins[r] + (ends[r]-begins[r])/2)
			if !ok {
				continue
			}
			s := of.gpu(nodes[r], gpus[r])
			for i, curve := range curves {
				if b.Valid(c[4+i])[r] {
					s.add(curve, in.grid.Buckets, at, b.Floats(c[4+i])[r]*gpuDrawn[curve].scale)
				}
			}
			if b.Valid(c[8])[r] && b.Valid(c[9])[r] {
				s.add(curvePCIe, in.grid.Buckets, at, (rx[r]+tx[r])*gpuDrawn[curvePCIe].scale)
			}
		}
		return nil
	})
}

// readHost turns the kernel's counters of CPU time into the share that was not
// idle. Waiting for I/O is idle, as the kernel counts it.
func (in *intake) readHost(ctx context.Context) error {
	c := columnsOf(table.Host, table.TimeNS, table.Node, "mem_total_bytes", "mem_available_bytes", "cpu_idle_ns", "cpu_iowait_ns",
		"cpu_user_ns", "cpu_nice_ns", "cpu_system_ns", "cpu_irq_ns", "cpu_softirq_ns", "cpu_steal_ns")
	type reading struct{ idle, all int64 }
	last := make(map[string]reading)
	return in.src.Rows(ctx, table.Host, c, func(b *table.Batch) error {
		for r, node := range b.Strings(c[1]) {
			var now reading
			whole := true
			for i, col := range c[4:] {
				whole = whole && b.Valid(col)[r]
				now.all += b.Ints(col)[r]
				if i < 2 {
					now.idle += b.Ints(col)[r]
				}
			}
			before, known := last[node]
			if whole {
				last[node] = now
			}
			at, ok := in.slow.bucket(b.Ints(c[0])[r])
			if !ok {
				continue
			}
			s := subjectOf(in.hosts, node, hostCurves)
			if all := now.all - before.all; whole && known && all > 0 && now.idle >= before.idle {
				const hundred = 100
				s.add(curveCPU, in.slow.Buckets, at, hundred*(1-float64(now.idle-before.idle)/float64(all)))
			}
			if b.Valid(c[2])[r] && b.Valid(c[3])[r] {
				s.add(curveHostMemory, in.slow.Buckets, at, float64(b.Ints(c[2])[r]-b.Ints(c[3])[r])*hostDrawn[curveHostMemory].scale)
			}
		}
		return nil
	})
}

// readRank turns the CPU time of each rank's own process into cores in use.
func (in *intake) readRank(ctx context.Context) error {
	c := columnsOf(table.Rank, table.TimeNS, table.Node, "rank", "pid", "role", "cpu_user_ns", "cpu_system_ns", "run_delay_ns")
	type process struct {
		node string
		pid  int64
	}
	type reading struct{ at, cpu, delay int64 }
	last := make(map[process]reading)
	return in.src.Rows(ctx, table.Rank, c, func(b *table.Batch) error {
		for r, node := range b.Strings(c[1]) {
			if b.Strings(c[4])[r] != "rank" || !b.Valid(c[2])[r] || !b.Valid(c[5])[r] || !b.Valid(c[6])[r] {
				continue
			}
			key := process{node, b.Ints(c[3])[r]}
			now := reading{b.Ints(c[0])[r], b.Ints(c[5])[r] + b.Ints(c[6])[r], b.Ints(c[7])[r]}
			before, known := last[key]
			last[key] = now
			at, ok := in.slow.bucket(now.at)
			took := float64(now.at - before.at)
			if !ok || !known || took <= 0 || now.cpu < before.cpu {
				continue
			}
			s := subjectOf(in.ranks, rankKey{node, b.Ints(c[2])[r]}, rankCurves)
			s.add(curveCores, in.slow.Buckets, at, float64(now.cpu-before.cpu)/took)
			if b.Valid(c[7])[r] && now.delay >= before.delay {
				s.add(curveWaited, in.slow.Buckets, at, 100*float64(now.delay-before.delay)/took)
			}
		}
		return nil
	})
}

// mostMarks is how many of the job's marks are shown; a job may make thousands.
const mostMarks = 200

func (in *intake) readMarks(ctx context.Context) error {
	c := columnsOf(table.Event, table.TimeNS, "kind", "detail")
	err := in.src.Rows(ctx, table.Event, c, func(b *table.Batch) error {
		for r, kind := range b.Strings(c[1]) {
			if kind != "mark" {
				continue
			}
			var detail struct{ Text string }
			if json.Unmarshal([]byte(b.Strings(c[2])[r]), &detail) == nil {
				in.marks = append(in.marks, Mark{b.Ints(c[0])[r], detail.Text})
			}
		}
		return nil
	})
	if every := (len(in.marks) + mostMarks - 1) / mostMarks; every > 1 {
		kept := in.marks[:0]
		for i := 0; i < len(in.marks); i += every {
			kept = append(kept, in.marks[i])
		}
		in.marks = kept
	}
	return err
}

// series puts the curves in the order of the result: the i-th GPU is the
// result's i-th, read or not.
func (in *intake) series(r *analysis.Result) *Series {
	s := &Series{GPUGrid: in.grid, HostGrid: in.slow, Marks: in.marks}
	for _, g := range r.GPUs {
		have := in.gpus[keyOf(g.Place)]
		if have == nil {
			have = &Subject{Curves: make([]*Curve, gpuCurves)}
		}
		if units := in.units[keyOf(g.Place)]; units != nil {
			for i, c := range units.Curves {
				if c != nil {
					have.Curves[i] = c
				}
			}
		}
		have.Place = g.Place
		s.GPUs = append(s.GPUs, have)
	}
	for _, h := range r.Hosts {
		if have := in.hosts[h.Node]; have != nil {
			have.Node = h.Node
			s.Hosts = append(s.Hosts, have)
		}
	}
	for _, k := range r.Ranks {
		if k.Rank == nil {
			continue
		}
		if have := in.ranks[rankKey{k.Node, int64(*k.Rank)}]; have != nil {
			have.Place = k.Place
			s.Ranks = append(s.Ranks, have)
		}
	}
	for _, list := range [][]*Subject{s.GPUs, s.Hosts, s.Ranks} {
		for _, subject := range list {
			for _, c := range subject.Curves {
				if c != nil {
					c.finish()
				}
			}
		}
	}
	return s
}
