package gpu

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// said is a rankagent.Out that only hears what is absent.
type said map[string]rankagent.Reason

func (said) Now() clock.NodeTime                         { return 0 }
func (said) Batch(*table.Table) *table.Batch             { panic("no rows are expected") }
func (said) Present(*table.Table, string, string)        {}
func (said) Event(clock.NodeTime, string, int, int, any) {}
func (s said) Absent(t *table.Table, column, key string, reason rankagent.Reason, _ string) {
	s[t.Name+"/"+column+"/"+key] = reason
}

// TestMissing: without a driver there are reasons in the place of rows.
func TestMissing(t *testing.T) {
	for err, want := range map[error]rankagent.Reason{
		fmt.Errorf("opening NVML: %w", ErrNoDriver): rankagent.NoDriver,
		errors.New("nvmlInit: NVML_ERROR_UNKNOWN"):  rankagent.SourceError,
	} {
		heard := said{}
		s := Missing(err)
		if err := s.Read(heard); err != nil {
			t.Fatal(err)
		}
		if len(heard) != 5 || heard["gpu//"] != want || heard["gpu_activity//"] != want {
			t.Errorf("%v: %v", err, heard)
		}
		if s.Interval() <= 0 || s.Name() == "" || s.Close() != nil {
			t.Error("not a source")
		}
	}
}
