package export

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/gswarm/gswarm/table"
)

// thingKey tells things of a feed apart.
type thingKey struct {
	node string
	// number or name is the thing's, by the type of its column.
	number int64
	name   string
}

func (k thingKey) compare(o thingKey) int {
	return cmp.Or(cmp.Compare(k.node, o.node), cmp.Compare(k.number, o.number), cmp.Compare(k.name, o.name))
}

// feedReader finds a feed's values in the rows of its table.
type feedReader struct {
	feed
	form *table.Table
	// These are columns of form, -1 where there are none.
	node, time, begin, thingAt, lifeAt, onlyAt int
	columns                                    [][]int // of each metric
}

func newFeedReader(f feed) *feedReader {
	r := &feedReader{feed: f}
	var names []string
	at := func(name string) int {
		if name == "" {
			return -1
		}
		if i := slices.Index(names, name); i >= 0 {
			return i
		}
		names = append(names, name)
		return len(names) - 1
	}
	begin := ""
	if f.table.Shape == table.Windowed {
		begin = table.TimeBegin
	}
	r.node, r.time, r.begin = at(table.Node), at(table.TimeNS), at(begin)
	r.thingAt, r.lifeAt, r.onlyAt = at(f.thing), at(f.life), at(f.only.column)
	for _, m := range f.metrics {
		var cols []int
		for _, c := range m.columns {
			cols = append(cols, at(c))
		}
		r.columns = append(r.columns, cols)
	}
	r.form = table.Timeline(f.table).Select(names...)
	return r
}

// key returns which thing a row tells of; ok is false where it is none of the
// feed's.
func (r *feedReader) key(b *table.Batch, row int) (k thingKey, ok bool) {
	if r.onlyAt >= 0 && b.Strings(r.onlyAt)[row] != r.only.value {
		return k, false
	}
	k.node = b.Strings(r.node)[row]
	switch {
	case r.thingAt < 0:
		return k, true
	case !b.Valid(r.thingAt)[row]:
		return k, false
	case r.form.Columns[r.thingAt].Type == table.String:
		k.name = b.Strings(r.thingAt)[row]
	default:
		k.number = b.Ints(r.thingAt)[row]
	}
	return k, true
}

// at returns a row's time.
func (r *feedReader) at(b *table.Batch, row int) int64 { return b.Ints(r.time)[row] }

// groupOf is the name of the thing's tracks together.
func (r *feedReader) groupOf(k thingKey) string {
	switch {
	case r.thingAt < 0:
		return ""
	case k.name != "":
		return r.group + k.name
	}
	return r.group + strconv.FormatInt(k.number, 10)
}

// lifeOf returns the value with whose change counters begin anew.
func (r *feedReader) lifeOf(b *table.Batch, row int) int64 {
	if r.lifeAt < 0 {
		return 0
	}
	return b.Ints(r.lifeAt)[row]
}

// sum adds a metric's columns up; ok is false where one is null.
func (r *feedReader) sum(b *table.Batch, row, metric int) (v float64, ok bool) {
	for _, c := range r.columns[metric] {
		if !b.Valid(c)[row] {
			return 0, false
		}
		switch r.form.Columns[c].Type {
		case table.Float32, table.Float64:
			v += b.Floats(c)[row]
		default:
			v += float64(b.Ints(c)[row])
		}
	}
	return v, true
}

// value returns a metric's value of a row and the instant from which on it holds:
// the begin of the window that it covers, where it covers one. Last is what a
// counter had at its last reading, and is kept up.
func (r *feedReader) value(b *table.Batch, row, metric int, last *reading) (p point, ok bool) {
	v, ok := r.sum(b, row, metric)
	if !ok {
		last.known = false
		return p, false
	}
	m := r.metrics[metric]
	now := point{b.Ints(r.time)[row], v}
	if !m.rate {
		now.v *= m.scale
		if r.begin >= 0 {
			now.t = b.Ints(r.begin)[row]
		}
		return now, now.v == now.v
	}
	before := *last
	*last = reading{now, true}
	if !before.known || now.t <= before.t || now.v < before.v {
		return p, false // the first, or the counter began anew
	}
	return point{before.t, (now.v - before.v) / float64(now.t-before.t) * 1e9 * m.scale}, true
}

// reading is what a counter showed.
type reading struct {
	point
	known bool
}
