//go:build !cgo || !linux

package gpu

import (
	"errors"
	"testing"
)

// TestStub: a build without cgo has no driver and says so.
func TestStub(t *testing.T) {
	if _, err := Open(Options{}); !errors.Is(err, ErrNoDriver) {
		t.Errorf("%v", err)
	}
}
