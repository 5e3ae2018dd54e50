package shard

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// syncUnsupported reports whether a sync succeeded, or failed only because the
// filesystem has none: some network and FUSE filesystems answer so.
func syncUnsupported(err error) bool {
	return err == nil || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.EINVAL)
}

// syncDir makes renames and removals in a directory last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("syncing %s: %w", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); !syncUnsupported(err) {
		return fmt.Errorf("syncing %s: %w", dir, err)
	}
	return nil
}
