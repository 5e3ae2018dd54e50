package analysis

import (
	"context"
	"fmt"
	"testing"

	"github.com/gswarm/gswarm/table"
)

// hostRows are rows of the host's tables that a test made.
type hostRows map[string]*table.Batch

func (h hostRows) add(t *table.Table, node string, at int64) table.Row {
	b := h[t.Name]
	if b == nil {
		b = table.NewBatch(table.Timeline(t), 64)
		h[t.Name] = b
	}
	r := b.Append()
	r.Int(table.TLTimeNS, at)
	r.String(table.TLNode, node)
	return r
}

func (h hostRows) Rows(_ context.Context, t *table.Table, _ []int, fn func(*table.Batch) error) error {
	if b := h[t.Name]; b != nil {
		return fn(b)
	}
	return nil
}

const (
	ruleBegin = int64(1_790_000_000e9)
	ruleEnd   = ruleBegin + 60e9
)

// rankRow is what one rank did in a second.
type rankRow struct {
	delay, throttled, psiCPU, psiMem, psiIO, ioDelay float64 // shares
	faults, hits                                     int64   // a second
	state                                            string
	count                                            int64
	affinity, nodes                                  string
}

func healthyRank() rankRow {
	return rankRow{delay: 0.004, state: "R", count: 16, affinity: "0-15", nodes: "0"}
}

// ranks writes a minute of rows for eight ranks of a node.
func (h hostRows) ranks(of func(rank int) rankRow) {
	for second := range int64(61) {
		for rank := range 8 {
			w := of(rank)
			r := h.add(table.Rank, "n0", ruleBegin+second*1e9)
			own := func(c int) int { return c + tl }
			r.Int(own(table.RankRank), int64(rank))
			r.Int(own(table.RankPID), int64(100+rank))
			r.String(own(table.RankRole), roleRank)
			r.Int(own(table.RankGPU), int64(rank))
			r.Int(own(table.RankGPUNode), 0)
			r.String(own(table.RankState), w.state)
			r.Int(own(table.RankAffinityCount), w.count)
			r.String(own(table.RankAffinity), w.affinity)
			r.String(own(table.RankAffinityNodes), w.nodes)
			grow := func(c int, share float64) { r.Int(own(c), int64(float64(second)*share*1e9)) }
			grow(table.RankCPUUser, 0.9)
			grow(table.RankRunDelay, w.delay)
			grow(table.RankThrottledTime, w.throttled)
			grow(table.RankPSICPUSome, w.psiCPU)
			grow(table.RankPSIMemSome, w.psiMem)
			grow(table.RankPSIIOSome, w.psiIO)
			grow(table.RankIODelay, w.ioDelay)
			r.Int(own(table.RankFaultsMajor), second*w.faults)
			r.Int(own(table.RankMemoryHits), second*w.hits)
		}
	}
}

// late is GPU 3 of eight, for which the others waited a tenth of the time; what
// it did more than the others is the test's.
func late(t *testing.T, rows hostRows, change func(s *suspect)) *suspect {
	t.Helper()
	tab, err := readTables(context.Background(), rows)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{tables: tab, block: blockNS, span: Span{ruleBegin, ruleEnd}, linkPeak: linkFloor, pciePeak: pcieFloor}
	for g := range 8 {
		d := newDevice("n0", g)
		d.Rank, d.ranks = ptr(g), []int{g}
		d.counters = tab.counters.lookup("n0", g)
		m.devices = append(m.devices, d)
	}
	m.workers = m.devices
	s := &suspect{
		m: m, span: m.span, device: m.devices[3], excess: 0.10, bound: 0.01, steady: 1, period: 600e6,
		own:     usage{utilKnown: true, unitsKnown: true, util: 0.95, loadClock: 1900, clock: 1900, power: 600, temperature: 60},
		rest:    usage{utilKnown: true, unitsKnown: true, util: 0.95, loadClock: 1900, clock: 1900, power: 600, temperature: 60},
		shares:  shares{known: true, work: 0.80, wait: 0.15, idle: 0.05},
		typical: shares{known: true, work: 0.80, wait: 0.15, idle: 0.05},
	}
	for i, d := range m.devices {
		if i != 3 {
			s.others = append(s.others, d)
		}
	}
	change(s)
	return s
}

func moreWorkOf(s *suspect) { s.shares.work, s.shares.wait = 0.90, 0.05 }
func emptier(s *suspect)    { s.shares.idle, s.shares.wait = 0.15, 0.05 }

// Each rule by itself: what shows its cause is named by it and by no other.
func TestRules(t *testing.T) {
	only := func(w rankRow) func(int) rankRow {
		return func(rank int) rankRow {
			if rank == 3 {
				return w
			}
			return healthyRank()
		}
	}
	with := func(change func(*rankRow)) func(int) rankRow {
		w := healthyRank()
		change(&w)
		return only(w)
	}
	healthyRanks := func(int) rankRow { return healthyRank() }
	for _, c := range []struct {
		name   string
		want   Cause
		ranks  func(int) rankRow
		rows   func(hostRows)
		change func(*suspect)
	}{
		{"more work at the same clock", Imbalance, healthyRanks, nil, moreWorkOf},
		{"a low clock for no reason", ClockDrop, healthyRanks, nil, func(s *suspect) { moreWorkOf(s); s.own.loadClock = 1690 }},
		{"a low clock at the power limit", PowerCap, healthyRanks, nil, func(s *suspect) { moreWorkOf(s); s.own.loadClock, s.own.capped = 1690, 0.9 }},
		{"a low clock by a power brake", PowerCap, healthyRanks, nil, func(s *suspect) { moreWorkOf(s); s.own.loadClock, s.own.brake = 1690, 0.9 }},
		{"a low clock for heat, at the limit, too", Thermal, healthyRanks, nil, func(s *suspect) {
			moreWorkOf(s)
			s.own.loadClock, s.own.thermal, s.own.capped = 1690, 0.8, 0.9
		}},
		{"all at the power limit, one with more work", Imbalance, healthyRanks, nil, func(s *suspect) {
			moreWorkOf(s)
			s.own.loadClock, s.own.capped, s.rest.capped = 1880, 1, 1
		}},
		{"waits for a core", CPUStarved, with(func(w *rankRow) { w.delay = 0.12 }), nil, emptier},
		{"held by a quota", CPUStarved, with(func(w *rankRow) { w.throttled, w.psiCPU = 0.5, 0.11 }), nil, emptier},
		{"few cores", Affinity, with(func(w *rankRow) { w.count, w.affinity, w.delay = 1, "0", 0.1 }), nil, emptier},
		{"far cores", Affinity, with(func(w *rankRow) { w.affinity, w.nodes = "16-31", "1" }), nil, emptier},
		{"waits for memory", MemoryPressure, with(func(w *rankRow) { w.psiMem, w.faults, w.state = 0.1, 200, "D" }), nil, emptier},
		{"at its memory limit, without pressure accounting", MemoryPressure, with(func(w *rankRow) { w.hits, w.state = 50, "D" }), nil, emptier},
		{"waits for I/O", InputStall, with(func(w *rankRow) { w.ioDelay = 0.1 }), nil, emptier},
		{"is empty, and its host says nothing", InputStall, healthyRanks, nil, emptier},
		{"copies, and nothing repeats", PCIeSlow, healthyRanks, nil, func(s *suspect) { s.own.rx, s.rest.rx, s.own.maxPCIe, s.rest.maxPCIe = 1500, 1500, 5000, 9000 }},
		{"copies, and repeats", PCIeReplay, healthyRanks, func(h hostRows) {
			counterRows(h, 3, table.CntPCIeReplay, 30)
		}, func(s *suspect) { s.own.rx, s.rest.rx, s.own.maxPCIe, s.rest.maxPCIe = 1500, 1500, 5000, 9000 }},
		{"repeats over NVLink", LinkSlow, healthyRanks, func(h hostRows) { counterRows(h, 3, table.CntNVLinkReplay, 100) }, func(*suspect) {}},
		{"has an Xid", GPUFault, healthyRanks, func(h hostRows) {
			r := h.add(table.Event, "n0", ruleBegin+10e9)
			r.String(table.EventKind+tl, "xid")
			r.Int(table.EventGPU+tl, 3)
			r.String(table.EventDetail+tl, `{"xid":48}`)
		}, moreWorkOf},
		{"is late and nothing shows why", "", healthyRanks, nil, func(*suspect) {}},
		{"an Xid of another GPU explains nothing", "", healthyRanks, func(h hostRows) {
			r := h.add(table.Event, "n0", ruleBegin+10e9)
			r.String(table.EventKind+tl, "xid")
			r.Int(table.EventGPU+tl, 5)
		}, func(*suspect) {}},
		{"all repeat a little over NVLink", "", healthyRanks, func(h hostRows) {
			for g := range 8 {
				counterRows(h, g, table.CntNVLinkReplay, 2)
			}
		}, func(*suspect) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows := hostRows{}
			rows.ranks(c.ranks)
			if c.rows != nil {
				c.rows(rows)
			}
			s := late(t, rows, c.change)
			r, explained, shows := explain(s, lateRules())
			if r == nil {
				if c.want != "" {
					t.Fatalf("no cause was found, want %s", c.want)
				}
				return
			}
			if r.cause != c.want {
				t.Fatalf("%s was found to explain %.0f %%, want %q", r.cause, explained*100, c.want)
			}
			f := s.lateFinding(r, explained, shows)
			if f.Remedy == "" || len(f.Evidence) < 2 || f.Confidence <= 0 || f.Confidence > 1 {
				t.Errorf("the finding lacks something: %+v", f)
			}
			for _, e := range f.Evidence {
				if e.Says == "" || len(e.Columns) == 0 {
					t.Errorf("evidence that says nothing: %+v", e)
				}
			}
		})
	}
}

// counterRows writes a minute of a GPU's counter that grows by so much a second.
func counterRows(h hostRows, gpu, column int, perSecond int64) {
	for second := range int64(61) {
		r := h.add(table.GPUCounter, "n0", ruleBegin+second*1e9)
		r.Int(table.CntGPU+tl, int64(gpu))
		r.String(table.CntUUID+tl, fmt.Sprint("GPU-", gpu))
		r.Int(column+tl, 7+second*perSecond)
	}
}

// Without the host's tables the rules of the host say nothing, and the one that
// needs none has its say.
func TestRulesWithoutHosts(t *testing.T) {
	s := late(t, hostRows{}, emptier)
	if r, _, _ := explain(s, lateRules()); r == nil || r.cause != InputStall {
		t.Errorf("an empty GPU without rows of its rank: %+v", r)
	}
	s = late(t, hostRows{}, moreWorkOf)
	if r, _, _ := explain(s, lateRules()); r == nil || r.cause != Imbalance {
		t.Errorf("more work without rows of its rank: %+v", r)
	}
}

// Steps of the wall clock are found whatever way they go, slewing is not.
func TestClockSteps(t *testing.T) {
	rows := hostRows{}
	wall := ruleBegin
	for second := range int64(60) {
		raw := second * 1e9
		switch second {
		case 20:
			wall += 30e6
		case 40:
			wall -= 3e9
		}
		wall += 500e3 // the kernel slews as fast as it may
		r := rows.add(table.ClockBracket, "n0", ruleBegin+raw)
		r.Int(table.ClockBracket.Index("raw0_ns")+tl, raw)
		r.Int(table.ClockBracket.Index("raw1_ns")+tl, raw+2000)
		r.Int(table.ClockBracket.Index("realtime_ns")+tl, wall+raw)
	}
	var r clockReader
	if err := r.read(context.Background(), rows); err != nil {
		t.Fatal(err)
	}
	if len(r.steps) != 2 || r.steps[0].by < 29e6 || r.steps[0].by > 31e6 || r.steps[1].by > -2.9e9 {
		t.Errorf("steps: %+v", r.steps)
	}
}

// A counter that went back counts from there, and null is no zero.
func TestCountersGrow(t *testing.T) {
	rows := hostRows{}
	values := []int64{100, 110, -1, 130, 5, 9} // -1 is null
	for i, v := range values {
		r := rows.add(table.GPUCounter, "n0", ruleBegin+int64(i)*1e9)
		r.Int(table.CntGPU+tl, 0)
		r.String(table.CntUUID+tl, "GPU-0")
		if v >= 0 {
			r.Int(table.CntPCIeReplay+tl, v)
		}
	}
	var c gpuCounterReader
	if err := c.read(context.Background(), rows); err != nil {
		t.Fatal(err)
	}
	if got := c.lookup("n0", 0).since(gpuPCIeReplay, Span{ruleBegin, ruleEnd}); got != 34 {
		t.Errorf("the counter grew by %v, in truth by 10, 20 and 4", got)
	}
}

// The marks of one rank that come again are the steps.
func TestMarks(t *testing.T) {
	rows := hostRows{}
	for i := range int64(20) {
		for rank := range int64(3) {
			r := rows.add(table.Event, "n0", ruleBegin+i*2e9+rank*1e6)
			r.String(table.EventKind+tl, "mark")
			r.Int(table.EventRank+tl, rank)
			r.String(table.EventDetail+tl, fmt.Sprintf(`{"text":"step %d","pid":1}`, i))
		}
	}
	r := rows.add(table.Event, "n0", ruleBegin)
	r.String(table.EventKind+tl, "mark")
	r.String(table.EventDetail+tl, `{"text":"checkpoint"}`)
	r = rows.add(table.Event, "n0", ruleBegin)
	r.String(table.EventKind+tl, "mark")
	r.String(table.EventDetail+tl, "no JSON")
	tab, err := readTables(context.Background(), rows)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{tables: tab, span: Span{ruleBegin, ruleEnd}}
	m.marks = m.markedSteps()
	if p := m.markedPeriod(m.span); p.ns != 2e9 || !p.marked || len(p.begins) != 20 {
		t.Errorf("the marks' period is %v, from %d of them", p.ns, len(p.begins))
	}
}
