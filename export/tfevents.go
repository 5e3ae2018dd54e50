package export

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"
	"time"

	"github.com/gswarm/gswarm/table"
)

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
const (
	tfWallTime = 1
	tfStep     = 2
	tfVersion  = 3
	tfSummary  = 5

	tfSummaryValue = 1
	tfTag          = 1
	tfSimpleValue  = 2
)

// tfFormat is what the first event of a file says.
const tfFormat = "brain.Event:2"

// tfGauges are the tags of --to tfevents: columns of the GPU tables in their own
// units, as TABLE/COLUMN.
func tfGauges() (all []gauge) {
	for _, t := range []struct {
		table   *table.Table
		columns []string
	}{
		{table.GPU, []string{"util_gpu_pct", "mem_used_bytes", "temp_c", "temp_mem_c", "clock_sm_mhz", "clock_mem_mhz", "power_avg_mw"}},
		{table.GPUActivity, []string{
			"sm_active_pct", "sm_occupancy_pct", "tensor_pct", "dram_pct", "fp64_pct", "fp32_pct", "fp16_pct",
			"pcie_tx_mib_s", "pcie_rx_mib_s", "nvlink_tx_mib_s", "nvlink_rx_mib_s",
		}},
		{table.GPUPower, []string{"power_mw"}},
	} {
		for _, c := range t.columns {
			all = append(all, gauge{t.table, c, 1})
		}
	}
	return all
}

// TFEvents writes a directory for each GPU with a file of TensorBoard's events:
// one event for each frame, with all that was read in it. The wall time is the
// frame's begin, the step its number.
func (s *Source) TFEvents(ctx context.Context, dir string, every time.Duration) (FramesSummary, error) {
	g, err := s.grid(ctx, tfGauges(), every)
	if err != nil {
		return FramesSummary{}, err
	}
	sum := FramesSummary{GPUs: len(g.gpus)}
	tags := make([]string, len(g.gauges))
	for i, q := range g.gauges {
		tags[i] = q.table.Name + "/" + q.column
	}
	files, names := make([]appender, len(g.gpus)), ordinals(g.gpus)
	var event, values, value message
	err = g.frames(ctx, func(f *frame) error {
		sum.Frames++
		for gpu, facts := range g.gpus {
			values = values[:0]
			for q := range g.gauges {
				v, ok := f.value(q, gpu)
				if !ok {
					continue
				}
				value = value[:0]
				value.text(tfTag, tags[q])
				value.float(tfSimpleValue, float32(v))
				values.bytes(tfSummaryValue, value)
			}
			if len(values) == 0 {
				continue
			}
			to := &files[gpu]
			if to.path == "" {
				run := facts.Node + "-gpu" + names[gpu]
				to.path = filepath.Join(dir, run, fmt.Sprintf("events.out.tfevents.%010d.%s", f.begin/1e9, facts.Node))
				event = tfEvent(event[:0], f)
				event.text(tfVersion, tfFormat)
				to.buf = appendRecord(to.buf, event)
			}
			event = tfEvent(event[:0], f)
			event.number(tfStep, uint64(f.number))
			event.bytes(tfSummary, values)
			to.buf = appendRecord(to.buf, event)
			if err := to.due(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return sum, err
	}
	for i := range files {
		if err := files[i].flush(); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// tfEvent begins an event.
func tfEvent(m message, f *frame) message {
	m.double(tfWallTime, float64(f.begin)/1e9)
	return m
}

// castagnoli is CRC32C's polynomial.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendRecord appends a TFRecord: length and data, each with its masked CRC32C.
func appendRecord(b []byte, data []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, maskedSum(b[at:]))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, maskedSum(data))
}

// maskedSum is a CRC32C turned so that the sum of data that hold sums is no sum
// of theirs: what TFRecord asks for.
func maskedSum(b []byte) uint32 {
	sum := crc32.Checksum(b, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// float appends a 32-bit number.
func (m *message) float(field uint64, v float32) {
	const wireFixed32 = 5
	m.tag(field, wireFixed32)
	*m = binary.LittleEndian.AppendUint32(*m, math.Float32bits(v))
}
