package analysis

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gswarm/gswarm/table"
)

// When a GPU's NVLink is slower than the others'.
const (
	// slowerLink is what its highest rates must be of the others'.
	slowerLink = 0.93
	// sameBytes is by how much the mean rates may differ for the bytes to be
	// the same: a GPU that has less to send is not slow.
	sameBytes = 0.15
	// alikeTops is how near the others' highest rates must lie to each other
	// for windows to be filled with traffic. Bursts shorter than a window give
	// any rate.
	alikeTops = 0.02
	// longLink is how many windows the others must exchange for in a step: a
	// burst that a window holds whole gives its length for the window's, and
	// one that lies across two gives less. fewBlocks is how many blocks there
	// must be.
	longLink  = 1.3
	fewBlocks = 20
	// linkCost is the share of time from which on that costs.
	linkCost = 0.03
)

// slowLinks lists the GPUs that took longer than the others for the same bytes
// over NVLink. It can be seen only where windows are filled with traffic.
func (m *model) slowLinks(st *stage) []Finding {
	from, to := m.inner(st.Span)
	if len(m.workers) < 3 || to-from < fewBlocks || st.period.ns == 0 {
		return nil
	}
	top := make([][]float64, to-from) // the fullest window of each GPU, block by block
	typical := make([][]float64, to-from)
	for b := range top {
		top[b] = make([]float64, len(m.workers))
		for i, d := range m.workers {
			if d.units == nil {
				return nil
			}
			if c := d.units.get(from + int64(b)); c != nil {
				top[b][i] = float64(c.maxLink)
			}
		}
		typical[b] = othersMedian(top[b])
	}
	var out []Finding
	for i := range m.workers {
		below := make([]float64, len(top))
		for b := range top {
			below[b] = math.NaN()
			if typical[b][i] >= linkFloor {
				below[b] = 1 - top[b][i]/typical[b][i]
			}
		}
		for _, s := range stretches(below, steadySD(below), (1-slowerLink)/2, 1-slowerLink, fewBlocks) {
			if f := m.slowLink(st, i, from+int64(s.from), from+int64(s.to)); f != nil {
				out = append(out, *f)
			}
		}
	}
	return out
}

// slowLink says that a worker's NVLink was slower than the others' in the blocks
// [from, to), nil where it was not for the same bytes, or where that cannot be
// told.
func (m *model) slowLink(st *stage, i int, from, to int64) *Finding {
	n := len(m.workers)
	tops, rates := make([]float64, n), make([]float64, n)
	for k, d := range m.workers {
		rates[k] = orZero(m.usageOf(d, from, to).link)
		var v []float64
		for b := from; b < to; b++ {
			if c := d.units.get(b); c != nil && c.w > 0 {
				v = append(v, float64(c.maxLink))
			}
		}
		tops[k] = orZero(quantile(v, 0.75))
	}
	d, top, rate := m.workers[i], tops[i], rates[i]
	typical, others := othersMedian(tops)[i], othersMedian(rates)[i]
	if typical < linkFloor || top <= 0 || top > slowerLink*typical || rate < (1-sameBytes)*others {
		return nil
	}
	if others/typical*st.period.ns < longLink*1e9*d.units.windows.stat().Mean {
		return nil
	}
	rest := slices.Delete(tops, i, i+1)
	longer := rate/top - others/typical
	if mad(rest) > alikeTops*typical || typical-top < unlike(n)*mad(rest) || longer < linkCost {
		return nil
	}
	span := Span{max(st.BeginNS, from*m.block), min(st.EndNS, to*m.block)}
	says := fmt.Sprintf("at most %.0f MiB/s over NVLink in a window, others %.0f MiB/s, for the same bytes: %.0f and %.0f MiB/s in the mean", top, typical, rate, others)
	return &Finding{
		Cause: LinkSlow, Title: d.who() + " moves less over NVLink than the others", Places: []Place{d.Place}, Span: span, Severity: Problem, Confidence: 0.8,
		Detail: fmt.Sprintf("For the same bytes it took %s of the time, others %s.", percent(rate/top), percent(others/typical)),
		Effect: ptr(longer * span.Seconds() * float64(n-1) / m.gpuSeconds()), StepExcess: ptr(longer / (1 - min(longer, 0.99))),
		Evidence: []Evidence{m.unitsShow(d, span, says, table.ActNVLinkTx, table.ActNVLinkRx)},
		Remedy:   "Look at the links (nvidia-smi nvlink --status and -e) and take the node out if one is down or repeats.",
	}
}

// portRate is the signalling rate of a port as the driver names it.
type portRate struct {
	gbit float64
	name string
	t    int64
	rows int64
}

// slowPorts lists the nodes whose RDMA ports came up slower than the others'.
func (m *model) slowPorts(stages []*stage) []Finding {
	rates := m.tables.fabric.rates
	nodes := slices.Sorted(maps.Keys(rates))
	var all []float64
	for _, p := range rates {
		all = append(all, p.gbit)
	}
	if len(all) < 2 {
		return nil
	}
	typical := quantile(all, 0.5)
	if len(all) == 2 {
		typical = max(all[0], all[1])
	}
	var out []Finding
	for _, node := range nodes {
		p := rates[node]
		if p.gbit >= 0.9*typical {
			continue
		}
		span := Span{max(p.t, m.span.BeginNS), m.span.EndNS}
		f := Finding{
			Cause: LinkSlow, Title: fmt.Sprintf("a network port of node %s runs at %.0f Gbit/s, those of others at %.0f", node, p.gbit, typical), Places: []Place{{Node: node}},
			Span: span, Severity: Problem, Confidence: 0.9,
			Detail: "All ranks that exchange with it wait for it.",
			Remedy: "Reseat or replace the cable, look at the port's counters (perfquery, ibdiagnet, mlxlink), and bring the link up again.",
			Evidence: []Evidence{{
				Table: table.Infiniband.Name, Columns: []string{"rate"}, Place: Place{Node: node}, Span: span, Rows: p.rows,
				Says: fmt.Sprintf("rate %q, the median of the nodes is %.0f Gbit/s", p.name, typical),
			}},
		}
		m.costs(&f, stages)
		out = append(out, f)
	}
	return out
}

// gbit reads the number that a port's rate begins with.
func gbit(rate string) float64 {
	number, _, _ := strings.Cut(strings.TrimSpace(rate), " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0
	}
	return v
}
