//go:build !cgo || !linux

package gpu

import (
	"fmt"

	"github.com/gswarm/gswarm/rankagent"
)

// Driver is never made in a build without cgo.
type Driver struct{}

// Open fails: NVML can only be called from a build with cgo.
func Open(Options) (*Driver, error) {
	return nil, fmt.Errorf("opening NVML: %w: this gswarm was built without cgo; use gswarm-agent or a full build", ErrNoDriver)
}

// Devices returns nil.
func (*Driver) Devices() []Info { return nil }

// Plan returns nil.
func (*Driver) Plan() []CallCost { return nil }

// Sources returns nil.
func (*Driver) Sources() []rankagent.Source { return nil }

// Close does nothing.
func (*Driver) Close() error { return nil }
