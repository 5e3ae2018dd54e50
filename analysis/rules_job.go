package analysis

import (
	"fmt"
	"math"

	"github.com/gswarm/gswarm/table"
)

// jobRule is a cause that concerns all GPUs of a phase alike.
type jobRule struct {
	cause    Cause
	severity Severity
	title    string
	remedy   string
	// finds returns the share of GPU time of the stage that the cause took,
	// 0 where it is none, and what shows it.
	finds func(m *model, st *stage) (share float64, shows []Evidence)
}

// Shares of a phase's GPU time from which on a cause is named.
const (
	// stalled is that of waiting for the host. The recorded job, which reads
	// nothing, spends 6 % there between its steps.
	stalled = 0.10
	// stalledByHelpers is the same where the ranks' helpers, which prepare
	// input, do nothing but compute or wait for storage.
	stalledByHelpers = 0.06
	// bounds is that of what bounds a phase.
	bounds = 0.40
)

func jobRules() []jobRule {
	return []jobRule{
		{
			cause: InputStall, severity: Problem, title: "all GPUs wait for their hosts between steps",
			remedy: "Read ahead with more data workers, keep the data on a faster disk, in fewer and larger files, or in memory; look at what else the ranks do between steps.",
			finds: func(m *model, st *stage) (float64, []Evidence) {
				least := stalled
				helpers, says := m.helpersBusy(m.workers, st.Span)
				if helpers {
					least = stalledByHelpers
				}
				share := m.stalledShare(st, helpers)
				// Without steps a phase that is part work and part rest looks
				// alike: only a long one counts.
				steps := st.period.ns > 0 && st.EndNS-st.BeginNS >= 2*minPhaseNS || st.EndNS-st.BeginNS >= 4*minPhaseNS
				if share < least || st.Bottleneck.Name == string(Launch) || !steps {
					return 0, nil
				}
				shows := m.everywhere(st, table.GPU, fmt.Sprintf("GPUs were empty %s of the time in a phase with work", percent(share)), table.GPUUtil)
				if helpers {
					shows = append(shows, m.helpersShow(st.Span, says))
				}
				return share, shows
			},
		},
		{
			cause: LaunchBound, severity: Warning, title: "kernels are too short to fill the GPUs: they wait for launches",
			remedy: "Capture the loop in CUDA graphs (torch.compile with mode reduce-overhead), fuse small operations, use larger batches.",
			finds:  bound(Launch, "PCIe carried commands to the GPUs while their SMs rested", table.ActPCIeRx, table.ActSMUtil),
		},
		{
			cause: TransferBound, severity: Warning, title: "copies over PCIe bound the work",
			remedy: "Copy less or beside the work: pinned memory, non_blocking copies on a stream of their own, data prepared on the GPU.",
			finds:  bound(Transfer, "PCIe moved data while no SM was busy", table.ActPCIeRx, table.ActPCIeTx, table.ActSMUtil),
		},
		{
			cause: CommBound, severity: Info, title: "communication between the GPUs bounds the work",
			remedy: "Overlap communication with computing (larger buckets, gradient accumulation), send less (lower precision, sharding within the node).",
			finds:  bound(Communication, "SMs held kernels that neither computed nor moved device memory for the job", table.ActNVLinkTx, table.ActSMUtil, table.ActTensor),
		},
		{
			cause: MemoryBound, severity: Info, title: "device memory bandwidth bounds the work",
			remedy: "Fuse element-wise operations (torch.compile), use lower precision, keep more in registers and shared memory.",
			finds:  bound(Memory, "device memory was nearer to its peak than arithmetic", table.ActDRAM, table.ActTensor),
		},
		{
			cause: PowerCap, severity: Info, title: "the power limit holds the clocks of all GPUs down",
			remedy: "Nothing is wrong: the work is dense. A higher limit, where the site allows one, gives more; cooler GPUs leak less.",
			finds: func(m *model, st *stage) (float64, []Evidence) {
				_, clock, top := m.powerHeld(st.Span)
				work := st.Bottleneck.Shares[Compute] + st.Bottleneck.Shares[Memory]
				// Dense steps run into the limit, too; it is what bounds a
				// phase where nothing else takes its part of the time.
				if st.Bottleneck.Name != "power" || top == 0 {
					return 0, nil
				}
				return work, m.everywhere(st, table.GPU, fmt.Sprintf("SM clock under load %.0f MHz of %.0f MHz with the power limit as the reason", clock, top),
					table.GPUClockSM, table.GPUEventReasons, table.GPUPowerNow)
			},
		},
	}
}

// stalledShare is the share of a phase in which the median GPU was empty in
// between work: where some GPUs have no part in the phase, the others do not
// wait for that. Where the helpers are busy, what is left of the time without
// work and without what collectives hold counts, too: it has no windows that
// trail, but takes copies and slow collectives for rest.
func (m *model) stalledShare(st *stage, helpers bool) float64 {
	if st.Bottleneck.Shares[Input] == 0 {
		return 0
	}
	from, to := m.inner(st.Span)
	var idle, empty []float64
	levels := m.allLevels(from, to)
	for i, d := range m.workers {
		idle = append(idle, st.all[i].idle)
		empty = append(empty, levels[i].empty(m.usageOf(d, from, to)))
	}
	share := median(idle)
	if helpers {
		share = min(max(share, orZero(median(empty))), 2*share)
	}
	return share
}

// helpersBusy says whether the helpers of GPUs' ranks, at the median of those
// that have any, do nothing but compute, or wait for storage.
func (m *model) helpersBusy(devices []*device, s Span) (busy bool, says string) {
	var cpu, blocked []float64
	for _, d := range devices {
		c := m.rankTrack(d)
		if rows := c.since(helperRows, s); rows > 0 {
			cpu = append(cpu, c.since(helperCPU, s)/rows) // a row a second
			blocked = append(blocked, c.since(helperBlocked, s)/rows)
		}
	}
	if len(cpu) == 0 || 2*len(cpu) < len(devices) {
		return false, ""
	}
	says = fmt.Sprintf("the ranks' helpers computed %s of the time and were found waiting for storage in %s of the readings", percent(median(cpu)), percent(median(blocked)))
	return median(cpu) >= fullCore || median(blocked) >= mostly, says
}

// fullCore is the share of a core from which on a helper does nothing but
// compute.
const fullCore = 0.85

// helpersShow is evidence in the rows of the ranks' helpers.
func (m *model) helpersShow(s Span, says string) Evidence {
	e := Evidence{Table: table.Rank.Name, Columns: names(table.Rank, table.RankRole, table.RankCPUUser, table.RankState), Span: s, Says: says}
	for _, d := range m.workers {
		e.Rows += int64(m.rankTrack(d).since(helperRows, s))
	}
	return e
}

// bound makes a rule of an activity that takes much of a phase.
func bound(a Activity, says string, columns ...int) func(*model, *stage) (float64, []Evidence) {
	return func(m *model, st *stage) (float64, []Evidence) {
		share := st.Bottleneck.Shares[a]
		if share < bounds {
			return 0, nil
		}
		return share, m.everywhere(st, table.GPUActivity, fmt.Sprintf("%s, %s of the time", says, percent(share)), columns...)
	}
}

// everywhere is evidence in the rows of all workers in a stage.
func (m *model) everywhere(st *stage, t *table.Table, says string, columns ...int) []Evidence {
	e := Evidence{Table: t.Name, Columns: names(t, columns...), Span: st.Span, Says: says}
	for _, d := range m.workers {
		if t == table.GPU {
			e.Rows += m.readingsShow(d, st.Span, "").Rows
		} else {
			e.Rows += m.unitsShow(d, st.Span, "").Rows
		}
	}
	return []Evidence{e}
}

// jobFindings are what concerns all GPUs of a stage.
func (m *model) jobFindings(st *stage) []Finding {
	var out []Finding
	for _, r := range jobRules() {
		share, shows := r.finds(m, st)
		if share <= 0 || math.IsNaN(share) {
			continue
		}
		f := Finding{
			Cause: r.cause, Title: r.title, Places: []Place{}, Span: st.Span, Severity: r.severity, Remedy: r.remedy,
			Evidence:   shows,
			Confidence: math.Round(100*clamp(0.5+share/2, 0, 0.95)) / 100,
			Detail:     fmt.Sprintf("It took %s of the GPUs' time in phase %d.", percent(share), st.Index),
		}
		// What the power limit costs cannot be said: no board runs dense work at
		// its highest clock.
		if r.cause != PowerCap {
			f.Effect = ptr(share * st.Seconds() * float64(len(m.workers)) / m.gpuSeconds())
		}
		if r.cause == InputStall {
			m.hostsStall(st, share, &f)
			f.StepExcess = ptr(share / (1 - min(share, 0.99)))
		}
		out = append(out, f)
	}
	return out
}

// hostsStall looks for why all GPUs were empty: what their ranks waited for at
// the median.
func (m *model) hostsStall(st *stage, share float64, f *Finding) {
	typical := func(field field) float64 {
		var v []float64
		for _, d := range m.workers {
			if s, ok := m.ofRanks(d, field, st.Span); ok {
				v = append(v, s)
			}
		}
		return orZero(median(v))
	}
	delay, memory, io := max(typical(rankDelay), min(1, typical(rankThrottled))), typical(rankPSIMem), max(typical(rankIODelay), typical(rankPSIIO))
	says := fmt.Sprintf("at the median the ranks waited for a core %s of the time, for memory %s, for I/O %s", percent(delay), percent(memory), percent(io))
	e := Evidence{Table: table.Rank.Name, Columns: names(table.Rank, table.RankRunDelay, table.RankThrottledTime, table.RankPSIMemSome, table.RankIODelay, table.RankPSIIOSome), Span: st.Span, Says: says}
	for _, d := range m.workers {
		for _, r := range d.ranks {
			if c := m.tables.ranks.lookup(d.Node, r); c != nil {
				e.Rows += int64(c.since(rankRows, st.Span))
			}
		}
	}
	if e.Rows == 0 {
		return
	}
	f.Evidence = append(f.Evidence, e)
	for _, r := range hostRules() {
		switch {
		case r.cause == CPUStarved && delay-healthy >= enough*share && delay >= max(memory, io):
		case r.cause == MemoryPressure && memory-healthy >= enough*share && memory > max(delay, io):
		default:
			continue
		}
		f.Cause, f.Remedy, f.Title = r.cause, r.remedy, "all ranks: each "+r.title
		return
	}
}
