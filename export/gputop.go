package export

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/table"
)

// The gauges of --to gputop, in the units of that format: percent, MiB, watts and
// degrees.
const (
	topUtil = iota
	topMemory
	topPower
	topTemp
	topTempMem
)

func topGauges() []gauge {
	return []gauge{
		topUtil:    {table.GPU, "util_gpu_pct", 1},
		topMemory:  {table.GPU, "mem_used_bytes", 1.0 / (1 << 20)},
		topPower:   {table.GPU, "power_avg_mw", watt},
		topTemp:    {table.GPU, "temp_c", 1},
		topTempMem: {table.GPU, "temp_mem_c", 1},
	}
}

// topSingle and topMulti are the files of a node: one for each GPU, and one for
// all of them where there are several.
const (
	topSingle = "gpu_stats_gpu%s.json"
	topMulti  = "gpu_stats_multi_gpu.json"
	// topTime is how that format's readers take times: no zone, microseconds.
	topTime = "2006-01-02T15:04:05.000000"
)

// topNode is what is written of a node.
type topNode struct {
	gpus   []int // in the grid
	multi  appender
	single []appender
}

// GPUTop writes, for each node, a list of samples of each GPU and, where there
// are several, one of all with their aggregate.
func (s *Source) GPUTop(ctx context.Context, dir string, every time.Duration) (FramesSummary, error) {
	g, err := s.grid(ctx, topGauges(), every)
	if err != nil {
		return FramesSummary{}, err
	}
	sum := FramesSummary{GPUs: len(g.gpus)}
	nodes := topNodes(g.gpus, dir)
	err = g.frames(ctx, func(f *frame) error {
		sum.Frames++
		for _, n := range nodes {
			n.sample(f, g.gpus)
			if err := n.each((*appender).due); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return sum, err
	}
	for _, n := range nodes {
		if err := n.each((*appender).endList); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

func topNodes(gpus []dataset.GPU, dir string) (nodes []*topNode) {
	names := ordinals(gpus)
	for i, gpu := range gpus {
		if i == 0 || gpus[i-1].Node != gpu.Node {
			nodes = append(nodes, &topNode{multi: appender{path: filepath.Join(dir, gpu.Node, topMulti)}})
		}
		n := nodes[len(nodes)-1]
		n.gpus = append(n.gpus, i)
		n.single = append(n.single, appender{path: filepath.Join(dir, gpu.Node, fmt.Sprintf(topSingle, names[i]))})
	}
	return nodes
}

func (n *topNode) each(do func(*appender) error) error {
	if len(n.gpus) > 1 {
		if err := do(&n.multi); err != nil {
			return err
		}
	}
	for i := range n.single {
		if err := do(&n.single[i]); err != nil {
			return err
		}
	}
	return nil
}

// sample writes a frame. A GPU of which nothing was read in it is left out.
func (n *topNode) sample(f *frame, gpus []dataset.GPU) {
	stamp := time.Unix(0, f.begin).UTC().Format(topTime)
	var total topTotal
	begun := false
	for i, gpu := range n.gpus {
		if !topRead(f, gpu) {
			continue
		}
		to := n.single[i].item()
		*to = append(*to, "{\"timestamp\":\""...)
		*to = append(append(*to, stamp...), "\","...)
		*to = append(appendTop(*to, f, gpu, gpus[gpu]), '}')
		if len(n.gpus) == 1 {
			continue
		}
		if to = &n.multi.buf; begun {
			*to = append(*to, ',')
		} else {
			to = n.multi.item()
			*to = append(append(append(*to, "{\"timestamp\":\""...), stamp...), "\",\"multi_gpu_data\":["...)
			begun = true
		}
		*to = append(appendTop(append(*to, '{'), f, gpu, gpus[gpu]), '}')
		total.add(f, gpu, gpus[gpu])
	}
	if begun {
		n.multi.buf = append(total.append(append(n.multi.buf, "],\"aggregate_stats\":"...)), '}')
	}
}

// topRead says whether anything was read of a GPU.
func topRead(f *frame, gpu int) bool {
	for q := range topTempMem + 1 {
		if _, ok := f.value(q, gpu); ok {
			return true
		}
	}
	return false
}

// appendTop writes a GPU's fields.
func appendTop(b []byte, f *frame, gpu int, facts dataset.GPU) []byte {
	b = strconv.AppendInt(append(b, "\"gpu_index\":"...), facts.Index, 10)
	b = append(b, ",\"gpu_name\":"...)
	if facts.Name == "" {
		b = append(b, "null"...)
	} else {
		b = appendText(b, facts.Name)
	}
	for _, field := range []struct {
		name  string
		gauge int
	}{{"utilization", topUtil}, {"memory_used", topMemory}, {"power", topPower}, {"temperature", topTemp}, {"memory_temperature", topTempMem}} {
		v, ok := f.value(field.gauge, gpu)
		b = append(append(append(b, ",\""...), field.name...), "\":"...)
		b = appendNumber(b, v, ok)
		if field.gauge == topMemory {
			b = append(b, ",\"memory_total\":"...)
			b = appendNumber(b, float64(facts.MemoryBytes)/(1<<20), facts.MemoryBytes > 0)
		}
	}
	return b
}

// topTotal is the aggregate of a node's GPUs. A sum that lacks the value of one
// of them is null, so that nobody takes it for the whole.
type topTotal struct {
	count                             int
	used, total, power, util, hottest topSum
}

// topSum is a number made of several, known where all of them are.
type topSum struct {
	v     float64
	lacks bool
}

func (s *topSum) add(v float64, ok bool) { s.v, s.lacks = s.v+v, s.lacks || !ok }

func (t *topTotal) add(f *frame, gpu int, facts dataset.GPU) {
	t.count++
	t.util.add(f.value(topUtil, gpu))
	t.used.add(f.value(topMemory, gpu))
	t.power.add(f.value(topPower, gpu))
	t.total.add(float64(facts.MemoryBytes)/(1<<20), facts.MemoryBytes > 0)
	core, ok := f.value(topTemp, gpu)
	memory, also := f.value(topTempMem, gpu)
	for _, temp := range []topSum{{core, !ok}, {memory, !also}} {
		if !temp.lacks {
			t.hottest.v = max(t.hottest.v, temp.v)
		}
	}
	t.hottest.lacks = t.hottest.lacks || !ok && !also
}

func (t *topTotal) append(b []byte) []byte {
	field := func(name string, v float64, lacks bool) {
		b = append(append(append(b, '"'), name...), "\":"...)
		b = append(appendNumber(b, v, !lacks), ',')
	}
	b = append(b, '{')
	field("total_memory_used", t.used.v, t.used.lacks)
	field("total_memory_total", t.total.v, t.total.lacks)
	field("total_memory_percent", t.used.v/t.total.v*100, t.used.lacks || t.total.lacks)
	field("average_utilization", t.util.v/float64(t.count), t.util.lacks)
	field("total_power", t.power.v, t.power.lacks)
	field("max_temperature", t.hottest.v, t.hottest.lacks)
	b = strconv.AppendInt(append(b, "\"gpu_count\":"...), int64(t.count), 10)
	return append(b, '}')
}
