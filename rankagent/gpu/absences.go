//go:build cgo && linux

package gpu

import (
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// maxColumns is more than any GPU table has.
const maxColumns = 32

// wholeRow stands for the row as a whole; it is a time column's index, which
// is never absent alone.
const wholeRow = table.ColT

// absences remembers what one source has said is missing, so that saying it
// again makes no strings and what was never missing costs a comparison.
type absences struct {
	table *table.Table
	key   string
	said  [maxColumns]absence
}

type absence struct {
	reason rankagent.Reason
	detail string
}

// absent says that a column is missing. detail is called where the reason is
// new: while the reason stays, the first detail does.
func (a *absences) absent(out rankagent.Out, column int, reason rankagent.Reason, detail func() string) {
	said := &a.said[column]
	if said.reason != reason {
		*said = absence{reason, detail()}
	}
	out.Absent(a.table, a.name(column), a.key, said.reason, said.detail)
}

// again repeats what was said of a column.
func (a *absences) again(out rankagent.Out, column int) {
	if said := a.said[column]; said.reason != "" {
		out.Absent(a.table, a.name(column), a.key, said.reason, said.detail)
	}
}

// present says that a column is there, where it was missing before.
func (a *absences) present(out rankagent.Out, column int) {
	if a.said[column].reason == "" {
		return
	}
	a.said[column] = absence{}
	out.Present(a.table, a.name(column), a.key)
}

func (a *absences) name(column int) string {
	if column == wholeRow {
		return ""
	}
	return a.table.Columns[column].Name
}
