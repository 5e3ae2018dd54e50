package plant

import (
	"fmt"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/rankagent/gpu/nvmltest"
	"github.com/gswarm/gswarm/table"
)

// RecordedNode is the name of the node of the recorded job.
const RecordedNode = "h200x8"

// recordedBound is what the clock of a single node is good to beside its reads:
// it is its own reference.
const recordedBound = 1000

// Recorded returns the recorded job of eight H200s as it was, in the timeline's
// form, with what is known beside its rows and with the truth. It has the GPU
// tables alone: no host was recorded.
func Recorded() (*Source, analysis.Facts, *Truth, error) {
	rec, err := nvmltest.Load()
	if err != nil {
		return nil, analysis.Facts{}, nil, fmt.Errorf("load the recording: %w", err)
	}
	truth, err := loadTruth()
	if err != nil {
		return nil, analysis.Facts{}, nil, fmt.Errorf("load the truth of the recording: %w", err)
	}
	c := conversion{Source: newSource(), rec: rec}
	c.gpu()
	c.activity()
	c.power()
	c.counters()
	c.processes()
	c.sort()
	return c.Source, c.facts(), truth, nil
}

// conversion turns the recording into rows of the timeline.
type conversion struct {
	*Source
	rec *nvmltest.Recording
}

// wall carries a raw stamp to the timeline, which is the recorder's wall clock.
func (c *conversion) wall(raw int64) int64 {
	return raw - int64(c.rec.AnchorRaw) + int64(c.rec.AnchorReal)
}

// row begins a row at a raw stamp.
func (c *conversion) row(t *table.Table, gpu int, raw, read int64) cells {
	r := c.add(t, RecordedNode, stamp{t: c.wall(raw), read: read, bound: read/2 + recordedBound})
	return keyed(t, r, gpu, c.rec.GPUs[gpu].UUID)
}

// keyed sets the columns that every GPU table begins with.
func keyed(t *table.Table, r table.Row, gpu int, uuid string) cells {
	key := table.ColBegin
	if t.Shape == table.Windowed {
		key++
	}
	out := cells{r}
	out.int(key, int64(gpu))
	out.string(key+1, uuid)
	return out
}

// cells sets the columns of a row by their index in the table itself.
type cells struct{ table.Row }

func (c cells) int(col int, v int64) { c.Int(own(col), v) }

func (c cells) float(col int, v float64) { c.Float(own(col), v) }

func (c cells) string(col int, v string) { c.String(own(col), v) }

// copied sets a column to a recorded value unless that is null.
func (c cells) copied(col int, row nvmltest.Row, from int, factor int64) {
	if row.Null>>from&1 == 0 {
		c.int(col, row.Value[from]*factor)
	}
}

func (c *conversion) gpu() {
	columns := map[int]int{
		table.GPUUtil: nvmltest.ColUtil, table.GPUUtilMem: nvmltest.ColUtilMem, table.GPUMemUsed: nvmltest.ColMemUsed,
		table.GPUPowerNow: nvmltest.ColPowerNow, table.GPUPowerAvg: nvmltest.ColPowerAvg, table.GPUTemp: nvmltest.ColTemp,
		table.GPUTempMem: nvmltest.ColTempMem, table.GPUClockSM: nvmltest.ColSM, table.GPUClockMem: nvmltest.ColMem,
		table.GPUEventReasons: nvmltest.ColReasons,
	}
	for _, row := range c.rec.Cheap.Rows {
		r := c.row(table.GPU, row.GPU, row.Value[nvmltest.ColT], row.Value[nvmltest.ColRead])
		for to, from := range columns {
			r.copied(to, row, from, 1)
		}
	}
}

func (c *conversion) activity() {
	columns := map[int]int{
		table.ActSMUtil: nvmltest.ActSM, table.ActSMOccupancy: nvmltest.ActOccupancy, table.ActTensor: nvmltest.ActTensor,
		table.ActDRAM: nvmltest.ActDRAM, table.ActFP64: nvmltest.ActFP64, table.ActFP32: nvmltest.ActFP32,
		table.ActFP16: nvmltest.ActFP16, table.ActPCIeTx: nvmltest.ActPCIeTx, table.ActPCIeRx: nvmltest.ActPCIeRx,
		table.ActNVLinkTx: nvmltest.ActNVLinkTx, table.ActNVLinkRx: nvmltest.ActNVLinkRx,
	}
	end := map[int]int64{}
	for _, row := range c.rec.Activity.Rows {
		begin := end[row.GPU] + row.Value[nvmltest.ActGap]
		end[row.GPU] = begin + row.Value[nvmltest.ActLength]
		// How long the read took that closed the window was not recorded.
		r := c.row(table.GPUActivity, row.GPU, end[row.GPU], 0)
		r.Int(table.TLBegin, c.wall(begin))
		for to, from := range columns {
			if row.Null>>from&1 == 0 {
				r.float(to, float64(row.Value[from])/float64(c.rec.Activity.Columns[from].Scale))
			}
		}
	}
}

func (c *conversion) power() {
	at := map[int]int64{}
	for _, row := range c.rec.Power.Rows {
		at[row.GPU] += row.Value[nvmltest.PowGap]
		t := at[row.GPU] * 1000
		r := keyed(table.GPUPower, c.add(table.GPUPower, RecordedNode, stamp{t: t, bound: 1000 + recordedBound}), row.GPU, c.rec.GPUs[row.GPU].UUID)
		r.int(table.PowStamp, at[row.GPU])
		r.copied(table.PowPower, row, nvmltest.PowPower, 1)
	}
}

func (c *conversion) counters() {
	columns := map[int][2]int{
		table.CntEnergy: {nvmltest.CntEnergy, 1}, table.CntNVLinkTx: {nvmltest.CntNVLinkTx, 1024}, table.CntNVLinkRx: {nvmltest.CntNVLinkRx, 1024},
		table.CntECCCorrected: {nvmltest.CntECCCorrected, 1}, table.CntECCUncorrected: {nvmltest.CntECCUncorrected, 1},
		table.CntThrottlePower: {nvmltest.CntThrottlePower, 1}, table.CntThrottleSWThermal: {nvmltest.CntThrottleSWThermal, 1},
		table.CntThrottleHWThermal: {nvmltest.CntThrottleHWThermal, 1}, table.CntThrottleHWBrake: {nvmltest.CntThrottleBrake, 1},
	}
	for _, row := range c.rec.Counter.Rows {
		r := c.row(table.GPUCounter, row.GPU, row.Value[nvmltest.CntT], row.Value[nvmltest.CntRead])
		for to, from := range columns {
			r.copied(to, row, from[0], int64(from[1]))
		}
	}
}

// processes lists the holders of the GPUs; rank r held GPU r.
func (c *conversion) processes() {
	for _, row := range c.rec.Process.Rows {
		r := c.row(table.GPUProcess, row.GPU, row.Value[nvmltest.ProcT], 0)
		r.copied(table.ProcPID, row, nvmltest.ProcPID, 1)
		r.copied(table.ProcMemUsed, row, nvmltest.ProcMem, 1)
		r.int(table.ProcRank, int64(row.GPU))
	}
}

func (c *conversion) facts() analysis.Facts {
	f := analysis.Facts{
		Run: "h200x8", Command: []string{"torchrun", "--nproc-per-node=8", "train.py"}, TickNS: 100e6, Exit: "exit code 0",
		Nodes: []analysis.NodeFacts{{Node: RecordedNode, Aligned: true, Ended: "job ended"}},
	}
	times := c.tables[table.GPU.Name].of[RecordedNode].Ints(table.TLTimeNS)
	f.BeginNS, f.EndNS = times[0], times[len(times)-1]
	n := &f.Nodes[0]
	for _, row := range c.rec.Cheap.Rows {
		n.BoundNS = max(n.BoundNS, row.Value[nvmltest.ColRead]/2+recordedBound)
	}
	for g, gpu := range c.rec.GPUs {
		n.GPUs = append(n.GPUs, analysis.GPUFacts{
			GPU: g, UUID: gpu.UUID, Name: gpu.Name, PowerLimitMW: int64(gpu.PowerLimitMW), MemoryBytes: int64(gpu.MemoryByte), ClockMaxMHz: 1980, NUMA: 0,
		})
	}
	return f
}
