package merge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

// gpuColumn is the name of the column that holds a GPU's ordinal, in every
// table that has one.
const gpuColumn = "gpu"

// seenGPU is what a sampler's meta.yaml says of a GPU.
type seenGPU struct {
	Index int    `yaml:"gpu"`
	UUID  string `yaml:"uuid"`
	PCI   string `yaml:"pci_bus_id"`
}

// gpusOf takes the list of GPUs from a sampler's own account, which rundir
// keeps as it is.
func gpusOf(meta *rundir.NodeMeta) ([]seenGPU, error) {
	b, err := yaml.Marshal(meta.GPUs)
	if err != nil {
		return nil, err
	}
	var gpus []seenGPU
	if err := yaml.Unmarshal(b, &gpus); err != nil {
		return nil, err
	}
	return gpus, nil
}

// numberGPUs renumbers the GPUs of nodes that had several samplers: each
// counts its own from 0, and the timeline has one ordinal for each GPU of a
// node, by PCI bus id.
func (m *merger) numberGPUs() {
	for from := 0; from < len(m.nodes); {
		to := from + 1
		for to < len(m.nodes) && m.nodes[to].machine == m.nodes[from].machine {
			to++
		}
		if to-from > 1 {
			m.numberTogether(m.nodes[from:to])
		}
		from = to
	}
}

func (m *merger) numberTogether(samplers []*node) {
	type placed struct {
		seenGPU
		sampler int
	}
	var all []placed
	for i, n := range samplers {
		for _, g := range n.gpus {
			all = append(all, placed{g, i})
		}
		if len(n.gpus) == 0 && n.rows > 0 && n.data.TableRows(table.GPU.Name) > 0 {
			m.notes = append(m.notes, fmt.Sprintf("%s: its meta.yaml lists no GPUs, so their ordinals are the sampler's own and may repeat within the node", n.name))
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		return cmp.Or(
			cmp.Compare(strings.ToLower(a.PCI), strings.ToLower(b.PCI)),
			// Instances of one GPU share its bus id.
			cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
	})
	ordinal, next := make(map[string]int64), int64(0)
	for _, g := range all {
		key := strings.ToLower(g.PCI) + "|" + g.UUID
		if _, ok := ordinal[key]; !ok {
			ordinal[key] = next
			next++
		}
		n := samplers[g.sampler]
		if n.ordinals == nil {
			n.ordinals = make(map[int64]int64)
		}
		n.ordinals[int64(g.Index)] = ordinal[key]
	}
	for _, n := range samplers {
		for own, in := range n.ordinals {
			n.renumbered = n.renumbered || own != in
		}
	}
}

// renumber puts the node's ordinals in place of the sampler's.
func (n *node) renumber(gpus []int64, valid []bool) {
	if !n.renumbered {
		return
	}
	for i, g := range gpus {
		if in, ok := n.ordinals[g]; ok && valid[i] {
			gpus[i] = in
		}
	}
}
