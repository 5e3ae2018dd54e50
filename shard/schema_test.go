package shard

import (
	"testing"

	"github.com/gswarm/gswarm/table"
)

// TestArrowTypes: every type that any table has is one of Arrow's.
func TestArrowTypes(t *testing.T) {
	for _, tab := range table.All() {
		for _, form := range []*table.Table{tab, table.Timeline(tab)} {
			for _, c := range form.Columns {
				if int(c.Type) >= len(arrowTypes) || arrowTypes[c.Type] == nil {
					t.Errorf("%s.%s: %v", form.Name, c.Name, c.Type)
				}
			}
		}
	}
}
