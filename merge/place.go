package merge

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/rundir"
)

// Names of what a merge has beside the timeline while it works.
const (
	tmpPrefix = ".timeline.tmp-"
	oldPrefix = ".timeline.old-"
	// sharePrefix begins the name of the directory that several tasks write
	// together; what the plan's name follows.
	sharePrefix = ".timeline.share-"
	lockName    = ".merge.lock"
	finishName  = ".merge.finish.lock"
	// planName holds the name of the plan that the timeline was made by. It is
	// not in the timeline, which is the same from spools as from shards.
	planName = ".merge.plan"
)

// clearing is how long a task waits for another one that clears what killed ones
// left; one of a merge by a single task lasts longer than anybody should wait.
const (
	clearing     = 10 * time.Second
	clearingPoll = 20 * time.Millisecond
)

// BusyError says that another merge of the run is at work.
type BusyError struct{ Dir string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("another merge of %s is at work: wait for it", e.Dir)
}

// lock keeps other merges of the run away, but for tasks of the same one where
// shared is set, and clears what dead ones left. Filesystems without locks are
// no error: names by process and by plan, and renames, keep two merges apart
// there, and nothing is cleared.
func lock(dir rundir.Dir, shared bool) (func(), error) {
	f, err := openLock(dir, lockName)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		// Tasks take up what a killed one of theirs left.
		clearLeftovers(dir, !shared)
		if shared {
			err = unix.Flock(int(f.Fd()), unix.LOCK_SH)
		}
	}
	// The first of the tasks has the lock to itself while it clears.
	for wait := clearing; errors.Is(err, unix.EWOULDBLOCK) && shared && wait > 0; wait -= clearingPoll {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
			time.Sleep(clearingPoll)
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		f.Close()
		return nil, &BusyError{Dir: string(dir)}
	}
	return func() { f.Close() }, nil
}

func openLock(dir rundir.Dir, name string) (*os.File, error) {
	f, err := os.OpenFile(dir.Join(name), os.O_RDWR|os.O_CREATE, rundir.FileMode)
	if err != nil {
		return nil, fmt.Errorf("merging %s: %w", dir, err)
	}
	return f, nil
}

// lockFinish is taken by the task that finishes; last is false where another
// one does.
func lockFinish(dir rundir.Dir) (unlock func(), last bool, err error) {
	f, err := openLock(dir, finishName)
	if err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	return func() { f.Close() }, !errors.Is(err, unix.EWOULDBLOCK), nil
}

// clearLeftovers removes what killed merges left. A timeline that one had moved
// away and not yet replaced comes back.
func clearLeftovers(dir rundir.Dir, shares bool) {
	old, _ := filepath.Glob(dir.Join(oldPrefix + "*")) // the pattern is well-formed
	for _, p := range old {
		if _, err := os.Stat(dir.Timeline()); errors.Is(err, os.ErrNotExist) {
			_ = os.Rename(p, dir.Timeline()) // else it stays where the next merge finds it
			continue
		}
		os.RemoveAll(p)
	}
	tmp, _ := filepath.Glob(dir.Join(tmpPrefix + "*"))
	if shares {
		more, _ := filepath.Glob(dir.Join(sharePrefix + "*"))
		tmp = append(tmp, more...)
	}
	for _, p := range tmp {
		os.RemoveAll(p)
	}
}

// putInPlace makes tmp the run's timeline. Readers see the old one, for an
// instant none, or the new one; never a part.
func putInPlace(dir rundir.Dir, tmp, plan string) error {
	if err := os.Remove(dir.Join(planName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	old := dir.Join(fmt.Sprintf("%s%d", oldPrefix, os.Getpid()))
	if err := os.Rename(dir.Timeline(), old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(tmp, dir.Timeline()); err != nil {
		_ = os.Rename(old, dir.Timeline()) // else the next merge does
		return err
	}
	os.RemoveAll(old)
	_ = rundir.WriteFile(dir.Join(planName), []byte(plan)) // else tasks that are run again merge again
	return nil
}
