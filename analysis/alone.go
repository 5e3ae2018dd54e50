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
