package analysis

import (
	"cmp"
	"math"
	"slices"
)

// device is one GPU with all that was read of it.
type device struct {
	Place
	facts    GPUFacts
	readings *gpuTrack
	units    *activityTrack
	power    *powerTrack
	counters *counterTrack
	// busyPower is set where power serves for the units' activity.
	busyPower uint16
	spare     bool
	ranks     []int
}

// model is what the run's rows have come to.
type model struct {
	facts   Facts
	tables  *tables
	span    Span
	block   int64
	devices []*device
	// workers are the devices that are not spare.
	workers []*device
	// linkPeak and pciePeak are rates in MiB/s that are taken as full.
	linkPeak, pciePeak float64
	// marks are when the job marked its steps, nil where it did not.
	marks []int64
}

// Peaks of links are the highest rate that a window shows, and no less than
// these: 25 GB/s is one NVLink's, 8 GB/s that of a PCIe slot of the third
// generation with eight lanes.
const (
	linkFloor = 25e9 / 1048576
	pcieFloor = 8e9 / 1048576
)

// assemble joins what the readers kept.
func assemble(facts Facts, t *tables) *model {
	m := &model{facts: facts, tables: t, linkPeak: linkFloor, pciePeak: pcieFloor}
	for t.gpu.block < t.activity.block {
		t.gpu.fold()
	}
	for t.activity.block < t.gpu.block {
		t.activity.fold()
	}
	m.block = t.gpu.block
	m.findDevices()
	for _, d := range m.devices {
		if d.units == nil {
			continue
		}
		for _, c := range d.units.chunks {
			for i := range c {
				m.linkPeak = max(m.linkPeak, float64(c[i].maxLink))
				m.pciePeak = max(m.pciePeak, float64(c[i].maxPCIe))
			}
		}
	}
	m.findSpan()
	m.findSpare()
	return m
}

// findDevices lists the GPUs that the facts or any rows name.
func (m *model) findDevices() {
	type key struct {
		node string
		gpu  int
	}
	found := map[key]*device{}
	find := func(node string, gpu int) *device {
		k := key{node, gpu}
		if found[k] == nil {
			found[k] = newDevice(node, gpu)
		}
		return found[k]
	}
	for _, n := range m.facts.Nodes {
		for _, g := range n.GPUs {
			d := find(n.Node, g.GPU)
			d.facts, d.UUID = g, g.UUID
		}
	}
	for _, g := range m.tables.gpu.list {
		find(g.node, g.gpu).readings = g
	}
	each(&m.tables.activity.tracks, func(node string, gpu int, a *activityTrack) { find(node, gpu).units = a })
	each(&m.tables.power.tracks, func(node string, gpu int, p *powerTrack) {
		d := find(node, gpu)
		if d.power = p; d.units == nil {
			d.busyPower = p.busyPower()
		}
	})
	if c := m.tables.counters.counterReader; c != nil {
		each(&c.tracks, func(node string, gpu int, c *counterTrack) { find(node, gpu).counters = c })
	}
	for node, ids := range m.tables.counters.uuids {
		for gpu, id := range ids {
			if d := find(node, int(gpu)); d.UUID == "" {
				d.UUID = id
			}
		}
	}
	m.findRanks(func(h holder) {
		if d := found[key{h.node, h.gpu}]; d != nil && !slices.Contains(d.ranks, h.rank) {
			d.ranks = append(d.ranks, h.rank)
		}
	})
	for _, d := range found {
		slices.Sort(d.ranks)
		if len(d.ranks) == 1 {
			d.Rank = ptr(d.ranks[0])
		}
		m.devices = append(m.devices, d)
	}
	slices.SortFunc(m.devices, func(a, b *device) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(*a.GPU, *b.GPU))
	})
}

// findRanks passes which rank held which GPU: as the driver saw it, and else as
// the rank's process says.
func (m *model) findRanks(fn func(holder)) {
	held := map[int]bool{}
	for h := range m.tables.holders.held {
		held[h.rank] = true
		fn(h)
	}
	for _, r := range m.tables.ranks.known.list {
		if r.gpu != nil && !held[r.rank] {
			fn(holder{r.node, *r.gpu, r.rank})
		}
	}
}

func newDevice(node string, gpu int) *device {
	d := &device{facts: GPUFacts{NUMA: -1}}
	d.Node, d.GPU = node, ptr(gpu)
	return d
}

// findSpan takes the run's span from the first to the last reading of a GPU;
// without any, from the facts.
func (m *model) findSpan() {
	begin, end := int64(math.MaxInt64), int64(math.MinInt64)
	for _, d := range m.devices {
		if d.readings != nil {
			begin, end = min(begin, d.readings.begin), max(end, d.readings.end)
		}
		if d.units != nil && d.units.rows > 0 {
			begin, end = min(begin, d.units.begin), max(end, d.units.end)
		}
	}
	if begin > end {
		begin, end = m.facts.BeginNS, max(m.facts.EndNS, m.facts.BeginNS)
	}
	m.span = Span{begin, end}
}

// spareUse is the share of time with work below which a GPU is spare, where
// others reach ten times as much.
const spareUse = 0.005

// findSpare marks the GPUs that did nothing in the whole run while others
// worked.
func (m *model) findSpare() {
	use := make([]float64, len(m.devices))
	for i, d := range m.devices {
		// What the SMs did says more than that something was resident.
		u := m.usage(d, m.span)
		use[i] = orZero(u.util)
		if d.units != nil && u.unitsKnown {
			use[i] = u.sm + u.copying + u.tiny
		}
	}
	for i, d := range m.devices {
		d.spare = use[i] < spareUse && len(use) > 1 && slices.Max(use) > 10*spareUse && d.readings != nil
		if !d.spare {
			m.workers = append(m.workers, d)
		}
	}
}

// blocks returns the numbers of the blocks that lie wholly in the span, or that
// hold it where it is shorter.
func (m *model) blocks(s Span) (from, to int64) {
	from, to = floorDiv(s.BeginNS+m.block-1, m.block), floorDiv(s.EndNS, m.block)
	if from >= to {
		from = floorDiv(s.BeginNS, m.block)
		to = max(from+1, floorDiv(s.EndNS-1, m.block)+1)
	}
	return from, to
}

// usage is what a GPU did in a stretch of time. Shares are between 0 and 1, NaN
// where they are not known.
type usage struct {
	utilKnown, unitsKnown, powerKnown bool

	util                                float64 // share of time with something resident, copies included
	sm, tensor, fp, dram                float64 // shares of the units' peaks
	link, rx, tx                        float64 // MiB/s
	work, memory                        float64 // means of work, see units
	copying, tiny                       float64 // shares of windows
	maxWork, maxLink, maxPCIe           float64
	power                               float64 // W
	clock, loadClock                    float64 // MHz: the mean, and under load
	capped, thermal, brake, temperature float64
}

// usage sums up what a GPU did in the blocks of a span.
func (m *model) usage(d *device, s Span) usage {
	from, to := m.blocks(s)
	return m.usageOf(d, from, to)
}

func (m *model) usageOf(d *device, from, to int64) usage {
	nan := math.NaN()
	u := usage{
		util: nan, sm: nan, tensor: nan, fp: nan, dram: nan, link: nan, rx: nan, tx: nan, work: nan, memory: nan,
		copying: nan, tiny: nan, maxWork: nan, maxLink: nan, maxPCIe: nan, power: nan, clock: nan, loadClock: nan,
		capped: nan, thermal: nan, brake: nan, temperature: nan,
	}
	if d.readings != nil {
		u.readings(d.readings.sum(from, to))
	}
	switch {
	case d.units != nil:
		u.activity(d.units.sum(from, to))
	case d.busyPower > 0:
		// GPUs before Hopper: their power says when they work.
		if share, ok := d.power.above(d.busyPower, Span{from * m.block, to * m.block}, m.tables.power.fine.dt); ok {
			u.unitsKnown, u.work = true, 100*share
			u.memory, u.copying, u.tiny, u.link = 0, 0, 0, 0
		}
	}
	return u
}

func (u *usage) readings(c reading) {
	if c.n > 0 {
		u.utilKnown, u.util = true, float64(c.util/c.n)
	}
	if c.np > 0 {
		u.powerKnown, u.power = true, float64(c.power/c.np)
	}
	if c.nc > 0 {
		u.clock, u.loadClock = float64(c.clock/c.nc), float64(c.clock/c.nc)
	}
	if c.loadW > 0 {
		u.loadClock = float64(c.loadClock / c.loadW)
	}
	if c.nr > 0 {
		u.capped, u.thermal, u.brake = float64(c.capped/c.nr), float64(c.thermal/c.nr), float64(c.brake/c.nr)
	}
	if c.temperature > 0 {
		u.temperature = float64(c.temperature)
	}
}

func (u *usage) activity(c units) {
	if c.w <= 0 {
		return
	}
	u.unitsKnown = true
	w := float64(c.w)
	u.sm, u.tensor, u.fp, u.dram = float64(c.sm)/w/100, float64(c.tensor)/w/100, float64(c.fp)/w/100, float64(c.dram)/w/100
	u.link, u.rx, u.tx = float64(c.nvlink)/w, float64(c.rx)/w, float64(c.tx)/w
	u.work, u.memory = float64(c.work)/w, float64(c.memory)/w
	u.copying, u.tiny = float64(c.copying)/w, float64(c.tiny)/w
	u.maxWork, u.maxLink, u.maxPCIe = float64(c.maxWork), float64(c.maxLink), float64(c.maxPCIe)
}
