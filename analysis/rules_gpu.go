package analysis

import (
	"fmt"

	"github.com/gswarm/gswarm/table"
)

var unitColumns = []int{table.ActTensor, table.ActFP64, table.ActFP32, table.ActFP16, table.ActDRAM, table.ActSMUtil}

// Who holds the clocks down, as shares of the readings.
const (
	// heldMore is by how much more of the readings heat must be the reason on
	// the suspect than on the others.
	heldMore = 0.10
	// held is how many readings must name the power limit.
	held = 0.30
	// slowRatio is what the suspect's clock under load must be of the others'
	// for clocks to be a cause at all: GPUs under one power limit differ by 3 %
	// either way.
	slowRatio = 0.96
)

// gpuRules are causes on the GPU itself.
func gpuRules() []rule {
	return []rule{
		{
			cause: Thermal, title: "is slowed down by heat",
			remedy:   "Look at the cooling of that GPU: fans, dust, air in front of the node, its place in the rack; nvidia-smi -q -d TEMPERATURE shows the limits.",
			explains: clockRule(func(s *suspect) bool { return s.own.thermal-orZero(s.rest.thermal) >= heldMore }, table.GPUTemp),
		},
		{
			cause: PowerCap, title: "is slowed down by its power limit",
			remedy: "Compare the power limits of the GPUs (nvidia-smi -q -d POWER) and set them alike (nvidia-smi -pl); a power brake comes from the node's supply.",
			explains: clockRule(func(s *suspect) bool {
				return s.own.thermal-orZero(s.rest.thermal) < heldMore && s.own.capped+s.own.brake >= held
			}, table.GPUPowerNow),
		},
		{
			cause: ClockDrop, title: "runs at lower clocks than the others, for neither power nor heat",
			remedy: "Look for application clocks that were set (nvidia-smi -q -d CLOCK; nvidia-smi -rgc takes them back) and for a GPU that wants a reset.",
			explains: clockRule(func(s *suspect) bool {
				return s.own.thermal-orZero(s.rest.thermal) < heldMore && s.own.capped+s.own.brake < held
			}, table.GPUPowerNow),
		},
		{
			cause: PCIeReplay, title: "repeats its PCIe transmissions",
			remedy:   "Reseat the GPU or its riser and look at the link's speed and width (nvidia-smi -q -d PCI); until then take the node out.",
			explains: pcieReplay,
		},
		{
			cause: PCIeSlow, title: "copies over PCIe more slowly than the others",
			remedy:   "Look at the link's speed and width (nvidia-smi -q -d PCI), at what shares its switch, and at whether its rank's memory is on the GPU's NUMA node.",
			explains: pcieSlow,
		},
		{
			cause: LinkSlow, title: "moves less over NVLink than the others",
			remedy:   "Look at the links (nvidia-smi nvlink --status and -e) and take the node out if one is down or repeats.",
			explains: linkSlow,
		},
		{
			cause: Imbalance, title: "has more work than the others",
			remedy:   "Even out what the ranks get: lengths of sequences, sizes of shards, experts, layers of pipeline stages.",
			explains: moreWork,
		},
	}
}

func orZero(v float64) float64 {
	if v != v {
		return 0
	}
	return v
}

// clockRule explains an excess by a lower clock where what holds it down is of
// the rule's kind.
func clockRule(of func(*suspect) bool, column int) func(*suspect) (float64, []Evidence) {
	return func(s *suspect) (float64, []Evidence) {
		share, ratio := s.slowClock()
		if share <= 0 || ratio > slowRatio || !of(s) {
			return 0, nil
		}
		says := fmt.Sprintf("SM clock under load %.0f MHz, others %.0f MHz; the power limit is the reason in %s of the readings (others %s), heat in %s (%s); %.0f W (%.0f W), at most %.0f C (%.0f C)",
			s.own.loadClock, s.rest.loadClock, percent(orZero(s.own.capped)), percent(orZero(s.rest.capped)), percent(orZero(s.own.thermal)),
			percent(orZero(s.rest.thermal)), orZero(s.own.power), orZero(s.rest.power), orZero(s.own.temperature), orZero(s.rest.temperature))
		return share / s.excess, []Evidence{s.m.readingsShow(s.device, s.span, says, table.GPUClockSM, table.GPUEventReasons, column)}
	}
}

// moreWork explains an excess by more work: time under load times the clock.
func moreWork(s *suspect) (float64, []Evidence) {
	amount := s.extraWork()
	if lost, ratio := s.slowClock(); ratio <= slowRatio {
		amount -= lost
	}
	if amount <= 0 {
		return 0, nil
	}
	says := fmt.Sprintf("it worked %s of the time, others %s, at an SM clock of %.0f MHz, others %.0f MHz",
		percent(s.shares.work), percent(s.typical.work), orZero(s.own.loadClock), orZero(s.rest.loadClock))
	return amount / s.excess, []Evidence{s.m.unitsShow(s.device, s.span, says, unitColumns...)}
}

// Faults of a link that are counted: fewer than fewErrors in a stretch, or less
// than manyTimes what the others have, is no cause.
const (
	fewErrors = 10
	manyTimes = 5
)

// errorsOf sums up fields of a GPU's counters in a span, beside the others'
// median; many says that they are enough to be a cause.
func (s *suspect) errorsOf(fields ...field) (own, others float64, many bool) {
	sum := func(d *device) float64 {
		n := 0.0
		for _, f := range fields {
			n += d.counters.since(f, s.span)
		}
		return n
	}
	var rest []float64
	for _, d := range s.others {
		rest = append(rest, sum(d))
	}
	own, others = sum(s.device), median(rest)
	return own, others, own >= fewErrors && own >= manyTimes*others
}

func pcieReplay(s *suspect) (float64, []Evidence) {
	own, others, many := s.errorsOf(gpuPCIeReplay)
	if !many {
		return 0, nil
	}
	says := fmt.Sprintf("%.0f PCIe transmissions repeated, others %.0f", own, others)
	return s.hostSide(), []Evidence{countersShow(table.GPUCounter, s.device.Place, s.device.counters, s.span, says, table.CntPCIeReplay)}
}

// copiesAtAll is the PCIe traffic, in MiB/s, from which on copies can be what a
// GPU is late with.
const copiesAtAll = 100

func pcieSlow(s *suspect) (float64, []Evidence) {
	if max(s.own.rx, s.own.tx) < copiesAtAll {
		return 0, nil
	}
	says := fmt.Sprintf("%.0f MiB/s over PCIe, others %.0f MiB/s; at most %.0f MiB/s in a window, others %.0f MiB/s; %s of the time it held something without an SM at work, beyond the others",
		max(s.own.rx, s.own.tx), max(s.rest.rx, s.rest.tx), s.own.maxPCIe, s.rest.maxPCIe, percent(s.extraCopy()))
	// Other things than copies leave the SMs alone, too; where the GPU was empty
	// as well, the host is more likely.
	alone := max(0, 1-2*max(0, s.extraIdle())/s.excess)
	return 0.8 * alone * s.extraCopy() / s.excess, []Evidence{s.m.unitsShow(s.device, s.span, says, table.ActPCIeRx, table.ActPCIeTx, table.ActSMUtil)}
}

func linkSlow(s *suspect) (float64, []Evidence) {
	own, others, many := s.errorsOf(gpuLinkReplay, gpuLinkRecovery, gpuLinkCRC)
	if !many {
		return 0, nil
	}
	says := fmt.Sprintf("%.0f NVLink replays, recoveries and checksum errors, others %.0f", own, others)
	left := s.excess - max(0, s.extraWork()) - max(0, s.extraIdle())
	return max(0, left) / s.excess, []Evidence{countersShow(table.GPUCounter, s.device.Place, s.device.counters, s.span, says,
		table.CntNVLinkReplay, table.CntNVLinkRecovery, table.CntNVLinkCRC)}
}

// hostSide is the share of the excess in which the suspect's GPU was empty or
// copied: what its host is answerable for.
func (s *suspect) hostSide() float64 {
	return max(0, max(0, s.extraIdle())+max(0, s.extraCopy())) / s.excess
}

// faultRules are what the driver reported.
func faultRules() []rule {
	return []rule{{
		cause: GPUFault, title: "has a fault that the driver reported",
		remedy: "Look the Xid or ECC error up in the driver's documentation; drain the node and reset or replace the GPU.",
		explains: func(s *suspect) (float64, []Evidence) {
			shows := s.m.faultsOf(s.device, Span{s.span.BeginNS - 60e9, s.span.EndNS})
			if len(shows) == 0 {
				return 0, nil
			}
			return 1, shows
		},
	}}
}

// faultKinds are the events that tell of a damaged or lost GPU.
var faultKinds = map[string]bool{
	"xid": true, "ecc_uncorrected": true, "ecc_corrected_storm": true, "dram_retirement_failure": true,
	"poison_nonfatal": true, "poison_fatal": true, "gpu_unavailable": true, "gpu_recovery_action": true, "gpu_lost": true,
}

// faultsOf lists what shows a fault of a GPU in a span.
func (m *model) faultsOf(d *device, s Span) []Evidence {
	var out []Evidence
	for _, h := range m.tables.events.list {
		if h.node == d.Node && h.gpu != nil && *h.gpu == *d.GPU && faultKinds[h.kind] && h.t >= s.BeginNS && h.t <= s.EndNS {
			out = append(out, Evidence{
				Table: table.Event.Name, Columns: names(table.Event, table.EventKind, table.EventDetail), Place: d.Place,
				Span: Span{h.t, h.t}, Rows: 1, Says: fmt.Sprintf("%s %s", h.kind, h.detail),
			})
		}
	}
	if n := d.counters.since(gpuECCUncorrected, s); n > 0 {
		out = append(out, countersShow(table.GPUCounter, d.Place, d.counters, s, fmt.Sprintf("%.0f memory errors that could not be corrected, or rows replaced after them", n),
			table.CntECCUncorrected, table.CntRemappedUncorrected))
	}
	return out
}
