package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// LockSpool takes the lock by which others see that a spool's agent is alive.
// The kernel lets go of it when the agent dies, however it dies. Filesystems
// without locks are no error: Alive has a second sign.
func LockSpool(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return fmt.Errorf("locking %s: %w", f.Name(), err)
}

// freshOnNetwork is how long after its last write a spool on a network
// filesystem counts as being written: attribute caches may hide a write for a
// minute, and locks may not be seen from another host at all.
const freshOnNetwork = 60 * time.Second

// Alive returns the nodes whose agents still write, as far as it can be seen
// from here.
func (d Dir) Alive(now time.Time) ([]string, error) {
	names, err := d.NodeNames()
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	var alive []string
	for _, node := range names {
		m, err := ReadNodeMeta(d, node)
		if err == nil && m.End != nil {
			continue
		}
		elsewhere := m != nil && m.Host != host
		spools, err := filepath.Glob(d.Join("nodes", node, "spool-*"))
		if err != nil {
			return nil, fmt.Errorf("looking for spools: %w", err)
		}
		for _, path := range spools {
			if locked(path) || elsewhere && onNetwork(path) && fresh(path, now) {
				alive = append(alive, node)
				break
			}
		}
	}
	return alive, nil
}

func locked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	return errors.Is(err, unix.EWOULDBLOCK)
}

func fresh(path string, now time.Time) bool {
	st, err := os.Stat(path)
	return err == nil && now.Sub(st.ModTime()) < freshOnNetwork
}

func onNetwork(path string) bool {
	_, shared := Filesystem(path)
	return shared
}

// Filesystem names the filesystem that path lies on and says whether other
// hosts may share it. An unknown one counts as shared: the careful answer.
func Filesystem(path string) (name string, shared bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "unknown", true
	}
	local := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs",
		unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs",
		unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.F2FS_SUPER_MAGIC: "f2fs",
		0x2fc12fc1: "zfs", 0x958458f6: "hugetlbfs",
	}
	remote := map[int64]string{
		unix.NFS_SUPER_MAGIC: "nfs", 0x0bd00bd0: "lustre", 0x47504653: "gpfs",
		unix.CEPH_SUPER_MAGIC: "ceph", unix.FUSE_SUPER_MAGIC: "fuse",
		unix.SMB2_SUPER_MAGIC: "smb2", unix.AFS_SUPER_MAGIC: "afs",
		0x19830326: "beegfs", 0x01021997: "9p",
	}
	magic := int64(st.Type) //nolint:unconvert // int32 on some architectures
	if n, ok := local[magic]; ok {
		return n, false
	}
	if n, ok := remote[magic]; ok {
		return n, true
	}
	return fmt.Sprintf("0x%x", magic), true
}
