package analysis

import (
	"fmt"
	"math"
	"slices"

	"github.com/gswarm/gswarm/table"
)

// runFindings are what rows and facts say of the run beside its steps: faults,
// errors that were counted, nodes that are missing, clocks that jumped, use.
func (m *model) runFindings(stages []*stage) []Finding {
	var out []Finding
	out = append(out, m.gpuFaults()...)
	out = append(out, m.linkErrors(stages)...)
	ports := m.slowPorts(stages)
	out = append(out, ports...)
	for _, f := range m.networkErrors(stages) {
		// A port that came up slower counts errors, too.
		if !slices.ContainsFunc(ports, func(p Finding) bool { return samePlace(p.Places[0], f.Places[0]) }) {
			out = append(out, f)
		}
	}
	out = append(out, m.missingNodes()...)
	out = append(out, m.clockSteps()...)
	return append(out, m.lowUse(stages)...)
}

// gpuFaults lists the GPUs with a fault that the driver reported.
func (m *model) gpuFaults() []Finding {
	var out []Finding
	remedy := faultRules()[0].remedy
	for _, d := range m.devices {
		shows := m.faultsOf(d, m.all())
		if len(shows) == 0 {
			continue
		}
		f := Finding{
			Cause: GPUFault, Title: d.who() + " has a fault that the driver reported", Detail: shows[0].Says, Places: []Place{d.Place},
			Span: Span{m.span.EndNS, m.span.EndNS}, Severity: Problem, Confidence: 0.95, Remedy: remedy, Evidence: shows,
		}
		for i := range f.Evidence {
			e := &f.Evidence[i]
			if e.BeginNS < m.span.BeginNS { // counters: of the whole run
				e.Span = m.span
			} else {
				f.BeginNS = min(f.BeginNS, e.BeginNS)
			}
		}
		if d.readings != nil && m.span.EndNS-d.readings.end > goneAfter {
			f.Title = d.who() + " was lost"
		}
		out = append(out, f)
	}
	return out
}

// counterFault is a kind of errors that a link counts.
type counterFault struct {
	cause         Cause
	title, remedy string
	says          string
	fields        []field
	columns       []int
}

func counterFaults() []counterFault {
	return []counterFault{
		{
			cause: LinkSlow, title: "repeats its NVLink transmissions",
			remedy: "Look at the links (nvidia-smi nvlink --status and -e) and take the node out if one is down or repeats.",
			says:   "NVLink replays, recoveries and checksum errors", fields: []field{gpuLinkReplay, gpuLinkRecovery, gpuLinkCRC},
			columns: []int{table.CntNVLinkReplay, table.CntNVLinkRecovery, table.CntNVLinkCRC},
		},
		{
			cause: PCIeReplay, title: "repeats its PCIe transmissions",
			remedy: "Reseat the GPU or its riser and look at the link's speed and width (nvidia-smi -q -d PCI); until then take the node out.",
			says:   "PCIe transmissions repeated", fields: []field{gpuPCIeReplay}, columns: []int{table.CntPCIeReplay},
		},
	}
}

// linkErrors lists the GPUs whose links count many more errors than the others'.
func (m *model) linkErrors(stages []*stage) []Finding {
	var out []Finding
	for _, k := range counterFaults() {
		counts := make([]float64, len(m.devices))
		for i, d := range m.devices {
			for _, f := range k.fields {
				counts[i] += d.counters.since(f, m.all())
			}
		}
		typical := median(counts)
		for i, d := range m.devices {
			if counts[i] < fewErrors || counts[i] < manyTimes*typical {
				continue
			}
			span := d.counters.spanOf(m.span, k.fields...)
			f := Finding{
				Cause: k.cause, Title: d.who() + " " + k.title, Places: []Place{d.Place}, Span: span, Severity: Warning, Confidence: 0.7, Remedy: k.remedy,
				Detail: fmt.Sprintf("%.0f %s, the median of the GPUs is %.0f.", counts[i], k.says, typical),
				Evidence: []Evidence{countersShow(table.GPUCounter, d.Place, d.counters, span,
					fmt.Sprintf("%.0f %s in %.0f s", counts[i], k.says, span.Seconds()), k.columns...)},
			}
			m.costs(&f, stages)
			out = append(out, f)
		}
	}
	return out
}

// costly is the share of time of more waiting that is no chance.
const costly = 0.03

// costs says by how much more all GPUs waited for communication while a finding
// lasted, where that can be seen.
func (m *model) costs(f *Finding, stages []*stage) {
	more, ok := m.moreWaiting(f.Span, stages)
	if !ok || more < costly {
		return
	}
	f.Severity, f.Confidence = Problem, 0.85
	f.StepExcess = ptr(more / (1 - min(more, 0.99)))
	f.Effect = ptr(more * f.Seconds() / m.span.Seconds())
	f.Detail += fmt.Sprintf(" All GPUs waited %s more of the time in collectives than before or after.", percent(more))
}

// moreWaiting is by how much more of the time the workers waited in a span than
// in the steps before and after it, for the same work. It cannot be said of a
// span that covers all steps.
func (m *model) moreWaiting(s Span, stages []*stage) (float64, bool) {
	var in, out []float64 // waiting for each share of work
	var worked []float64
	for _, st := range stages {
		if st.period.ns == 0 {
			continue
		}
		from, to := m.inner(st.Span)
		for _, d := range m.workers {
			l := m.levels(d, from, to)
			for _, part := range []struct {
				Span
				to *[]float64
			}{{Span{max(s.BeginNS, st.BeginNS), min(s.EndNS, st.EndNS)}, &in}, {Span{st.BeginNS, min(st.EndNS, s.BeginNS)}, &out}, {Span{max(st.BeginNS, s.EndNS), st.EndNS}, &out}} {
				if part.EndNS-part.BeginNS < minPhaseNS {
					continue
				}
				a, b := m.inner(part.Span)
				u := m.usageOf(d, a, b)
				if work := u.work / l.work; work > someWork {
					*part.to = append(*part.to, l.wait(u)/work)
					if part.to == &in {
						worked = append(worked, work)
					}
				}
			}
		}
	}
	if len(in) == 0 || len(out) == 0 {
		return 0, false
	}
	return (median(in) - median(out)) * median(worked), true
}

// spanOf is from the first to the last block of a span in which a field grew.
func (c *counterTrack) spanOf(s Span, of ...field) Span {
	first, last := int64(0), int64(0)
	for i := range c.n {
		b := c.first + int64(i)
		cell := c.get(b)
		for _, f := range of {
			if c.slots[f] >= 0 && cell.v[c.slots[f]] > 0 {
				if last == 0 {
					first = b
				}
				last = b + 1
			}
		}
	}
	if last == 0 {
		return s
	}
	return Span{max(s.BeginNS, first**c.block), max(min(s.EndNS, last**c.block), max(s.BeginNS, first**c.block))}
}

// When a node's network repeats too much.
const (
	// retransmitted is the share of TCP segments sent again from which on
	// that costs, and fewRetransmits how many it must be a second.
	retransmitted  = 5e-4
	fewRetransmits = 2.0
	// fabricErrorsASecond is that of errors and repeats of RDMA ports.
	fabricErrorsASecond = 0.5
)

// networkErrors lists the nodes whose network repeats what it sent much more
// often than the others'.
func (m *model) networkErrors(stages []*stage) []Finding {
	type count struct {
		node      string
		c         *counterTrack
		rate      float64
		says      string
		columns   []int
		t         *table.Table
		of        field
		important bool
	}
	var all []count
	each(&m.tables.host.tracks, func(node string, _ int, c *counterTrack) {
		span := c.busySpan(m.span, nodeRetrans)
		again, sent, seconds := c.since(nodeRetrans, span), c.since(nodeSegments, span), c.since(observed, span)
		if seconds <= 0 || sent <= 0 {
			return
		}
		all = append(all, count{
			node: node, c: c, rate: again / sent, t: table.Host, columns: []int{table.HostTCPRetransSegs, table.HostTCPOutSegs, table.HostTCPTimeouts}, of: nodeRetrans,
			says:      fmt.Sprintf("%.0f of %.0f TCP segments were sent again (%.2f %%)", again, sent, 100*again/sent),
			important: again/sent >= retransmitted && again/seconds >= fewRetransmits,
		})
	})
	var fabric []count
	each(&m.tables.fabric.tracks, func(node string, _ int, c *counterTrack) {
		errs, seconds := c.since(nodeFabricErrs, m.all()), c.since(observed, m.all())
		if seconds <= 0 {
			return
		}
		columns := make([]int, len(fabricErrors))
		for i, name := range fabricErrors {
			columns[i] = table.Infiniband.Index(name)
		}
		fabric = append(fabric, count{
			node: node, c: c, rate: errs / seconds, t: table.Infiniband, columns: columns, of: nodeFabricErrs,
			says: fmt.Sprintf("%.0f errors and repeats of its RDMA ports", errs), important: errs/seconds >= fabricErrorsASecond,
		})
	})
	var out []Finding
	for _, group := range [][]count{all, fabric} {
		rates := make([]float64, len(group))
		for i, g := range group {
			rates[i] = g.rate
		}
		for i, g := range group {
			others := 0.0
			if len(rates) > 1 {
				others = othersMedian(rates)[i]
			}
			if !g.important || g.rate < manyTimes*others {
				continue
			}
			span := g.c.busySpan(m.span, g.of)
			f := Finding{
				Cause: NetRetransmit, Title: "node " + g.node + " repeats much of what it sends", Places: []Place{{Node: g.node}}, Span: span, Severity: Info, Confidence: 0.5,
				Detail:   g.says + ".",
				Remedy:   "Look at the node's cable, port and switch: errors and drops of the interface, link speed, congestion (ethtool -S, perfquery, ibdiagnet).",
				Evidence: []Evidence{countersShow(g.t, Place{Node: g.node}, g.c, span, g.says, g.columns...)},
			}
			if len(m.facts.Nodes) > 1 { // the ranks of one node exchange nothing over it
				m.costs(&f, stages)
			}
			out = append(out, f)
		}
	}
	return out
}

// busySpan is the stretch in which a field grew by more than a quarter of its
// highest growth in a block: a few errors before and after do not count.
func (c *counterTrack) busySpan(s Span, f field) Span {
	top := float32(0)
	slot := c.slots[f]
	for i := range c.n {
		top = max(top, c.get(c.first + int64(i)).v[slot])
	}
	first, last := int64(math.MaxInt64), int64(0)
	for i := range c.n {
		b := c.first + int64(i)
		if c.get(b).v[slot] > top/4 {
			first, last = min(first, b), b+1
		}
	}
	if last == 0 {
		return s
	}
	return Span{max(s.BeginNS, first**c.block), max(s.BeginNS, min(s.EndNS, last**c.block))}
}

// goneAfter is by how much earlier than the others a node or a GPU must have
// been read last to be gone: a spool is written each second and more.
const goneAfter = int64(5e9)

// missingNodes lists the nodes that left nothing or stopped before the others.
func (m *model) missingNodes() []Finding {
	ends := map[string]int64{}
	for _, d := range m.devices {
		if d.readings != nil {
			ends[d.Node] = max(ends[d.Node], d.readings.end)
		}
	}
	for node, t := range m.tables.host.end {
		ends[node] = max(ends[node], t)
	}
	last := int64(0)
	for _, t := range ends {
		last = max(last, t)
	}
	var out []Finding
	for _, n := range m.facts.Nodes {
		f := Finding{
			Cause: NodeMissing, Places: []Place{{Node: n.Node}}, Severity: Problem, Confidence: 0.95, Span: m.span,
			Remedy: "Look at the node's own log and the scheduler's (sacct, scontrol show node): it may have been lost, drained or rebooted. What it did is not in this answer.",
		}
		switch end, has := ends[n.Node]; {
		case n.Missing || !has && len(ends) > 0:
			f.Title = "node " + n.Node + " left no data"
			f.Detail = "The run was to sample it."
		case has && last-end > goneAfter+n.BoundNS && !m.facts.Running:
			f.Title = fmt.Sprintf("node %s stopped %.0f s before the others", n.Node, float64(last-end)/1e9)
			f.Detail = "Its last reading lies that long before the last of the others."
			if n.Ended != "" {
				f.Detail += " Its sampler ended with: " + n.Ended + "."
				f.Severity, f.Confidence = Warning, 0.6
			}
			f.BeginNS = end
			f.Evidence = []Evidence{{
				Table: table.Host.Name, Columns: []string{table.TimeNS}, Place: Place{Node: n.Node}, Span: Span{end, end}, Rows: 1,
				Says: fmt.Sprintf("its last row is %.1f s earlier than the last of the others", float64(last-end)/1e9),
			}}
		default:
			continue
		}
		f.Effect = ptr(f.Seconds() / max(m.span.Seconds(), 1e-9) / float64(len(m.facts.Nodes)))
		out = append(out, f)
	}
	return out
}

// clockSteps lists the nodes whose wall clock jumped.
func (m *model) clockSteps() []Finding {
	var out []Finding
	for _, s := range m.tables.clocks.steps {
		f := Finding{
			Cause: ClockStep, Title: fmt.Sprintf("the wall clock of node %s jumped by %+.0f ms", s.node, float64(s.by)/1e6), Places: []Place{{Node: s.node}},
			Span: Span{s.t, s.t}, Severity: Warning, Confidence: 0.95,
			Detail: "The timeline does not follow the wall clock, so the tables are right; the job's own logs, and samples that the driver stamps, jump.",
			Remedy: "Let the time daemon slew instead of stepping (chrony: makestep only at boot) and start it before jobs do.",
			Evidence: []Evidence{{
				Table: table.ClockBracket.Name, Columns: []string{"raw0_ns", "raw1_ns", "realtime_ns"}, Place: Place{Node: s.node}, Span: Span{s.t, s.t}, Rows: 2,
				Says: fmt.Sprintf("between two readings the wall clock moved by %+.1f ms against the raw clock", float64(s.by)/1e6),
			}},
		}
		out = append(out, f)
	}
	return out
}

// fewUsed is the share of the run's GPU time with work, copies or communication
// below which the GPUs are little used.
const fewUsed = 0.35

// lowUse says that the GPUs did little over the whole run.
func (m *model) lowUse(stages []*stage) []Finding {
	used, length := 0.0, 0.0
	for _, st := range stages {
		b := st.Bottleneck.Shares
		length += st.Seconds()
		used += st.Seconds() * (b[Compute] + b[Memory] + b[Transfer] + b[Launch])
		// Where GPUs are empty most of the time, the driver's windows take
		// what little there is for more.
		if b[Communication] > b[Idle]+b[Input] {
			used += st.Seconds() * b[Communication]
		}
	}
	spare := 0
	for _, d := range m.devices {
		if d.spare {
			spare++
		}
	}
	if length == 0 || len(m.devices) == 0 {
		return nil
	}
	used *= float64(len(m.workers)) / float64(len(m.devices)) / length
	known := slices.ContainsFunc(m.workers, func(d *device) bool { return d.readings != nil && d.readings.metrics[0].n > 0 })
	if used >= fewUsed || !known {
		return nil
	}
	f := Finding{
		Cause: LowUse, Title: fmt.Sprintf("the GPUs were used %s of the time", percent(used)), Places: []Place{}, Span: m.span, Severity: Problem, Confidence: 0.9,
		Effect: ptr(1 - used),
		Remedy: "Ask for fewer GPUs or for less time, or find what the GPUs wait for: input, start-up, checkpoints, other programs.",
	}
	if spare > 0 {
		f.Detail = plural(spare, "GPU", "GPUs") + " did nothing in the whole run while others worked."
	}
	rows := int64(0)
	for _, d := range m.devices {
		if d.readings != nil {
			rows += d.readings.rows
		}
	}
	f.Evidence = []Evidence{{
		Table: table.GPU.Name, Columns: names(table.GPU, table.GPUUtil), Span: m.span, Rows: rows,
		Says: fmt.Sprintf("work, copies and communication took %s of the GPUs' time", percent(used)),
	}}
	return []Finding{f}
}
