package dataset

import (
	"context"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/table"
)

// source gives a timeline to the analysis.
type source struct{ tl *Timeline }

// Source is the timeline as the analysis asks for it.
func (tl *Timeline) Source() analysis.Source { return source{tl} }

// Rows passes batches of the table's whole timeline form, in which the columns
// asked for are filled: those alone are decoded.
func (s source) Rows(ctx context.Context, t *table.Table, columns []int, fn func(*table.Batch) error) error {
	form := table.Timeline(t)
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = form.Columns[c].Name
	}
	whole := table.NewBatch(form, 0)
	return s.tl.Rows(ctx, form.Select(names...), func(b *table.Batch) error {
		whole.Reset()
		whole.AppendNulls(b.Rows())
		for i, c := range columns {
			whole.CopyColumn(c, b, i)
		}
		return fn(whole)
	})
}
