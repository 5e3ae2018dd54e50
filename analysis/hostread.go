package analysis

import (
	"context"
	"strings"

	"github.com/gswarm/gswarm/table"
)

var rankCounters = []counterColumn{
	{table.RankCPUUser + tl, rankCPU, ns},
	{table.RankCPUSystem + tl, rankCPU, ns},
	{table.RankRunDelay + tl, rankDelay, ns},
	{table.RankFaultsMajor + tl, rankMajor, 1},
	{table.RankIODelay + tl, rankIODelay, ns},
}

// helperCounters are those of a rank's helpers.
var helperCounters = []counterColumn{
	{table.RankCPUUser + tl, helperCPU, ns},
	{table.RankCPUSystem + tl, helperCPU, ns},
}

// groupCounters are those of a rank's control group.
var groupCounters = []counterColumn{
	{table.RankThrottledTime + tl, rankThrottled, ns},
	{table.RankMemoryHits + tl, rankLimitHits, 1},
	{table.RankOOMKills + tl, rankOOM, 1},
	{table.RankPSICPUSome + tl, rankPSICPU, ns},
	{table.RankPSIMemSome + tl, rankPSIMem, ns},
	{table.RankPSIIOSome + tl, rankPSIIO, ns},
}

// rankFacts is what does not change much about a rank, as last read.
type rankFacts struct {
	node          string
	rank          int
	local         *int
	gpu           *int
	gpuNode       *int
	affinityCount *int
	affinity      string
	affinityNodes string
	rss           int64 // the most
	begin, end    int64
	// moved says that the affinity was another one at first; since says when
	// the present one was first seen.
	since int64
}

// rankReader reads the table rank: the ranks and their helpers.
type rankReader struct {
	*counterReader
	known tracks[rankFacts]
}

// The roles that belong to a rank, as the table rank names them.
const (
	roleRank   = "rank"
	roleWorker = "worker"
)

func (r *rankReader) read(ctx context.Context, src Source) error {
	r.counterReader = newCounterReader(blockNS)
	r.declare(rankCounters, rankRows, rankBlocked, helperRows, helperBlocked)
	r.declare(groupCounters)
	r.declare(helperCounters)
	columns := []int{
		table.TLTimeNS, table.TLNode, table.RankRank + tl, table.RankPID + tl, table.RankLocal + tl, table.RankRole + tl,
		table.RankGPU + tl, table.RankGPUNode + tl, table.RankState + tl, table.RankRSS + tl,
		table.RankAffinityCount + tl, table.RankAffinity + tl, table.RankAffinityNodes + tl,
	}
	for _, c := range append(rankCounters[:len(rankCounters):len(rankCounters)], groupCounters...) {
		columns = append(columns, c.column)
	}
	return src.Rows(ctx, table.Rank, columns, func(b *table.Batch) error {
		for i := range b.Rows() {
			r.row(b, i)
		}
		r.shrink()
		return nil
	})
}

func (r *rankReader) row(b *table.Batch, i int) {
	role := b.Strings(table.RankRole + tl)[i]
	if !b.Valid(table.RankRank + tl)[i] || role != roleRank && role != roleWorker {
		return
	}
	node, rank, t := b.Strings(table.TLNode)[i], b.Ints(table.RankRank + tl)[i], b.Ints(table.TLTimeNS)[i]
	e := r.entity(node, rank)
	if e == nil {
		return
	}
	pid := pidKey(b.Ints(table.RankPID + tl)[i])
	cell := r.grow(e, pid, t, b, i, rankCounters, role == roleRank)
	if cell == nil {
		return
	}
	rows, blocked := rankRows, rankBlocked
	if role == roleWorker {
		rows, blocked = helperRows, helperBlocked
	}
	cell.v[r.slots[rows]]++
	if b.Valid(table.RankState + tl)[i] && strings.HasPrefix(b.Strings(table.RankState + tl)[i], "D") {
		cell.v[r.slots[blocked]]++
	}
	if role == roleWorker {
		r.grow(e, "helper "+pid, t, b, i, helperCounters, false)
		return
	}
	r.grow(e, "group", t, b, i, groupCounters, false)
	k := r.known.get(node, rank)
	if k.begin == 0 {
		k.node, k.rank, k.begin, k.since = node, int(rank), t, t
	}
	k.end = t
	k.local = maybe(b, table.RankLocal+tl, i, k.local)
	k.gpu = maybe(b, table.RankGPU+tl, i, k.gpu)
	k.gpuNode = maybe(b, table.RankGPUNode+tl, i, k.gpuNode)
	k.affinityCount = maybe(b, table.RankAffinityCount+tl, i, k.affinityCount)
	if b.Valid(table.RankRSS + tl)[i] {
		k.rss = max(k.rss, b.Ints(table.RankRSS + tl)[i])
	}
	if b.Valid(table.RankAffinity + tl)[i] {
		if a := b.Strings(table.RankAffinity + tl)[i]; a != k.affinity {
			if k.affinity != "" {
				k.since = t
			}
			k.affinity = strings.Clone(a)
			k.affinityNodes = strings.Clone(b.Strings(table.RankAffinityNodes + tl)[i])
		}
	}
}

// maybe returns the value of row i where there is one, else what was known.
func maybe(b *table.Batch, col, i int, known *int) *int {
	if !b.Valid(col)[i] {
		return known
	}
	v := int(b.Ints(col)[i])
	if known != nil && *known == v {
		return known
	}
	return &v
}

var hostCounters = []counterColumn{
	{table.HostCPUUser + tl, nodeBusy, ns},
	{table.HostCPUNice + tl, nodeBusy, ns},
	{table.HostCPUSystem + tl, nodeBusy, ns},
	{table.HostCPUIRQ + tl, nodeBusy, ns},
	{table.HostCPUSoftIRQ + tl, nodeBusy, ns},
	{table.HostCPUIdle + tl, nodeIdle, ns},
	{table.HostCPUIOWait + tl, nodeIOWait, ns},
	{table.HostPSICPUSome + tl, nodePSICPU, ns},
	{table.HostPSIMemSome + tl, nodePSIMem, ns},
	{table.HostPSIIOSome + tl, nodePSIIO, ns},
	{table.HostFaultsMajor + tl, nodeMajor, 1},
	{table.HostSwapIn + tl, nodeSwap, 1},
	{table.HostSwapOut + tl, nodeSwap, 1},
	{table.HostReclaimDirect + tl, nodeReclaim, 1},
	{table.HostOOMKills + tl, nodeOOM, 1},
	{table.HostTCPOutSegs + tl, nodeSegments, 1},
	{table.HostTCPRetransSegs + tl, nodeRetrans, 1},
}

// nodeReader reads a table of counters of nodes. The node's track is number 0.
type nodeReader struct {
	*counterReader
	table    *table.Table
	key      int // a string column whose value tells devices apart, -1 for none
	counters []counterColumn
	// top holds the highest of an instant value for each node, and total the
	// last of another one.
	used map[string]int64
	size map[string]int64
	end  map[string]int64
	// rates are the lowest signalling rates of the nodes' ports.
	rates map[string]portRate
}

func newHostReader() *nodeReader {
	return &nodeReader{table: table.Host, key: -1, counters: hostCounters}
}

func newNetReader() *nodeReader {
	var counters []counterColumn
	for _, c := range []int{table.NetRxErrors, table.NetTxErrors, table.NetRxDropped, table.NetTxDropped} {
		counters = append(counters, counterColumn{c + tl, nodeNetErrors, 1})
	}
	return &nodeReader{table: table.Net, key: table.NetDevice + tl, counters: counters}
}

// fabricErrors are the columns of a port that count errors and repeats. Others
// count congestion, which is no fault.
var fabricErrors = []string{
	"symbol_errors_count", "link_downed_count", "link_recovered_count", "rx_errors_count", "tx_discards_count",
	"integrity_errors_count", "packet_seq_errors_count", "local_ack_timeouts_count", "rnr_nak_retries_count",
	"adaptive_retrans_count", "out_of_sequence_count", "duplicate_requests_count",
}

func newFabricReader() *nodeReader {
	counters := []counterColumn{
		{table.IBRxBytes + tl, nodeFabric, 1}, {table.IBTxBytes + tl, nodeFabric, 1},
		{table.Infiniband.Index("tx_wait_count") + tl, nodeFabricWait, 1},
	}
	for _, name := range fabricErrors {
		counters = append(counters, counterColumn{table.Infiniband.Index(name) + tl, nodeFabricErrs, 1})
	}
	return &nodeReader{table: table.Infiniband, key: table.IBPort + tl, counters: counters}
}

func newMountReader() *nodeReader {
	return &nodeReader{table: table.Filesystem, key: table.FSMount + tl, counters: []counterColumn{
		{table.FSTimeouts + tl, nodeMountWait, 1},
	}}
}

func (r *nodeReader) read(ctx context.Context, src Source) error {
	r.counterReader = newCounterReader(blockNS)
	r.declare(r.counters)
	r.used, r.size, r.end, r.rates = map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]portRate{}
	columns := []int{table.TLTimeNS, table.TLNode}
	if r.key >= 0 {
		columns = append(columns, r.key)
	}
	for _, c := range r.counters {
		columns = append(columns, c.column)
	}
	const total, free = table.HostMemTotal + tl, table.HostMemAvailable + tl
	if r.table == table.Host {
		columns = append(columns, total, free)
	}
	const rate = table.IBRate + tl
	if r.table == table.Infiniband {
		columns = append(columns, rate)
	}
	return src.Rows(ctx, r.table, columns, func(b *table.Batch) error {
		for i := range b.Rows() {
			node, t, key := b.Strings(table.TLNode)[i], b.Ints(table.TLTimeNS)[i], ""
			if r.key >= 0 {
				key = b.Strings(r.key)[i]
			}
			e := r.entity(node, 0)
			if len(e.last) == 0 {
				e.main = strings.Clone(key)
			}
			r.grow(e, key, t, b, i, r.counters, key == e.main)
			r.end[node] = max(r.end[node], t)
			if r.table == table.Infiniband && b.Valid(rate)[i] {
				r.sawRate(node, b.Strings(rate)[i], t)
			}
			if r.table == table.Host && b.Valid(total)[i] && b.Valid(free)[i] {
				r.size[node] = b.Ints(total)[i]
				r.used[node] = max(r.used[node], b.Ints(total)[i]-b.Ints(free)[i])
			}
		}
		r.shrink()
		return nil
	})
}

// sawRate keeps the lowest rate of a node's ports.
func (r *nodeReader) sawRate(node, name string, t int64) {
	was, ok := r.rates[node]
	switch g := gbit(name); {
	case g <= 0:
	case !ok || g < was.gbit:
		r.rates[strings.Clone(node)] = portRate{gbit: g, name: strings.Clone(name), t: t, rows: 1}
	case g == was.gbit:
		was.rows++
		r.rates[node] = was
	}
}

// happening is a row of the table event.
type happening struct {
	t      int64
	node   string
	kind   string
	gpu    *int
	rank   *int
	detail string
	bound  int64
}

// maxEvents bounds how many events are kept; the rest is counted.
const maxEvents = 200_000

// eventReader reads the table event, of the kinds that the rules know.
type eventReader struct {
	list    []happening
	dropped int64
}

func (r *eventReader) read(ctx context.Context, src Source) error {
	columns := []int{
		table.TLTimeNS, table.TLNode, table.TLBound, table.EventKind + tl, table.EventGPU + tl, table.EventRank + tl, table.EventDetail + tl,
	}
	return src.Rows(ctx, table.Event, columns, func(b *table.Batch) error {
		for i := range b.Rows() {
			if len(r.list) >= maxEvents {
				r.dropped++
				continue
			}
			r.list = append(r.list, happening{
				t: b.Ints(table.TLTimeNS)[i], node: strings.Clone(b.Strings(table.TLNode)[i]), kind: strings.Clone(b.Strings(table.EventKind + tl)[i]),
				gpu: maybe(b, table.EventGPU+tl, i, nil), rank: maybe(b, table.EventRank+tl, i, nil),
				detail: strings.Clone(b.Strings(table.EventDetail + tl)[i]), bound: b.Ints(table.TLBound)[i],
			})
		}
		return nil
	})
}

// holder is a process that held a GPU.
type holder struct {
	node string
	gpu  int
	rank int
}

// holderReader reads the table gpu_process: which ranks held which GPU.
type holderReader struct{ held map[holder]int64 }

func (r *holderReader) read(ctx context.Context, src Source) error {
	r.held = map[holder]int64{}
	columns := []int{table.TLTimeNS, table.TLNode, table.ProcGPU + tl, table.ProcRank + tl}
	return src.Rows(ctx, table.GPUProcess, columns, func(b *table.Batch) error {
		for i := range b.Rows() {
			if b.Valid(table.ProcRank + tl)[i] {
				h := holder{b.Strings(table.TLNode)[i], int(b.Ints(table.ProcGPU + tl)[i]), int(b.Ints(table.ProcRank + tl)[i])}
				if r.held[h] == 0 {
					h.node = strings.Clone(h.node)
				}
				r.held[h]++
			}
		}
		return nil
	})
}

// stepped is a jump of a node's wall clock.
type stepped struct {
	node string
	t    int64
	by   int64 // ns
}

// The wall clock steps where it moves against the raw clock by more than the
// kernel slews in the time between two readings, and more than a reading is good
// to.
const (
	stepFloorNS  = int64(2e6)
	slewPerMille = 1 // a kernel slews by half of that at most
)

// clockReader reads the table clock_bracket.
type clockReader struct{ steps []stepped }

func (r *clockReader) read(ctx context.Context, src Source) error {
	type reading struct{ raw, offset int64 }
	last := map[string]reading{}
	columns := []int{table.TLTimeNS, table.TLNode}
	raw0, raw1, real := table.ClockBracket.Index("raw0_ns")+tl, table.ClockBracket.Index("raw1_ns")+tl, table.ClockBracket.Index("realtime_ns")+tl
	columns = append(columns, raw0, raw1, real)
	return src.Rows(ctx, table.ClockBracket, columns, func(b *table.Batch) error {
		for i := range b.Rows() {
			if !b.Valid(raw0)[i] || !b.Valid(raw1)[i] || !b.Valid(real)[i] {
				continue
			}
			node := b.Strings(table.TLNode)[i]
			a, c := b.Ints(raw0)[i], b.Ints(raw1)[i]
			now := reading{a + (c-a)/2, b.Ints(real)[i] - a - (c-a)/2}
			if was, ok := last[node]; ok && now.raw > was.raw {
				by := now.offset - was.offset
				if allowed := stepFloorNS + (c - a) + (now.raw-was.raw)*slewPerMille/1000; by > allowed || by < -allowed {
					r.steps = append(r.steps, stepped{strings.Clone(node), b.Ints(table.TLTimeNS)[i], by})
				}
			}
			last[node] = now
		}
		return nil
	})
}
