//go:build linux && !cgo

package launcher

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inherit cannot know without C code that runs before Go's runtime: a static
// build hands /dev/null to the job for a closed standard descriptor, the default
// action for an ignored signal other than HUP and INT, and the mask of blocked
// signals without those that the runtime unblocks for itself.
func inherit() inherited { return inherited{blocked: threadMask()} }

// threadMask returns the signals that this thread blocks.
func threadMask() (mask uint64) {
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, 0, uintptr(unsafe.Pointer(&mask)), 8, 0, 0)
	return mask
}
