package report

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/gswarm/gswarm/analysis"
)

// JSON writes the whole result. Its fields are described in docs/report.md.
func JSON(w io.Writer, r *analysis.Result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}
