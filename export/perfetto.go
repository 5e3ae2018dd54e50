package export

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/table"
)

// PerfettoOptions say what a trace holds.
type PerfettoOptions struct {
	// Points is the number of counter values that the trace is to hold at most;
	// 0 is DefaultPoints. A bucket is an hour at most, so a very long run holds
	// more. Above it series are thinned: of
	// every stretch of time the least and the greatest value are kept.
	Points int64
	// Slices are stretches of time to show beside what the timeline has, in
	// any order; those of one track must not overlap, or else nest.
	Slices iter.Seq[Slice]
}

// DefaultPoints is what a browser holds with ease.
const DefaultPoints = 5_000_000

// Job stands in for a node's name where a slice is about the whole job.
const Job = "(job)"

// Slice is a stretch of time on a track of a node: a step of a rank, say.
type Slice struct {
	// Node is Job for what is of no node alone.
	Node string
	// Group is the name of the group that the track belongs to, "GPU 3" or
	// "rank 5"; empty for the node itself.
	Group string
	// Track is the track's name within the group.
	Track string
	Name  string
	// Begin and End are nanoseconds since the Unix epoch.
	Begin, End int64
}

// PerfettoSummary says what a trace holds.
type PerfettoSummary struct {
	Tracks, Points, Slices, Instants int64
	// Bucket is the stretch of which a series' least and greatest value were
	// kept, 0 where all were.
	Bucket time.Duration
}

// Perfetto writes a timeline as a Perfetto trace. It needs memory for a block of
// packets and a few words for each series.
func (s *Source) Perfetto(ctx context.Context, w io.Writer, o PerfettoOptions) (PerfettoSummary, error) {
	var sum PerfettoSummary
	gpus, err := s.gpus(ctx)
	if err != nil {
		return sum, err
	}
	from, to, err := s.span()
	if err != nil {
		return sum, err
	}
	out, err := newTrackWriter(w, from)
	if err != nil {
		return sum, err
	}
	p := &perfetto{out: out, source: s, end: to, groups: make(map[place]trackID), tracks: make(map[place]trackID)}
	p.name(gpus)
	feeds := append(gpuFeeds(), hostFeeds()...)
	p.bucket = p.choose(feeds, len(gpus), from, to, o.Points)
	for _, f := range feeds {
		if err := p.feed(ctx, f); err != nil {
			return sum, err
		}
	}
	if err := p.events(ctx); err != nil {
		return sum, err
	}
	if err := p.absences(ctx); err != nil {
		return sum, err
	}
	if o.Slices != nil {
		for l := range o.Slices {
			p.slice(l, nil)
		}
	}
	if err := out.close(); err != nil {
		return sum, fmt.Errorf("exporting: %w", err)
	}
	return PerfettoSummary{
		Tracks: int64(out.tracks), Points: out.points, Slices: out.slices, Instants: p.instants,
		Bucket: time.Duration(p.bucket),
	}, nil
}

// place is where something is shown: a node, a group in it, a track in that.
type place struct{ node, group, track string }

// perfetto lays a run out in tracks.
type perfetto struct {
	out      *trackWriter
	source   *Source
	end      int64
	bucket   int64
	groups   map[place]trackID
	tracks   map[place]trackID
	texts    map[place]string // descriptions of groups
	instants int64
}

// name keeps what there is to say of the GPUs, and makes the nodes' tracks in
// the order of the timeline.
func (p *perfetto) name(gpus []dataset.GPU) {
	for _, n := range p.source.timeline.Meta.Nodes {
		if p.source.wantsNode(n.Node) {
			p.group(n.Node, "")
		}
	}
	p.texts = make(map[place]string)
	for _, g := range gpus {
		at := place{node: g.Node, group: groupGPU + strconv.FormatInt(g.Index, 10)}
		p.texts[at] = g.Name + " " + g.UUID
		p.group(at.node, at.group)
	}
}

// buckets are the lengths by which series are thinned.
var buckets = []time.Duration{
	20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour,
}

// choose returns the least bucket that keeps the points below most: each series
// has two in a bucket, and no more than rows.
func (p *perfetto) choose(feeds []feed, gpus int, from, to, most int64) int64 {
	if most <= 0 {
		most = DefaultPoints
	}
	nodes, share := p.share(from, to)
	points := func(bucket int64) (n int64) {
		for _, f := range feeds {
			rows := int64(share * float64(p.source.timeline.Count(f.table)))
			if bucket > 0 && f.group == groupGPU {
				rows = min(rows, 2*int64(gpus)*((to-from)/bucket+1))
			} else if bucket > 0 && f.thing == "" {
				rows = min(rows, 2*int64(nodes)*((to-from)/bucket+1))
			} else if bucket > int64(2*time.Second) { // one row a second of each thing
				rows = rows*2*int64(time.Second)/bucket + 1
			}
			n += rows * int64(len(f.metrics))
		}
		return n
	}
	if points(0) <= most {
		return 0
	}
	for _, b := range buckets {
		if points(int64(b)) <= most {
			return int64(b)
		}
	}
	return int64(buckets[len(buckets)-1])
}

// share returns how many nodes are wanted, and the share of the rows that is
// about theirs in [from, to].
func (p *perfetto) share(from, to int64) (nodes int, share float64) {
	tl := p.source.timeline
	for _, n := range tl.Meta.Nodes {
		if p.source.wantsNode(n.Node) {
			nodes++
		}
	}
	share = float64(nodes) / float64(max(len(tl.Meta.Nodes), 1))
	if begin, end, ok, err := tl.Span(table.Host); err == nil && ok && end > begin {
		share *= min(1, float64(to-from)/float64(end-begin))
	}
	return nodes, share
}

// The order of what stands below a node, and of what stands below a group.
const (
	orderFirst  = 0
	orderGPU    = 1_000
	orderRank   = 1_000_000
	orderDevice = 100_000_000
	orderMetric = 100
)

// group returns the track of a group of a node, or of the node.
func (p *perfetto) group(node, group string) trackID {
	at := place{node: node, group: group}
	if id, ok := p.groups[at]; ok {
		return id
	}
	t := track{name: group, text: p.texts[at], order: orderDevice + len(p.groups)}
	if group == "" {
		t.name, t.order = node, len(p.groups)
	} else {
		t.parent = p.group(node, "")
	}
	for prefix, order := range map[string]int{groupGPU: orderGPU, groupRank: orderRank} {
		var n int
		if k, err := fmt.Sscanf(group, prefix+"%d", &n); k == 1 && err == nil {
			t.order = order + n
		}
	}
	id := p.out.track(t)
	p.groups[at] = id
	return id
}

// series is one counter's track and what is remembered of it.
type series struct {
	id   trackID
	thin thinner
	last reading
}

// thing is what a feed's rows tell of: a GPU, a rank, a device.
type thing struct {
	group  string
	life   int64
	series []series
}

// feed writes the series of a table.
func (p *perfetto) feed(ctx context.Context, f feed) error {
	r := newFeedReader(f)
	things := make(map[thingKey]*thing)
	err := p.source.read(ctx, r.form, func(b *table.Batch) error {
		for row := range b.Rows() {
			key, ok := r.key(b, row)
			if !ok || !p.source.wants(key.node, r.at(b, row)) {
				continue
			}
			th := things[key]
			if th == nil {
				th = &thing{group: r.groupOf(key), series: make([]series, len(f.metrics))}
				things[key] = th
			}
			if life := r.lifeOf(b, row); life != th.life {
				th.life = life
				for i := range th.series {
					th.series[i].last.known = false
				}
			}
			for i := range f.metrics {
				if pt, ok := r.value(b, row, i, &th.series[i].last); ok {
					p.point(key.node, f, i, th, pt)
				}
			}
		}
		return p.out.err
	})
	if err != nil {
		return err
	}
	for _, key := range slices.SortedFunc(maps.Keys(things), thingKey.compare) {
		th := things[key]
		for i := range th.series {
			th.series[i].thin.flush(func(pt point) { p.out.counter(th.series[i].id, pt.t, pt.v) })
		}
	}
	return p.out.err
}

// point takes a value of a series, whose track is made for its first one.
func (p *perfetto) point(node string, f feed, i int, th *thing, pt point) {
	s := &th.series[i]
	if s.id == 0 {
		m := f.metrics[i]
		axis := m.name
		if m.unit == "%" {
			axis = m.unit
		}
		s.id = p.out.track(track{
			parent: p.group(node, th.group), name: m.name, unit: m.unit, axis: axis, order: orderMetric + f.order + i,
		})
		s.thin.bucket = p.bucket
	}
	s.thin.add(pt, func(pt point) { p.out.counter(s.id, pt.t, pt.v) })
}

// line returns a track for slices and instants.
func (p *perfetto) line(at place) trackID {
	id, ok := p.tracks[at]
	if !ok {
		id = p.out.track(track{parent: p.group(at.node, at.group), name: at.track, order: orderFirst + len(p.tracks)%orderMetric})
		p.tracks[at] = id
	}
	return id
}

// slice shows the part of a slice that is wanted.
func (p *perfetto) slice(l Slice, notes []note) {
	if l.End < p.source.from || l.Begin >= p.source.until || l.Node != Job && !p.source.wantsNode(l.Node) {
		return
	}
	begin, end := max(l.Begin, p.source.from), min(l.End, p.source.until)
	p.out.slice(p.line(place{l.Node, l.Group, l.Track}), begin, max(end, begin), l.Name, notes)
}

// events shows what happened as instants, and the ranks' processes as slices.
func (p *perfetto) events(ctx context.Context) error {
	type process struct {
		node string
		pid  int64
	}
	type running struct {
		Slice
		notes []note
	}
	open := make(map[process]running)
	form := table.Timeline(table.Event).Select(table.TimeNS, table.TimeBound, table.Node, "kind", "gpu", "rank", "detail")
	err := p.source.timeline.Read(ctx, form, func(b *table.Batch) error {
		for r := range b.Rows() {
			t, node, kind := b.Ints(0)[r], b.Strings(2)[r], b.Strings(3)[r]
			at := place{node: node, track: "events"}
			switch {
			case b.Valid(4)[r]:
				at.group = groupGPU + strconv.FormatInt(b.Ints(4)[r], 10)
			case b.Valid(5)[r]:
				at.group = groupRank + strconv.FormatInt(b.Ints(5)[r], 10)
			}
			detail := make(map[string]any)
			if b.Valid(6)[r] {
				// What is no object has nothing to tell apart.
				_ = json.Unmarshal([]byte(b.Strings(6)[r]), &detail)
			}
			pid, _ := detail["pid"].(float64)
			of := process{node, int64(pid)}
			switch {
			case kind == "process_start" && detail["role"] == "rank" && b.Valid(5)[r]:
				name, _ := detail["name"].(string)
				open[of] = running{Slice{Node: node, Group: groupRank + strconv.FormatInt(b.Ints(5)[r], 10), Track: "process", Name: name, Begin: t}, notes(detail)}
			case kind == "process_exit":
				if run, ok := open[of]; ok {
					delete(open, of)
					run.End = t
					p.slice(run.Slice, run.notes)
				}
			}
			if !p.source.wants(node, t) {
				continue
			}
			say := kind
			if text, ok := detail["text"].(string); ok && kind == "mark" {
				say = text
			}
			all := append([]note{{"kind", kind}}, notes(detail)...)
			if b.Valid(1)[r] {
				all = append(all, note{"time_bound_ns", b.Ints(1)[r]})
			}
			p.instants++
			p.out.instant(p.line(at), t, say, all)
		}
		return p.out.err
	})
	if err != nil {
		return err
	}
	for _, of := range slices.SortedFunc(maps.Keys(open), func(a, b process) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.pid, b.pid))
	}) {
		run := open[of]
		run.End = p.end
		p.slice(run.Slice, append(run.notes, note{"end", "not seen"}))
	}
	return nil
}

// notes are the details of an event in the order of their names.
func notes(detail map[string]any) []note {
	var all []note
	for _, k := range slices.Sorted(maps.Keys(detail)) {
		switch v := detail[k].(type) {
		case string, bool:
			all = append(all, note{k, v})
		case float64:
			if n := int64(v); float64(n) == v {
				all = append(all, note{k, n})
			} else {
				all = append(all, note{k, v})
			}
		case nil:
		default:
			if b, err := json.Marshal(v); err == nil {
				all = append(all, note{k, string(b)})
			}
		}
	}
	return all
}

// absences shows where whole rows are missing, so that nobody takes the line
// that the viewer draws on for data. What a machine never had has no line.
func (p *perfetto) absences(ctx context.Context) error {
	form := table.Timeline(table.Absence).Select(table.TimeNS, table.TimeBegin, table.Node, "table_name", "column_name", "key", "reason", "detail")
	return p.source.timeline.Read(ctx, form, func(b *table.Batch) error {
		for r := range b.Rows() {
			reason := b.Strings(6)[r]
			if b.Valid(4)[r] || reason == "not_found" || reason == "not_supported" {
				continue
			}
			l := Slice{Node: b.Strings(2)[r], Track: "no rows of " + b.Strings(3)[r], Name: reason, Begin: b.Ints(1)[r], End: b.Ints(0)[r]}
			var all []note
			if b.Valid(5)[r] {
				key := b.Strings(5)[r]
				all = append(all, note{"key", key})
				if t := table.ByName(b.Strings(3)[r]); t != nil && t.Index("gpu") >= 0 {
					l.Group = groupGPU + key
				} else {
					l.Track += " " + key
				}
			}
			if b.Valid(7)[r] {
				all = append(all, note{"detail", b.Strings(7)[r]})
			}
			p.slice(l, all)
		}
		return p.out.err
	})
}
