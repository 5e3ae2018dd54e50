package rank

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// numaNode is one memory node and its CPUs.
type numaNode struct {
	node int
	cpus cpuSet
}

// numaNodes reads which CPUs belong to which memory node.
func numaNodes(sysRoot string) []numaNode {
	dirs, _ := filepath.Glob(filepath.Join(sysRoot, "devices/system/node/node[0-9]*")) // the pattern is a good one
	var nodes []numaNode
	for _, dir := range dirs {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		if err != nil || n < 0 || n >= maxCPU {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, "cpulist"))
		if err != nil {
			continue
		}
		if cpus, ok := parseList(string(b)); ok && len(cpus) > 0 {
			nodes = append(nodes, numaNode{n, cpus})
		}
	}
	slices.SortFunc(nodes, func(a, b numaNode) int { return a.node - b.node })
	return nodes
}

// nodeOf returns the memory node of a CPU.
func nodeOf(nodes []numaNode, cpu int64) int64 {
	for i := range nodes {
		if cpu >= 0 && cpu < maxCPU && nodes[i].cpus.has(int(cpu)) {
			return int64(nodes[i].node)
		}
	}
	return absent
}

// nodesOf returns the memory nodes that a set of CPUs lies on.
func nodesOf(nodes []numaNode, cpus cpuSet) cpuSet {
	var set cpuSet
	for i := range nodes {
		if nodes[i].cpus.meets(cpus) {
			set.add(nodes[i].node)
		}
	}
	return set
}
