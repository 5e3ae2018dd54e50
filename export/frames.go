package export

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

// The gauges of the frames of --to json.
const (
	frameUtil = iota
	frameMemory
	frameDRAM
	framePCIeTx
	framePCIeRx
	frameNVLinkTx
	frameNVLinkRx
)

func frameGauges() []gauge {
	return []gauge{
		frameUtil:     {table.GPU, "util_gpu_pct", 0.01},
		frameMemory:   {table.GPU, "mem_used_bytes", 1},
		frameDRAM:     {table.GPUActivity, "dram_pct", 0.01},
		framePCIeTx:   {table.GPUActivity, "pcie_tx_mib_s", miB},
		framePCIeRx:   {table.GPUActivity, "pcie_rx_mib_s", miB},
		frameNVLinkTx: {table.GPUActivity, "nvlink_tx_mib_s", miB},
		frameNVLinkRx: {table.GPUActivity, "nvlink_rx_mib_s", miB},
	}
}

// frameField is an array of a frame, a number for each GPU.
type frameField struct {
	name  string
	value func(f *frame, gpu int) (float64, bool)
}

// frameFields are the arrays of a frame.
func frameFields(gpus []dataset.GPU) []frameField {
	// scaled is a gauge times what is known of the GPU; 0 is not known.
	scaled := func(gauge int, factor func(dataset.GPU) float64) func(*frame, int) (float64, bool) {
		return func(f *frame, gpu int) (float64, bool) {
			v, ok := f.value(gauge, gpu)
			k := factor(gpus[gpu])
			return v * k, ok && k > 0
		}
	}
	both := func(a, b int) func(*frame, int) (float64, bool) {
		return func(f *frame, gpu int) (float64, bool) {
			x, ok := f.value(a, gpu)
			y, also := f.value(b, gpu)
			return x + y, ok && also
		}
	}
	return []frameField{
		{"gpu_util", func(f *frame, gpu int) (float64, bool) { return f.value(frameUtil, gpu) }},
		{"gpu_memory", scaled(frameMemory, func(g dataset.GPU) float64 {
			if g.MemoryBytes <= 0 {
				return 0
			}
			return 1 / float64(g.MemoryBytes)
		})},
		{"dram_bandwidth", scaled(frameDRAM, func(g dataset.GPU) float64 { return g.PeakBandwidth() / 1e9 })},
		{"gpu_bandwidth", both(frameNVLinkTx, frameNVLinkRx)},
		{"pcie_bandwidth", both(framePCIeTx, framePCIeRx)},
	}
}

// FramesSummary says what was written.
type FramesSummary struct {
	Frames, GPUs int
	// Notes say what could not be told, in words.
	Notes []string
}

// framesHead is what stands before the frames.
type framesHead struct {
	Run      string      `json:"run"`
	Interval float64     `json:"interval_s"`
	Notes    []string    `json:"notes"`
	GPUs     []framesGPU `json:"gpus"`
}

// framesGPU is a GPU in the head. What is not known is null.
type framesGPU struct {
	ID     string   `json:"gpu_id"`
	Node   string   `json:"node"`
	Index  int64    `json:"gpu"`
	UUID   string   `json:"gpu_uuid"`
	Name   *string  `json:"name"`
	Memory *int64   `json:"memory_bytes"`
	Peak   *float64 `json:"dram_bandwidth_peak"`
}

// gpuIDs are what the GPUs are called in frames: node, ordinal and model.
func gpuIDs(gpus []dataset.GPU) []string {
	ids := ordinals(gpus)
	for i, g := range gpus {
		ids[i] = g.Node + ":" + ids[i]
		if g.Name != "" {
			ids[i] += ":" + g.Name
		}
	}
	return ids
}

// ordinals are the GPUs' ordinals in their nodes. Where two GPUs of a node have
// one, as happens where its samplers said nothing of their GPUs, the UUID tells
// them apart.
func ordinals(gpus []dataset.GPU) []string {
	type place struct {
		node  string
		index int64
	}
	seen := make(map[place]int)
	for _, g := range gpus {
		seen[place{g.Node, g.Index}]++
	}
	all := make([]string, len(gpus))
	for i, g := range gpus {
		all[i] = strconv.FormatInt(g.Index, 10)
		if seen[place{g.Node, g.Index}] > 1 {
			all[i] += "-" + rundir.CleanName(g.UUID)
		}
	}
	return all
}

// JSON writes a timeline as frames: what every GPU did in every stretch of time,
// GPU by GPU in arrays.
func (s *Source) JSON(ctx context.Context, w io.Writer, every time.Duration) (FramesSummary, error) {
	g, err := s.grid(ctx, frameGauges(), every)
	if err != nil {
		return FramesSummary{}, err
	}
	sum := FramesSummary{GPUs: len(g.gpus), Notes: unknown(g.gpus)}
	names := gpuIDs(g.gpus)
	head, err := json.Marshal(newFramesHead(s, g, names, sum.Notes))
	if err != nil {
		return sum, err
	}
	out := bufio.NewWriterSize(w, 256<<10) // it keeps its first error, for Flush
	put := func(b []byte) { _, _ = out.Write(b) }
	put(append(head[:len(head)-1], ",\"frames\":["...))
	fields := frameFields(g.gpus)
	ids := frameIDs(names)
	means := make([]cell, len(fields)*len(g.gpus))
	var line []byte
	err = g.frames(ctx, func(f *frame) error {
		line = line[:0]
		if f.number > 0 {
			line = append(line, ',')
		}
		line = appendFrame(line, f, ids, fields, means)
		sum.Frames++
		_, err := out.Write(line)
		return err
	})
	if err != nil {
		return sum, fmt.Errorf("exporting: %w", err)
	}
	put([]byte("\n],\"summary_by_device\":{"))
	for i, name := range names {
		line = line[:0]
		if i > 0 {
			line = append(line, ',')
		}
		line = append(appendText(append(line, '\n'), name), ':', '{')
		for k, f := range fields[:2] {
			if k > 0 {
				line = append(line, ',')
			}
			line = append(appendText(line, "avg_"+f.name), ':')
			m := means[k*len(g.gpus)+i]
			line = appendNumber(line, m.sum/m.weight, m.weight > 0)
		}
		put(append(line, '}'))
	}
	put([]byte("\n}}\n"))
	if err := out.Flush(); err != nil {
		return sum, fmt.Errorf("exporting: %w", err)
	}
	return sum, nil
}

func newFramesHead(s *Source, g *grid, names, notes []string) framesHead {
	head := framesHead{Run: filepath.Base(string(s.dir)), Interval: time.Duration(g.every).Seconds(), Notes: append([]string{}, notes...), GPUs: []framesGPU{}}
	for i, gpu := range g.gpus {
		f := framesGPU{ID: names[i], Node: gpu.Node, Index: gpu.Index, UUID: gpu.UUID}
		if gpu.Name != "" {
			f.Name = &gpu.Name
		}
		if gpu.MemoryBytes > 0 {
			f.Memory = &gpu.MemoryBytes
		}
		if peak := round(gpu.PeakBandwidth() / 1e9); peak > 0 {
			f.Peak = &peak
		}
		head.GPUs = append(head.GPUs, f)
	}
	return head
}

// unknown says which arrays stay null because of what is not known of GPUs.
func unknown(gpus []dataset.GPU) (notes []string) {
	var memory, peak int
	for _, g := range gpus {
		if g.MemoryBytes <= 0 {
			memory++
		}
		if g.PeakBandwidth() <= 0 {
			peak++
		}
	}
	if memory > 0 {
		notes = append(notes, fmt.Sprintf("gpu_memory is null for %d of %d GPUs: meta.yaml does not say how much memory they have", memory, len(gpus)))
	}
	if peak > 0 {
		notes = append(notes, fmt.Sprintf("dram_bandwidth is null for %d of %d GPUs: meta.yaml does not say the width and clock of their memory bus, so their peak is not known", peak, len(gpus)))
	}
	return notes
}

// frameIDs is the array of the GPUs' names, the same in every frame.
func frameIDs(names []string) (line []byte) {
	for i, name := range names {
		if i > 0 {
			line = append(line, ',')
		}
		line = appendText(line, name)
	}
	return line
}

// appendFrame writes a frame, and adds its values to the means.
func appendFrame(line []byte, f *frame, ids []byte, fields []frameField, means []cell) []byte {
	line = append(line, "\n{\"frame_id\":"...)
	line = strconv.AppendInt(line, f.number+1, 10)
	line = append(line, ",\"time\":\""...)
	line = time.Unix(0, f.begin).UTC().AppendFormat(line, time.RFC3339Nano)
	line = append(line, "\",\"time_ns\":"...)
	line = strconv.AppendInt(line, f.begin, 10)
	line = append(line, ",\"time_bound_ns\":"...)
	if f.bound < 0 || f.readings == 0 {
		line = append(line, "null"...)
	} else {
		line = strconv.AppendInt(line, f.bound, 10)
	}
	line = append(append(append(line, ",\"gpu_id\":["...), ids...), ']')
	for k, field := range fields {
		line = append(append(append(line, ",\""...), field.name...), "\":["...)
		for gpu := range f.gpus {
			if gpu > 0 {
				line = append(line, ',')
			}
			v, ok := field.value(f, gpu)
			line = appendNumber(line, v, ok)
			if ok {
				m := &means[k*f.gpus+gpu]
				m.sum, m.weight = m.sum+v, m.weight+1
			}
		}
		line = append(line, ']')
	}
	return append(line, '}')
}

// appendNumber writes a number to six decimals, or null.
func appendNumber(line []byte, v float64, ok bool) []byte {
	if !ok {
		return append(line, "null"...)
	}
	return strconv.AppendFloat(line, round(v), 'f', -1, 64)
}

func round(v float64) float64 { return math.Round(v*1e6) / 1e6 }

// appendText writes a text as JSON.
func appendText(line []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // no text has one
		return append(line, "null"...)
	}
	return append(line, b...)
}
