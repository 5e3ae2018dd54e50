package dataset

import (
	"cmp"
	"context"
	"slices"

	"github.com/gswarm/gswarm/table"
)

// GPU is one GPU of the run.
type GPU struct {
	Node string
	// Index is its ordinal in the node, the column gpu of every table.
	Index int64
	UUID  string
	GPUFacts
}

// GPUFacts is what a node's meta.yaml says of a GPU. What it does not say is
// zero.
type GPUFacts struct {
	Name        string `yaml:"name"`
	PCI         string `yaml:"pci_bus_id"`
	MemoryBytes int64  `yaml:"memory_bytes"`
	// MemoryBusBits and MemoryClockMHz give the peak of its memory's
	// bandwidth.
	MemoryBusBits  int64 `yaml:"memory_bus_bits"`
	MemoryClockMHz int64 `yaml:"memory_clock_max_mhz"`
}

// PeakBandwidth is the peak bandwidth of the GPU's memory in bytes a second, 0
// where it is not known: two transfers a clock, as all DDR, GDDR and HBM memory
// makes, times the bus's width.
func (f GPUFacts) PeakBandwidth() float64 {
	return 2 * float64(f.MemoryClockMHz) * 1e6 * float64(f.MemoryBusBits) / 8
}

// gpuTables are those whose rows name the GPUs: a GPU may lack rows of one.
var gpuTables = []*table.Table{table.GPU, table.GPUActivity, table.GPUPower, table.GPUCounter}

// GPUs lists the GPUs that have rows, by node and ordinal.
func (tl *Timeline) GPUs(ctx context.Context) ([]GPU, error) {
	known, err := tl.knownGPUs()
	if err != nil {
		return nil, err
	}
	type key struct {
		node  string
		index int64
		uuid  string
	}
	seen := make(map[key]bool)
	for _, t := range gpuTables {
		var last key
		err := tl.Read(ctx, table.Timeline(t).Select(table.Node, "gpu", "gpu_uuid"), func(b *table.Batch) error {
			node, index, uuid := b.Strings(0), b.Ints(1), b.Strings(2)
			for r := range b.Rows() {
				if k := (key{node[r], index[r], uuid[r]}); k != last {
					seen[k], last = true, k
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var all []GPU
	for k := range seen {
		all = append(all, GPU{Node: k.node, Index: k.index, UUID: k.uuid, GPUFacts: known[k.node][k.uuid]})
	}
	slices.SortFunc(all, func(a, b GPU) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
	})
	return all, nil
}

// knownGPUs returns what is known of the GPUs, by node and UUID. A meta.yaml that
// is not there or damaged says nothing.
func (tl *Timeline) knownGPUs() (map[string]map[string]GPUFacts, error) {
	d, err := tl.accounts()
	if err != nil {
		return nil, err
	}
	known := make(map[string]map[string]GPUFacts)
	for _, n := range tl.Meta.Nodes {
		var gpus []struct {
			UUID     string `yaml:"uuid"`
			GPUFacts `yaml:",inline"`
		}
		m := d.nodes[n.Dir]
		if m == nil || remarshal(m.GPUs, &gpus) != nil {
			continue
		}
		if known[n.Node] == nil {
			known[n.Node] = make(map[string]GPUFacts)
		}
		for _, g := range gpus {
			known[n.Node][g.UUID] = g.GPUFacts
		}
	}
	return known, nil
}
