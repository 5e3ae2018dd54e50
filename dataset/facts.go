package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
)

// A timeline's rows are what the analysis asks for.
var _ analysis.Source = (*Timeline)(nil)

// accounts are what a run's YAML files say of it.
type accounts struct {
	run *rundir.Run // nil where run.yaml cannot be read
	// nodes are the samplers' own accounts by the name of their directory.
	nodes map[string]*rundir.NodeMeta
	// damage is what could not be read, in words.
	damage []string
}

// Facts gathers what is known of the run beside its tables. The run goes on
// where an agent of it still writes, judged by now. What is damaged of it is
// among the facts as missing; what a newer gswarm wrote is an error.
func (tl *Timeline) Facts(now time.Time) (analysis.Facts, error) {
	alive, err := tl.Dir.Alive(now)
	if err != nil {
		return analysis.Facts{}, err
	}
	d, err := tl.accounts()
	if err != nil {
		return analysis.Facts{}, err
	}
	f := analysis.Facts{Run: tl.name(), Running: len(alive) > 0, Missing: append(tl.Losses(), d.damage...)}
	if r := d.run; r != nil {
		f.Command, f.JobID, f.TickNS = r.Command, jobID(r.Scheduler), r.Interval.Nanoseconds()
		f.BeginNS = r.Begin.UnixNano()
		f.LimitNS = r.Scheduler.EndTime * 1e9
		if r.End != nil {
			f.EndNS = r.End.UnixNano()
		}
		if !f.Running {
			f.Exit = d.exit()
		}
	}
	f.Nodes = d.nodeFacts(tl.Meta)
	return f, nil
}

func (tl *Timeline) accounts() (*accounts, error) {
	d := &accounts{nodes: make(map[string]*rundir.NodeMeta)}
	var newer *rundir.NewerError
	var err error
	if d.run, err = rundir.ReadRun(tl.Dir); errors.As(err, &newer) {
		return nil, err
	} else if err != nil {
		d.run = nil
		d.damage = append(d.damage, err.Error())
	}
	for _, n := range tl.Meta.Nodes {
		m, err := rundir.ReadNodeMeta(tl.Dir, n.Dir)
		if errors.As(err, &newer) {
			return nil, err
		}
		if err != nil {
			d.damage = append(d.damage, fmt.Sprintf("%s: %v", n.Node, err))
			continue
		}
		d.nodes[n.Dir] = m
	}
	return d, nil
}

// name is that of the run's directory, wherever the command stands.
func (tl *Timeline) name() string {
	if path, err := filepath.Abs(string(tl.Dir)); err == nil {
		return filepath.Base(path)
	}
	return filepath.Base(string(tl.Dir))
}

func jobID(s rundir.Scheduler) string {
	id := s.JobID
	if s.ArrayJob != "" && s.Task != "" {
		id = s.ArrayJob + "_" + s.Task
	}
	if id != "" && s.Step != "" {
		id += "." + s.Step
	}
	return id
}

// exit says how the job ended, as far as gswarm was its parent.
func (d *accounts) exit() string {
	switch e := d.run.Exit; {
	case e != nil && e.Signal != "":
		return "ended by " + e.Signal
	case e != nil:
		return fmt.Sprintf("exit code %d", e.Code)
	}
	ranks := slices.Clone(d.run.Ranks)
	for _, m := range d.nodes {
		ranks = append(ranks, m.Ranks...)
	}
	failed, open := 0, 0
	for _, r := range ranks {
		switch {
		case r.Exit == nil:
			open++
		case r.Exit.Code != 0 || r.Exit.Signal != "":
			failed++
		}
	}
	switch {
	case len(ranks) == 0:
		return ""
	case failed > 0:
		return fmt.Sprintf("%d of %d ranks failed", failed, len(ranks))
	case open > 0:
		return fmt.Sprintf("%d of %d ranks were not seen to end", open, len(ranks))
	}
	return "all ranks ended with exit code 0"
}

// nodeFacts joins what the run expected, what the merge found and what the
// samplers said, in the order of the nodes' names.
func (d *accounts) nodeFacts(meta *merge.Meta) []analysis.NodeFacts {
	byName := make(map[string]*analysis.NodeFacts)
	samplers := make(map[string][]merge.NodeMeta)
	var names []string
	node := func(name string) *analysis.NodeFacts {
		if byName[name] == nil {
			byName[name] = &analysis.NodeFacts{Node: name, Missing: true}
			names = append(names, name)
		}
		return byName[name]
	}
	for _, n := range meta.Nodes {
		f := node(n.Node)
		if f.Missing { // its first sampler
			f.Missing, f.Aligned = false, true
		}
		samplers[n.Node] = append(samplers[n.Node], n)
		f.Aligned = f.Aligned && n.Clock.Method != clock.Unaligned
		if b := n.Clock.BoundNS; b != nil {
			f.BoundNS = max(f.BoundNS, b.Max)
		}
		if n.End != nil {
			f.Ended = n.End.Reason
		}
		if m := d.nodes[n.Dir]; m != nil {
			f.CPUs, f.MemoryBytes = hostFacts(m)
		}
	}
	if d.run != nil {
		for _, want := range d.run.Nodes {
			node(rundir.NodeOf(want))
		}
	}
	slices.Sort(names)
	var all []analysis.NodeFacts
	for _, name := range names {
		f := byName[name]
		f.GPUs = d.gpuFacts(samplers[name])
		all = append(all, *f)
	}
	return all
}

// hostFacts returns how many CPUs the job may use on a node and how much
// memory: what its cgroup allows, else what the node has.
func hostFacts(m *rundir.NodeMeta) (cpus int, memory int64) {
	var facts struct {
		CPU struct {
			Threads int `yaml:"threads"`
		} `yaml:"cpu"`
		MemoryBytes int64 `yaml:"memory_bytes"`
		Cgroup      struct {
			CPUs        string   `yaml:"cpus"`
			QuotaCPUs   *float64 `yaml:"quota_cpus"`
			MemoryBytes *int64   `yaml:"memory_bytes"`
		} `yaml:"cgroup"`
	}
	if remarshal(m.Facts, &facts) != nil {
		return 0, 0
	}
	cpus, memory = facts.CPU.Threads, facts.MemoryBytes
	if n := listLength(facts.Cgroup.CPUs); n > 0 {
		cpus = n
	}
	if q := facts.Cgroup.QuotaCPUs; q != nil && *q >= 1 && int(*q) < cpus {
		cpus = int(*q)
	}
	if b := facts.Cgroup.MemoryBytes; b != nil && *b > 0 && (memory == 0 || *b < memory) {
		memory = *b
	}
	return cpus, memory
}

// listLength counts the numbers of a list such as "0-3,8".
func listLength(list string) int {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		var from, to int
		if c, _ := fmt.Sscanf(part, "%d-%d", &from, &to); c == 2 && to >= from {
			n += to - from + 1
		} else if c >= 1 {
			n++
		}
	}
	return n
}

// seenGPU is what a sampler's meta.yaml says of a GPU.
type seenGPU struct {
	Index        int    `yaml:"gpu"`
	UUID         string `yaml:"uuid"`
	PCI          string `yaml:"pci_bus_id"`
	Name         string `yaml:"name"`
	MemoryBytes  int64  `yaml:"memory_bytes"`
	PowerLimitMW int64  `yaml:"power_limit_mw"`
	ClockMaxMHz  int    `yaml:"clock_sm_max_mhz"`
	NUMANode     *int   `yaml:"numa_node"`
}

// gpuFacts lists a node's GPUs. Of several samplers each counts its own GPUs
// from 0; the timeline numbers them together, by PCI bus id.
func (d *accounts) gpuFacts(samplers []merge.NodeMeta) []analysis.GPUFacts {
	var all []seenGPU
	for _, s := range samplers {
		var gpus []seenGPU
		if m := d.nodes[s.Dir]; m != nil && remarshal(m.GPUs, &gpus) == nil {
			all = append(all, gpus...)
		}
	}
	if len(samplers) > 1 {
		slices.SortStableFunc(all, func(a, b seenGPU) int {
			return cmp.Or(cmp.Compare(strings.ToLower(a.PCI), strings.ToLower(b.PCI)), cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
		})
		all = slices.CompactFunc(all, func(a, b seenGPU) bool { return strings.EqualFold(a.PCI, b.PCI) && a.UUID == b.UUID })
		for i := range all {
			all[i].Index = i
		}
	}
	var facts []analysis.GPUFacts
	for _, g := range all {
		f := analysis.GPUFacts{
			GPU: g.Index, UUID: g.UUID, Name: g.Name, PowerLimitMW: g.PowerLimitMW,
			MemoryBytes: g.MemoryBytes, ClockMaxMHz: g.ClockMaxMHz, NUMA: -1,
		}
		if g.NUMANode != nil {
			f.NUMA = *g.NUMANode
		}
		facts = append(facts, f)
	}
	return facts
}

// remarshal takes what a source said of itself, which rundir keeps as it is,
// into the few fields that are asked for.
func remarshal(from, to any) error {
	b, err := yaml.Marshal(from)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(b, to)
}
