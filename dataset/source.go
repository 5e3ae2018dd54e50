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
	return s.tl.Rows(ctx, t, columns, fn)
}
