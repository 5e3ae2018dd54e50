package nvmltest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// magic begins every recording.
const magic = "gswrec2\n"

// Recording is what real GPUs said over some minutes: the same data as the
// files gpu*.csv that it was made from, byte for byte.
type Recording struct {
	Driver string
	// AnchorRaw and AnchorReal are the recorder's raw clock and its wall
	// clock at one instant.
	AnchorRaw, AnchorReal uint64
	GPUs                  []GPU
	Cheap                 Table // gpu.csv
	Activity              Table // gpu_activity.csv
	Power                 Table // gpu_power.csv
	Counter               Table // gpu_counter.csv
	Process               Table // gpu_process.csv
}

// GPU is one recorded GPU.
type GPU struct {
	Name, UUID, BusID        string
	PowerLimitMW, MemoryByte uint64
}

// Table is one recorded table. Every value is an integer: what was written with
// four decimals is scaled by 10000.
type Table struct {
	Name    string
	Columns []Column
	Rows    []Row // in the order in which they were recorded
}

// Column is a recorded column; Scale is 1 or 10000.
type Column struct {
	Name  string
	Scale uint64
}

// Row is one row; Null has bit i set where column i has no value.
type Row struct {
	GPU   int
	Null  uint64
	Value []int64
}

// The columns of the tables. The stand-in's C code has the same order.
const (
	ColT       = iota // t_raw_ns
	ColRead           // read_ns
	ColUtil           // util_gpu
	ColUtilMem        // util_mem
	ColMemUsed        // mem_used
	ColPowerNow
	ColPowerAvg
	ColTemp
	ColTempMem
	ColSM
	ColMem
	ColReasons
)

// The columns of the activity table: a window is kept as its distance from the
// end of the GPU's window before and its length.
const (
	ActGap = iota
	ActLength
	ActSM
	ActOccupancy
	ActTensor
	ActDRAM
	ActFP64
	ActFP32
	ActFP16
	ActPCIeTx
	ActPCIeRx
	ActNVLinkRx
	ActNVLinkTx
)

// The columns of the power table: a stamp is kept as its distance from the
// GPU's stamp before, in microseconds of the recorder's wall clock.
const (
	PowGap = iota
	PowPower
)

// The columns of the counter table.
const (
	CntT = iota
	CntRead
	CntEnergy
	CntNVLinkTx
	CntNVLinkRx
	CntECCCorrected
	CntECCUncorrected
	CntThrottlePower
	CntThrottleSWThermal
	CntThrottleHWThermal
	CntThrottleBrake
)

// The columns of the process table.
const (
	ProcT = iota
	ProcPID
	ProcMem
)

var (
	powerColumns   = []Column{{"gap_us", 1}, {"power_mw", 1}}
	counterColumns = []Column{
		{"t_raw_ns", 1}, {"read_ns", 1}, {"energy_mj", 1}, {"nvl_tx_kib", 1}, {"nvl_rx_kib", 1}, {"ecc_corr", 1}, {"ecc_uncorr", 1},
		{"thr_power_ns", 1}, {"thr_sw_thermal_ns", 1}, {"thr_hw_thermal_ns", 1}, {"thr_brake_ns", 1},
	}
	processColumns = []Column{{"t_raw_ns", 1}, {"pid", 1}, {"mem_used", 1}}
)

var cheapColumns = []Column{
	{"t_raw_ns", 1}, {"read_ns", 1}, {"util_gpu", 1}, {"util_mem", 1}, {"mem_used", 1},
	{"power_now_mw", 1}, {"power_avg_mw", 1}, {"temp", 1}, {"temp_mem", 1},
	{"sm_mhz", 1}, {"mem_mhz", 1}, {"reasons", 1},
}

var activityColumns = []Column{
	{"gap_ns", 1}, {"length_ns", 1}, {"sm", 10000}, {"occupancy", 10000}, {"tensor", 10000},
	{"dram", 10000}, {"fp64", 10000}, {"fp32", 10000}, {"fp16", 10000},
	{"pcie_tx_mibs", 10000}, {"pcie_rx_mibs", 10000}, {"nvl_rx_mibs", 10000}, {"nvl_tx_mibs", 10000},
}

// Marshal returns the recording as the stand-in reads it. The layout is
// described in testdata/nvml/README.md.
func (r *Recording) Marshal() []byte {
	b := []byte(magic)
	b = appendString(b, r.Driver)
	b = binary.AppendUvarint(b, r.AnchorRaw)
	b = binary.AppendUvarint(b, r.AnchorReal)
	b = binary.AppendUvarint(b, uint64(len(r.GPUs)))
	for _, g := range r.GPUs {
		b = appendString(b, g.Name)
		b = appendString(b, g.UUID)
		b = appendString(b, g.BusID)
		b = binary.AppendUvarint(b, g.PowerLimitMW)
		b = binary.AppendUvarint(b, g.MemoryByte)
	}
	for _, t := range r.tables() {
		b = t.append(b)
	}
	return b
}

// tables returns the tables in the order in which they lie in the file.
func (r *Recording) tables() []*Table {
	return []*Table{&r.Cheap, &r.Activity, &r.Power, &r.Counter, &r.Process}
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (t *Table) append(b []byte) []byte {
	b = appendString(b, t.Name)
	b = binary.AppendUvarint(b, uint64(len(t.Columns)))
	for _, c := range t.Columns {
		b = appendString(b, c.Name)
		b = binary.AppendUvarint(b, c.Scale)
	}
	b = binary.AppendUvarint(b, uint64(len(t.Rows)))
	last := map[int][]int64{}
	for _, row := range t.Rows {
		prev := last[row.GPU]
		if prev == nil {
			prev = make([]int64, len(t.Columns))
		}
		var mask uint64
		if row.Null != 0 {
			mask |= 1
		}
		for c, v := range row.Value {
			if v != prev[c] {
				mask |= 2 << c
			}
		}
		b = binary.AppendUvarint(b, uint64(row.GPU))
		b = binary.AppendUvarint(b, mask)
		if row.Null != 0 {
			b = binary.AppendUvarint(b, row.Null)
		}
		for c, v := range row.Value {
			if v != prev[c] {
				b = binary.AppendVarint(b, v-prev[c])
			}
		}
		last[row.GPU] = row.Value
	}
	return b
}

// Unmarshal reads what Marshal wrote.
func Unmarshal(data []byte) (*Recording, error) {
	d := &decoder{bytes.NewReader(data), nil}
	if got := d.bytes(uint64(len(magic))); string(got) != magic {
		return nil, errors.New("not a recording")
	}
	r := &Recording{Driver: d.string(), AnchorRaw: d.uvarint(), AnchorReal: d.uvarint()}
	for range d.count(1 << 10) {
		r.GPUs = append(r.GPUs, GPU{d.string(), d.string(), d.string(), d.uvarint(), d.uvarint()})
	}
	for _, t := range r.tables() {
		d.table(t)
	}
	if d.err != nil {
		return nil, fmt.Errorf("reading a recording: %w", d.err)
	}
	return r, nil
}

type decoder struct {
	r   *bytes.Reader
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *decoder) uvarint() uint64 {
	v, err := binary.ReadUvarint(d.r)
	if err != nil {
		d.fail(err)
		return 0
	}
	return v
}

func (d *decoder) varint() int64 {
	v, err := binary.ReadVarint(d.r)
	if err != nil {
		d.fail(err)
		return 0
	}
	return v
}

func (d *decoder) count(limit uint64) int {
	n := d.uvarint()
	if n > limit {
		d.fail(fmt.Errorf("%d of something of which there are at most %d", n, limit))
		return 0
	}
	return int(n)
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(d.r.Len()) {
		d.fail(io.ErrUnexpectedEOF)
		return nil
	}
	b := make([]byte, n)
	_, err := io.ReadFull(d.r, b)
	if err != nil {
		d.fail(err)
	}
	return b
}

func (d *decoder) string() string { return string(d.bytes(d.uvarint())) }

func (d *decoder) table(t *Table) {
	t.Name = d.string()
	for range d.count(62) {
		t.Columns = append(t.Columns, Column{d.string(), d.uvarint()})
	}
	last := map[int][]int64{}
	for range d.count(1 << 24) {
		row := Row{GPU: d.count(1 << 10), Value: make([]int64, len(t.Columns))}
		copy(row.Value, last[row.GPU])
		mask := d.uvarint()
		if mask&1 != 0 {
			row.Null = d.uvarint()
		}
		for c := range row.Value {
			if mask&(2<<c) != 0 {
				row.Value[c] += d.varint()
			}
		}
		if d.err != nil {
			return
		}
		last[row.GPU] = row.Value
		t.Rows = append(t.Rows, row)
	}
}
