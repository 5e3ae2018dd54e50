package analysis

import (
	"context"

	"github.com/gswarm/gswarm/table"
)

// tl carries the index of a table's own column to that in its timeline's form.
const tl = table.TLRead + 1 - table.ColBegin

// The driver's reasons why clocks are not at their highest
// (nvmlClocksEventReasons).
const (
	reasonPowerCap   = 1 << 2
	reasonHWSlowdown = 1 << 3
	reasonSWThermal  = 1 << 5
	reasonHWThermal  = 1 << 6
	reasonHWBrake    = 1 << 7
)

// reading is what a GPU's polled readings of a block add up to.
type reading struct {
	n           float32 // readings with a utilisation
	util        float32 // sum of shares
	np          float32 // readings with a power
	power       float32 // sum of W
	nc          float32 // readings with a clock
	clock       float32 // sum of MHz
	loadW       float32 // sum of kW^2: the weight of the clock under load
	loadClock   float32 // sum of MHz kW^2
	nr          float32 // readings with reasons
	capped      float32 // of them with the power limit as the reason
	thermal     float32 // heat
	brake       float32 // the hardware's own slowdown, or a power brake
	temperature float32 // the highest, degrees Celsius
}

func (c *reading) add(o *reading) {
	c.n += o.n
	c.util += o.util
	c.np += o.np
	c.power += o.power
	c.nc += o.nc
	c.clock += o.clock
	c.loadW += o.loadW
	c.loadClock += o.loadClock
	c.nr += o.nr
	c.capped += o.capped
	c.thermal += o.thermal
	c.brake += o.brake
	c.temperature = max(c.temperature, o.temperature)
}

// gpuTrack is what the table gpu tells of one GPU.
type gpuTrack struct {
	track[reading, *reading]
	node       string
	gpu        int
	metrics    [len(gpuMetrics)]moments
	rows       int64
	begin, end int64
	longestGap int64
}

// gpuMetrics are the columns of the table gpu that are summed up.
var gpuMetrics = [...]int{
	table.GPUUtil, table.GPUUtilMem, table.GPUMemUsed, table.GPUTemp, table.GPUTempMem,
	table.GPUClockSM, table.GPUClockMem, table.GPUPowerAvg, table.GPUPowerNow,
}

// gpuReader reads the table gpu.
type gpuReader struct {
	tracks[gpuTrack]
	block int64
	cells int
}

func (r *gpuReader) read(ctx context.Context, src Source) error {
	r.block = blockNS
	columns := []int{table.TLTimeNS, table.TLNode, table.GPUIndex + tl, table.GPUEventReasons + tl}
	for _, c := range gpuMetrics {
		columns = append(columns, c+tl)
	}
	return src.Rows(ctx, table.GPU, columns, func(b *table.Batch) error {
		r.batch(b)
		return nil
	})
}

func (r *gpuReader) batch(b *table.Batch) {
	times, nodes, ordinals := b.Ints(table.TLTimeNS), b.Strings(table.TLNode), b.Ints(table.GPUIndex+tl)
	var values [len(gpuMetrics)][]int64
	var valid [len(gpuMetrics)][]bool
	for m, c := range gpuMetrics {
		values[m], valid[m] = b.Ints(c+tl), b.Valid(c+tl)
	}
	reasons, haveReasons := b.Ints(table.GPUEventReasons+tl), b.Valid(table.GPUEventReasons+tl)
	for i := range b.Rows() {
		g := r.get(nodes[i], ordinals[i])
		if g == nil {
			continue
		}
		if g.rows == 0 {
			g.node, g.gpu, g.begin = nodes[i], int(ordinals[i]), times[i]
		} else if gap := times[i] - g.end; gap > g.longestGap {
			g.longestGap = gap
		}
		g.rows++
		g.end = max(g.end, times[i])
		had := g.n
		c := g.at(floorDiv(times[i], r.block))
		if c == nil {
			continue
		}
		r.cells += g.n - had
		for m := range values {
			if valid[m][i] {
				g.metrics[m].add(float64(values[m][i]))
			}
		}
		const util, clock, power = 0, 5, 8 // in gpuMetrics
		if valid[util][i] {
			c.n++
			c.util += float32(values[util][i]) / 100
		}
		if valid[3][i] {
			c.temperature = max(c.temperature, float32(values[3][i]))
		}
		p := power
		if !valid[p][i] {
			p = power - 1 // averaged by the driver: better than nothing
		}
		if valid[p][i] {
			w := float32(values[p][i]) / 1e3
			c.np++
			c.power += w
			if valid[clock][i] {
				load := w * w / 1e6
				c.loadW += load
				c.loadClock += load * float32(values[clock][i])
			}
		}
		if valid[clock][i] {
			c.nc++
			c.clock += float32(values[clock][i])
		}
		if haveReasons[i] {
			c.nr++
			if reasons[i]&reasonPowerCap != 0 {
				c.capped++
			}
			if reasons[i]&(reasonSWThermal|reasonHWThermal) != 0 {
				c.thermal++
			}
			if reasons[i]&(reasonHWSlowdown|reasonHWBrake) != 0 {
				c.brake++
			}
		}
	}
	if r.cells > maxCells {
		r.fold()
	}
}

// fold makes the blocks of all GPUs twice as long.
func (r *gpuReader) fold() {
	r.block *= 2
	r.cells = 0
	for _, g := range r.list {
		g.fold()
		r.cells += g.n
	}
}

// units is what a GPU's units did in the windows of a block: sums over windows
// of percent or MiB/s times seconds.
type units struct {
	w       float32 // seconds of windows
	sm      float32
	tensor  float32
	fp      float32 // fp64, fp32 and fp16 pipes
	dram    float32
	nvlink  float32 // the larger of sent and received
	rx, tx  float32 // PCIe
	work    float32 // see work
	memory  float32 // of it in windows where memory was nearer to its peak than arithmetic
	copying float32 // seconds of windows in which only PCIe moved
	tiny    float32 // seconds of windows of kernels too short to fill the GPU
	maxWork float32 // the highest of a window, percent
	smAtMax float32 // the SMs' activity in that window
	maxLink float32 // the highest NVLink rate of a window, MiB/s
	maxPCIe float32 // the highest PCIe rate of a window, MiB/s
}

func (c *units) add(o *units) {
	c.w += o.w
	c.sm += o.sm
	c.tensor += o.tensor
	c.fp += o.fp
	c.dram += o.dram
	c.nvlink += o.nvlink
	c.rx += o.rx
	c.tx += o.tx
	c.work += o.work
	c.memory += o.memory
	c.copying += o.copying
	c.tiny += o.tiny
	if o.maxWork > c.maxWork {
		c.maxWork, c.smAtMax = o.maxWork, o.smAtMax
	}
	c.maxLink = max(c.maxLink, o.maxLink)
	c.maxPCIe = max(c.maxPCIe, o.maxPCIe)
}

// activityTrack is what the table gpu_activity tells of one GPU.
type activityTrack struct {
	track[units, *units]
	metrics    [len(activityMetrics)]moments
	rows       int64
	windows    moments // seconds
	begin, end int64
}

var activityMetrics = [...]int{
	table.ActSMUtil, table.ActSMOccupancy, table.ActTensor, table.ActDRAM, table.ActFP64, table.ActFP32,
	table.ActFP16, table.ActPCIeTx, table.ActPCIeRx, table.ActNVLinkTx, table.ActNVLinkRx,
}

// activityReader reads the table gpu_activity.
type activityReader struct {
	tracks[activityTrack]
	block int64
	cells int
	// fine is the mean of the SMs' activity over all GPUs.
	fine signal
}

func (r *activityReader) read(ctx context.Context, src Source) error {
	r.block, r.fine.dt = blockNS, 100e6
	columns := []int{table.TLTimeNS, table.TLBegin, table.TLNode, table.ActGPU + tl}
	for _, c := range activityMetrics {
		columns = append(columns, c+tl)
	}
	return src.Rows(ctx, table.GPUActivity, columns, func(b *table.Batch) error {
		r.batch(b)
		return nil
	})
}

func (r *activityReader) batch(b *table.Batch) {
	begins, ends, nodes, ordinals := b.Ints(table.TLBegin), b.Ints(table.TLTimeNS), b.Strings(table.TLNode), b.Ints(table.ActGPU+tl)
	var values [len(activityMetrics)][]float64
	var valid [len(activityMetrics)][]bool
	for m, c := range activityMetrics {
		values[m], valid[m] = b.Floats(c+tl), b.Valid(c+tl)
	}
	for i := range b.Rows() {
		g := r.get(nodes[i], ordinals[i])
		if g == nil || ends[i] <= begins[i] {
			continue
		}
		var v [len(activityMetrics)]float64
		read := false
		for m := range values {
			if valid[m][i] {
				v[m] = values[m][i]
				g.metrics[m].add(v[m])
				read = true
			}
		}
		if !read {
			continue
		}
		if g.rows == 0 {
			g.begin = begins[i]
		}
		g.rows++
		g.end = max(g.end, ends[i])
		seconds := float64(ends[i]-begins[i]) / 1e9
		g.windows.add(seconds)
		had := g.n
		if c := g.at(floorDiv(begins[i]+(ends[i]-begins[i])/2, r.block)); c != nil {
			c.window(v, seconds)
		}
		r.cells += g.n - had
		if valid[0][i] {
			r.fine.spread(begins[i], ends[i], v[0])
		}
	}
	if r.cells > maxCells {
		r.fold()
	}
}

// fold makes the blocks of all GPUs twice as long.
func (r *activityReader) fold() {
	r.block *= 2
	r.cells = 0
	for _, g := range r.list {
		g.fold()
		r.cells += g.n
	}
}

// dramOfLink is the percent of device memory bandwidth that a MiB/s over NVLink
// takes at most: a collective moves each byte that it sends about three times
// through memory (measured: 350 GiB/s at 23 % of 4.8 TB/s), here of 3.35 TB/s.
const dramOfLink = 3.06 * 1048576 / 3.35e12 * 100

// work is how hard a GPU works for itself, in percent: arithmetic and device
// memory, without what collectives do to memory. A GPU that waits in a
// collective has resident SMs and none of this.
func work(tensor, fp, dram, nvlink float64) float64 {
	return tensor + fp + max(0, dram-dramOfLink*nvlink)
}

// A window in which the SMs rest and PCIe moves more than copyMiB is of copies.
// One with more than tinyMiB of PCIe traffic to the GPU and next to no work is
// of launches: a launch takes the GPU about a KiB over PCIe.
const (
	copyMiB = 1000
	tinyMiB = 40
	restSM  = 2.0
)

// window adds a window: values in the order of activityMetrics.
func (c *units) window(v [len(activityMetrics)]float64, seconds float64) {
	sm, tensor, dram, fp := v[0], v[2], v[3], v[4]+v[5]+v[6]
	tx, rx, nvlink := v[7], v[8], max(v[9], v[10])
	c.w += float32(seconds)
	c.sm += float32(sm * seconds)
	c.tensor += float32(tensor * seconds)
	c.fp += float32(fp * seconds)
	c.dram += float32(dram * seconds)
	c.nvlink += float32(nvlink * seconds)
	c.rx += float32(rx * seconds)
	c.tx += float32(tx * seconds)
	c.maxLink = max(c.maxLink, float32(nvlink))
	c.maxPCIe = max(c.maxPCIe, float32(max(rx, tx)))
	w := work(tensor, fp, dram, nvlink)
	switch {
	case sm < restSM && rx+tx > copyMiB:
		c.copying += float32(seconds)
	case rx > tinyMiB && rx < copyMiB && sm < 40 && w < 20 && nvlink < 1000:
		c.tiny += float32(seconds)
	}
	c.work += float32(w * seconds)
	if dram-dramOfLink*nvlink > tensor+fp {
		c.memory += float32(w * seconds)
	}
	if w := float32(w); w > c.maxWork {
		c.maxWork, c.smAtMax = w, float32(sm)
	}
}
