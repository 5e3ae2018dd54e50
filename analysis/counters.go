package analysis

import (
	"context"
	"strconv"

	"github.com/gswarm/gswarm/table"
)

// field is what a counter, or the count of a state, adds up to in a block.
type field int

// The fields, of a rank, of a node and of a GPU. Times are in seconds.
const (
	// observed is the time that the counters of the block span: what the
	// others are held against.
	observed field = iota

	rankCPU       // CPU time
	rankDelay     // time ready to run, waiting for a core
	rankThrottled // time kept from running by a quota, over CPUs
	rankMajor     // page faults that waited for I/O
	helperCPU     // CPU time of its helpers, which rankCPU holds, too
	rankIODelay   // time waited for block I/O
	rankLimitHits // times that the memory limit was run into
	rankOOM       // processes killed for memory
	rankPSIMem    // time some task of the group waited for memory
	rankPSIIO     // time some task of the group waited for I/O
	rankPSICPU    // time some task of the group waited for a CPU
	rankRows      // readings of the rank's own process
	rankBlocked   // of them with the main thread in an uninterruptible wait
	helperRows    // readings of its helpers
	helperBlocked // of them in an uninterruptible wait

	nodeBusy       // CPU time that was not idle
	nodeIdle       // CPU time that was
	nodeIOWait     // CPU time idle with I/O outstanding
	nodePSICPU     // time some task waited for a CPU
	nodePSIMem     // time some task waited for memory
	nodePSIIO      // time some task waited for I/O
	nodeMajor      // page faults that waited for I/O
	nodeSwap       // bytes swapped in and out
	nodeReclaim    // pages looked through by programs themselves
	nodeOOM        // processes killed for memory
	nodeSegments   // TCP segments sent
	nodeRetrans    // TCP segments sent again
	nodeNetErrors  // errors and drops of network interfaces
	nodeFabric     // bytes over RDMA ports
	nodeFabricErrs // errors and repeats of RDMA ports
	nodeFabricWait // ticks in which there was something to send and no credit
	nodeMountWait  // timeouts of network filesystems

	gpuLinkReplay
	gpuLinkRecovery
	gpuLinkCRC
	gpuPCIeReplay
	gpuECC
	gpuECCUncorrected
	gpuRemapped
	gpuThrottlePower
	gpuThrottleThermal
	gpuThrottleBrake

	fields
)

// counted holds the fields of a block. Most counters of most blocks are zero,
// so only those of the table's own kind are kept: see counterReader.
type counted struct{ v [16]float32 }

func (c *counted) add(o *counted) {
	for i := range c.v {
		c.v[i] += o.v[i]
	}
}

// counterColumn says which field a counter's growth is added to.
type counterColumn struct {
	column int
	field  field
	scale  float64
}

// counterTrack is what counters tell of one rank, node or GPU.
type counterTrack struct {
	track[counted, *counted]
	slots *[fields]int8
	block *int64
	// main is the key whose rows count the time.
	main string
	last map[string]*counterRow
}

// counterRow is a row that the next one of its key is held against.
type counterRow struct {
	t int64
	v []int64
	// at is when the value of a column that is not in every row was read.
	at []int64
}

// since adds up a field over a span; 0 where nothing was read.
func (c *counterTrack) since(f field, s Span) float64 {
	if c == nil || c.slots[f] < 0 || c.n == 0 {
		return 0
	}
	sum := c.sum(floorDiv(s.BeginNS, *c.block), floorDiv(s.EndNS-1, *c.block)+1)
	return float64(sum.v[c.slots[f]])
}

// share is a field over the time observed in a span; false where nothing was
// observed.
func (c *counterTrack) share(f field, s Span) (float64, bool) {
	if c == nil {
		return 0, false
	}
	t := c.since(observed, s)
	if t <= 0 {
		return 0, false
	}
	return c.since(f, s) / t, true
}

// counterReader adds up the growth of the counters of one table.
type counterReader struct {
	tracks[counterTrack]
	block int64
	cells int
	slots [fields]int8
	used  int8
}

func newCounterReader(block int64) *counterReader {
	r := &counterReader{block: block}
	for f := range r.slots {
		r.slots[f] = -1
	}
	r.slots[observed], r.used = 0, 1
	return r
}

// declare gives the fields a place in the cells.
func (r *counterReader) declare(columns []counterColumn, more ...field) {
	for _, c := range columns {
		more = append(more, c.field)
	}
	for _, f := range more {
		if r.slots[f] < 0 {
			r.slots[f] = r.used
			r.used++
		}
	}
}

// entity returns the track of a number in a node.
func (r *counterReader) entity(node string, i int64) *counterTrack {
	e := r.get(node, i)
	if e != nil && e.last == nil {
		e.slots, e.block, e.last = &r.slots, &r.block, map[string]*counterRow{}
	}
	return e
}

// grow adds what the counters of row i of b have grown by since the row before
// of the same key. A counter that went back counts from there. Time is observed
// where main is set: once for each entity and instant.
func (r *counterReader) grow(e *counterTrack, key string, t int64, b *table.Batch, i int, columns []counterColumn, main bool) *counted {
	last := e.last[key]
	if last == nil {
		last = &counterRow{t: t, v: make([]int64, len(columns)), at: make([]int64, len(columns))}
		e.last[key] = last
	}
	had := e.n
	cell := e.at(floorDiv(t, r.block))
	if cell == nil {
		return nil
	}
	r.cells += e.n - had
	for k, c := range columns {
		if !b.Valid(c.column)[i] {
			continue
		}
		v := b.Ints(c.column)[i]
		if last.at[k] != 0 && v > last.v[k] {
			cell.v[r.slots[c.field]] += float32(float64(v-last.v[k]) * c.scale)
		}
		last.v[k], last.at[k] = v, t
	}
	if main && t > last.t {
		cell.v[r.slots[observed]] += float32(float64(t-last.t) / 1e9)
	}
	last.t = t
	return cell
}

// maxCounterCells is how many cells a table of counters may take before blocks
// are made twice as long.
const maxCounterCells = 1 << 18

// shrink folds the blocks where they have become too many.
func (r *counterReader) shrink() {
	if r.cells <= maxCounterCells {
		return
	}
	r.block *= 2
	r.cells = 0
	for _, e := range r.list {
		e.fold()
		r.cells += e.n
	}
}

// ns is the scale of counters of nanoseconds.
const ns = 1e-9

var gpuCounters = []counterColumn{
	{table.CntNVLinkReplay + tl, gpuLinkReplay, 1},
	{table.CntNVLinkRecovery + tl, gpuLinkRecovery, 1},
	{table.CntNVLinkCRC + tl, gpuLinkCRC, 1},
	{table.CntPCIeReplay + tl, gpuPCIeReplay, 1},
	{table.CntECCCorrected + tl, gpuECC, 1},
	{table.CntECCUncorrected + tl, gpuECCUncorrected, 1},
	{table.CntRemappedCorrected + tl, gpuRemapped, 1},
	{table.CntRemappedUncorrected + tl, gpuECCUncorrected, 1},
	{table.CntThrottlePower + tl, gpuThrottlePower, ns},
	{table.CntThrottleSWThermal + tl, gpuThrottleThermal, ns},
	{table.CntThrottleHWThermal + tl, gpuThrottleThermal, ns},
	{table.CntThrottleHWBrake + tl, gpuThrottleBrake, ns},
}

// gpuCounterReader reads the table gpu_counter: counters of faults, and energy.
type gpuCounterReader struct {
	*counterReader
	// energy is the first and last reading of each GPU's energy.
	energy tracks[energySpan]
	uuids  map[string]map[int64]string
}

type energySpan struct {
	begin, end     int64
	firstMJ, endMJ int64
}

func (r *gpuCounterReader) read(ctx context.Context, src Source) error {
	r.counterReader = newCounterReader(4e9)
	r.declare(gpuCounters)
	r.uuids = map[string]map[int64]string{}
	columns := []int{table.TLTimeNS, table.TLNode, table.CntGPU + tl, table.CntUUID + tl, table.CntEnergy + tl}
	for _, c := range gpuCounters {
		columns = append(columns, c.column)
	}
	return src.Rows(ctx, table.GPUCounter, columns, func(b *table.Batch) error {
		times, nodes, ordinals := b.Ints(table.TLTimeNS), b.Strings(table.TLNode), b.Ints(table.CntGPU+tl)
		energy, have := b.Ints(table.CntEnergy+tl), b.Valid(table.CntEnergy+tl)
		for i := range b.Rows() {
			e := r.entity(nodes[i], ordinals[i])
			if e == nil {
				continue
			}
			r.grow(e, "", times[i], b, i, gpuCounters, true)
			if r.uuids[nodes[i]] == nil {
				r.uuids[nodes[i]] = map[int64]string{}
			}
			if id := b.Strings(table.CntUUID + tl)[i]; r.uuids[nodes[i]][ordinals[i]] != id {
				r.uuids[nodes[i]][ordinals[i]] = id
			}
			if have[i] {
				s := r.energy.get(nodes[i], ordinals[i])
				if s.begin == 0 || energy[i] < s.endMJ {
					*s = energySpan{begin: times[i], firstMJ: energy[i]}
				}
				s.end, s.endMJ = times[i], energy[i]
			}
		}
		r.shrink()
		return nil
	})
}

func pidKey(pid int64) string { return strconv.FormatInt(pid, 10) }
