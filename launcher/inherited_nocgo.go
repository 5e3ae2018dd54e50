//go:build linux && !cgo

package launcher

// inherit cannot know without C code that runs before Go's runtime: a static
// build hands /dev/null to the job for a closed standard descriptor, the default
// action for an ignored signal other than HUP and INT, and the mask of blocked
// signals without those that the runtime unblocks for itself.
func inherit() inherited { return inherited{blocked: threadMask()} }
