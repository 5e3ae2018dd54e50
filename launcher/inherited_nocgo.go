//go:build linux && !cgo

package launcher

// inherited cannot be known without C code that runs before Go's runtime: a
// static build hands /dev/null to the job for a closed standard descriptor and
// the default action for an ignored signal other than HUP and INT.
func inherited() (closed uint, ignored uint64) { return 0, 0 }
