// Package export turns a run into other tools' formats. It reads the timeline,
// or the nodes' own rows, and never changes the run. What it writes appears under
// its name when it is whole.
package export

import (
	"context"
	"slices"

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
}

// Timeline is the source of rows on the reference clock.
func Timeline(dir rundir.Dir) (*Source, error) {
	tl, err := dataset.Open(dir)
	if err != nil {
		return nil, err
	}
	return &Source{dir: dir, timeline: tl, Losses: tl.Losses()}, nil
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
