package analysis

import (
	"fmt"
	"math"

	"github.com/gswarm/gswarm/table"
)

// One rank works alone in a block where the median of the others does nothing
// but wait and it does not.
const (
	allWait = 0.6 // the median's share of waiting
	oneNot  = 0.3 // the lowest
	// aloneMuch is the share of the run that this must take to be told, and
	// aloneNS how long it must last together.
	aloneMuch = 0.03
	aloneNS   = int64(2e9)
)

// aloneFindings sums up, over the stages that are not themselves so, the blocks
// in which all waited for one: checkpoints that one rank writes now and then.
func (m *model) aloneFindings(stages []*stage) []Finding {
	type sum struct {
		blocks      int
		first, last int64
	}
	by := map[*device]*sum{}
	var order []*device
	for _, st := range stages {
		whole := false
		for _, s := range st.suspects {
			whole = whole || s.serial()
		}
		if whole || len(m.workers) < 3 {
			continue
		}
		from, to := m.blocks(st.Span)
		levels := m.allLevels(from, to)
		wait, work := make([]float64, len(m.workers)), make([]float64, len(m.workers))
		for b := from; b < to; b++ {
			at, least := -1, math.Inf(1)
			for i, d := range m.workers {
				u := m.usageOf(d, b, b+1)
				wait[i], work[i] = levels[i].wait(u), u.work/levels[i].work
				if wait[i] < least {
					at, least = i, wait[i]
				}
			}
			if at < 0 || !(median(wait) >= allWait) || least > oneNot || median(work) > 2*someWork {
				continue
			}
			d := m.workers[at]
			if by[d] == nil {
				by[d] = &sum{first: b}
				order = append(order, d)
			}
			by[d].blocks++
			by[d].last = b + 1
		}
	}
	var out []Finding
	for _, d := range order {
		s := by[d]
		length := int64(s.blocks) * m.block
		if length < aloneNS || float64(length) < aloneMuch*float64(m.span.EndNS-m.span.BeginNS) {
			continue
		}
		span := Span{s.first * m.block, s.last * m.block}
		share := float64(length) / float64(m.span.EndNS-m.span.BeginNS)
		f := serialFinding(d, span)
		f.Detail = fmt.Sprintf("That took about %.0f s of the run, in pieces. Checkpoints, logging and reading by one rank look like that.", float64(length)/1e9)
		f.Confidence = 0.8
		f.Effect = ptr(share * float64(len(m.workers)-1) / float64(len(m.devices)))
		f.Evidence = []Evidence{m.readingsShow(d, span, fmt.Sprintf("in %d blocks of %.0f s next to nothing was resident on it while the others sat in a collective",
			s.blocks, float64(m.block)/1e9), table.GPUUtil)}
		out = append(out, f)
	}
	return out
}

// serialFinding says that all wait for one; what shows it is the caller's.
func serialFinding(d *device, span Span) Finding {
	return Finding{
		Cause: SerialRank, Title: "all others wait while " + d.who() + " works alone", Places: []Place{d.Place}, Span: span,
		Remedy:   "Let every rank write its part, or write in the background (torch.distributed.checkpoint.async_save), and keep what one rank does alone out of the loop.",
		Severity: Warning,
	}
}

// stallFindings lists the stretches in which the GPUs were empty for more of
// their steps than in the run's other steps of that kind: their hosts held all
// of them up.
func (m *model) stallFindings(stages []*stage) []Finding {
	lows := map[bool][]float64{}
	type series struct {
		st    *stage
		first int64
		x     []float64
		group int
		dense bool
	}
	var all []series
	for _, st := range stages {
		b := st.Bottleneck.Shares
		if st.period.ns == 0 || b[Input] >= stalled || b[Compute]+b[Memory] < 0.3 {
			continue
		}
		from, to := m.inner(st.Span)
		s := series{st: st, first: from, dense: b[Compute] > b[Memory], x: make([]float64, to-from), group: 1 + int(groupSteps*st.period.ns)/int(m.block)}
		levels := m.allLevels(from, to)
		idle := make([]float64, len(m.workers))
		for b := range s.x {
			for i, d := range m.workers {
				idle[i] = m.shares(m.usageOf(d, from+int64(b), from+int64(b)+1), levels[i]).idle
			}
			s.x[b] = median(idle)
		}
		for b := 0; b+s.group <= len(s.x); b += s.group {
			lows[s.dense] = append(lows[s.dense], mean(s.x[b:b+s.group]))
		}
		all = append(all, s)
	}
	var out []Finding
	for _, s := range all {
		base := quantile(lows[s.dense], 0.2)
		more := make([]float64, len(s.x))
		for b, v := range s.x {
			more[b] = v - base
		}
		shortest := max(4, int(max(2*shortestStretch, int64(2*fewSteps*s.st.period.ns))/m.block))
		for _, found := range stretches(more, groupedSD(more, s.group), moreIdle/2, moreIdle, shortest) {
			span := Span{(s.first + int64(found.from)) * m.block, (s.first + int64(found.to)) * m.block}
			if found.excess*span.Seconds() < worthTelling*m.span.Seconds() {
				continue
			}
			part := *s.st
			part.Span = span
			says := fmt.Sprintf("GPUs were empty %s of the time, in the other steps of the run %s", percent(found.excess+base), percent(base))
			f := Finding{
				Cause: InputStall, Title: "all GPUs wait for their hosts between steps", Places: []Place{}, Span: span, Severity: Problem,
				Confidence: 0.75, Effect: ptr(found.excess * span.Seconds() / m.span.Seconds()), StepExcess: ptr(found.excess / (1 - found.excess)),
				Detail:   says + ".",
				Remedy:   "Read ahead with more data workers, keep the data on a faster disk, in fewer and larger files, or in memory; look at what else the ranks do between steps.",
				Evidence: m.everywhere(&part, table.GPU, says, table.GPUUtil),
			}
			m.hostsStall(&part, found.excess, &f)
			out = append(out, f)
		}
	}
	return out
}

// moreIdle is by how much more of the time GPUs must be empty than in the other
// steps of the run.
const moreIdle = 0.045

// worthTelling is the share of the run from which on a stall is worth it.
const worthTelling = 0.01

// groupedSD is the deviation of a block's value for means over many, from groups
// of blocks.
func groupedSD(x []float64, group int) float64 {
	var d []float64
	for b := 0; b+2*group <= len(x); b += group {
		d = append(d, math.Abs(mean(x[b:b+group])-mean(x[b+group:b+2*group])))
	}
	if len(d) < 3 {
		return math.Inf(1)
	}
	return 1.4826 / math.Sqrt2 * median(d) * math.Sqrt(float64(group))
}
