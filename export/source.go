// Package export turns a run into other tools' formats. It reads the timeline,
// or the nodes' own rows, and never changes the run. What it writes appears under
// its name when it is whole.
package export

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// Source gives a run's rows, table by table.
type Source struct {
	dir      rundir.Dir
	timeline *dataset.Timeline // nil where rows are taken as they were recorded
	// Losses are what could not be read, in words.
	Losses []string
	// cells bounds the frames that are filled at a time.
	cells int
	// nodes, from and until say what is wanted of the timeline: these nodes, nil
	// for all, and the rows of [from, until).
	nodes       []string
	from, until int64
}

// Timeline is the source of rows on the reference clock.
func Timeline(tl *dataset.Timeline) *Source {
	return &Source{dir: tl.Dir, timeline: tl, Losses: tl.Losses(), cells: maxCells, from: math.MinInt64, until: math.MaxInt64}
}

// Select narrows what Perfetto, JSON, CSV, GPUTop and TFEvents take of a timeline:
// to some nodes, nil for all, and to the stretch from so long after its first row
// until so long after it, 0 for the end.
func (s *Source) Select(nodes []string, from, until time.Duration) error {
	var have []string
	for _, n := range s.timeline.Meta.Nodes {
		have = append(have, n.Node)
	}
	for _, n := range nodes {
		if !slices.Contains(have, n) {
			return fmt.Errorf("the run has no node %q; its nodes are %s", n, strings.Join(slices.Compact(have), ", "))
		}
	}
	begin, end, err := s.span()
	if err != nil {
		return err
	}
	if length := time.Duration(end - begin); from > length {
		return fmt.Errorf("the run ends %s after its first reading, before the stretch begins", length.Round(time.Millisecond))
	}
	s.nodes, s.from = nodes, begin+int64(from)
	if until > 0 {
		s.until = begin + int64(until)
	}
	return nil
}

// wants says whether a row is wanted.
func (s *Source) wants(node string, t int64) bool {
	return t >= s.from && t < s.until && s.wantsNode(node)
}

func (s *Source) wantsNode(node string) bool {
	return s.nodes == nil || slices.Contains(s.nodes, node)
}

// read passes the rows of the timeline that may be wanted.
func (s *Source) read(ctx context.Context, form *table.Table, fn func(*table.Batch) error) error {
	return s.timeline.Between(ctx, form, s.from, s.until, fn)
}

// gpus lists the GPUs of the nodes that are wanted.
func (s *Source) gpus(ctx context.Context) ([]dataset.GPU, error) {
	all, err := s.timeline.GPUs(ctx)
	return slices.DeleteFunc(all, func(g dataset.GPU) bool { return !s.wantsNode(g.Node) }), err
}

// span returns the least and the greatest time of what is wanted of the timeline.
func (s *Source) span() (from, to int64, err error) {
	known := false
	for _, t := range table.All() {
		a, b, ok, err := s.timeline.Span(t)
		if err != nil {
			return 0, 0, err
		}
		if !ok {
			continue
		}
		if !known {
			from, to, known = a, b, true
		}
		from, to = min(from, a), max(to, b)
	}
	return max(from, s.from), min(to, s.until-1), nil
}

// Recorded is the source of rows as the nodes recorded them, on each node's own
// raw clock: of any run, merged or not, sealed or not, ended or not.
func Recorded(dir rundir.Dir) *Source { return &Source{dir: dir} }

// form is the table as the source's rows have it.
func (s *Source) form(t *table.Table) *table.Table {
	if s.timeline != nil {
		return table.Timeline(t)
	}
	node := table.Column{Name: table.Node, Type: table.String, Required: true, Source: "gswarm", Doc: "The node."}
	form := *t
	form.Columns = append([]table.Column{node}, t.Columns...)
	return &form
}

// rows passes the rows of a table to fn.
func (s *Source) rows(ctx context.Context, t, form *table.Table, fn func(*table.Batch) error) error {
	if s.timeline == nil {
		return s.recorded(ctx, t, form, fn)
	}
	return s.timeline.Read(ctx, form, fn)
}

func (s *Source) recorded(ctx context.Context, t, form *table.Table, fn func(*table.Batch) error) error {
	names, err := s.dir.NodeNames()
	if err != nil {
		return err
	}
	for _, name := range names {
		data, err := shard.OpenNode(s.dir.Node(name))
		if err != nil {
			return err
		}
		err = data.Rows(t, func(b *table.Batch) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return fn(withNode(form, b, rundir.NodeOf(name)))
		})
		for _, l := range data.Losses() {
			if say := name + ": " + l.String(); !slices.Contains(s.Losses, say) {
				s.Losses = append(s.Losses, say)
			}
		}
		data.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// withNode is b with the node's name in front.
func withNode(form *table.Table, b *table.Batch, node string) *table.Batch {
	out := table.NewBatch(form, b.Rows())
	out.AppendNulls(b.Rows())
	for r := range b.Rows() {
		out.Strings(0)[r], out.Valid(0)[r] = node, true
	}
	for i, c := range b.Table.Columns {
		copy(out.Valid(i+1), b.Valid(i))
		switch c.Type {
		case table.String:
			copy(out.Strings(i+1), b.Strings(i))
		case table.Float32, table.Float64:
			copy(out.Floats(i+1), b.Floats(i))
		default:
			copy(out.Ints(i+1), b.Ints(i))
		}
	}
	return out
}
