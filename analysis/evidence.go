package analysis

import (
	"fmt"
	"math"

	"github.com/gswarm/gswarm/table"
)

// names returns the names of a table's own columns.
func names(t *table.Table, columns ...int) []string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = t.Columns[c].Name
	}
	return out
}

// readingsShow is evidence in the polled readings of a GPU.
func (m *model) readingsShow(d *device, s Span, says string, columns ...int) Evidence {
	e := Evidence{Table: table.GPU.Name, Columns: names(table.GPU, columns...), Place: d.Place, Span: s, Says: says}
	if d.readings != nil {
		from, to := m.blocks(s)
		c := d.readings.sum(from, to)
		e.Rows = int64(max(c.n, c.np, c.nc, c.nr))
	}
	return e
}

// unitsShow is evidence in the windows of a GPU's units.
func (m *model) unitsShow(d *device, s Span, says string, columns ...int) Evidence {
	e := Evidence{Table: table.GPUActivity.Name, Columns: names(table.GPUActivity, columns...), Place: d.Place, Span: s, Says: says}
	if d.units != nil && d.units.windows.n > 0 {
		from, to := m.blocks(s)
		e.Rows = int64(math.Round(float64(d.units.sum(from, to).w) / d.units.windows.stat().Mean))
	}
	return e
}

// countersShow is evidence in counters of one second, of a rank, a node or a
// GPU.
func countersShow(t *table.Table, p Place, c *counterTrack, s Span, says string, columns ...int) Evidence {
	e := Evidence{Table: t.Name, Columns: names(t, columns...), Place: p, Span: s, Says: says}
	if c != nil {
		e.Rows = int64(math.Round(c.since(observed, s))) + 1
	}
	return e
}

// percent is a share as a person reads it.
func percent(share float64) string {
	switch p := share * 100; {
	case math.IsNaN(p):
		return "unknown"
	case p >= 10:
		return fmt.Sprintf("%.0f %%", p)
	default:
		return fmt.Sprintf("%.1f %%", p)
	}
}

// who names a place in a line.
func (p Place) who() string {
	switch {
	case p.Rank != nil && p.GPU != nil:
		return fmt.Sprintf("rank %d (GPU %d of %s)", *p.Rank, *p.GPU, p.Node)
	case p.Rank != nil:
		return fmt.Sprintf("rank %d (%s)", *p.Rank, p.Node)
	case p.GPU != nil:
		return fmt.Sprintf("GPU %d of %s", *p.GPU, p.Node)
	}
	return "node " + p.Node
}

// milliseconds of a share of a period, in words; empty without a period.
func (s *suspect) milliseconds(share float64) string {
	if s.period <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%.0f ms of %.0f ms)", share*s.period/1e6, s.period/1e6)
}
