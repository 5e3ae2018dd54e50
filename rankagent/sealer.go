package rankagent

import (
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/shard"
)

// sealer turns spools that have ended into Parquet, one after the other, on a
// thread of the lowest priority: the job's CPUs are the job's. Tiles end on all
// nodes at once; each node waits for a time of its own before it seals, so that
// a thousand of them do not ask the filesystem for new files in one instant.
type sealer struct {
	c     *collector
	clock clock.Source
	delay time.Duration
	paths chan string
}

// sealsWaiting is how many spools may wait; those beyond it stay spools, which
// merge reads as well.
const sealsWaiting = 64

func newSealer(c *collector, src clock.Source, delay time.Duration) *sealer {
	s := &sealer{c: c, clock: src, delay: delay, paths: make(chan string, sealsWaiting)}
	go s.run()
	return s
}

// add has a spool sealed; it never waits.
func (s *sealer) add(path string) {
	select {
	case s.paths <- path:
	default:
	}
}

func (s *sealer) run() {
	runtime.LockOSThread()                                 // never unlocked: the thread ends with its priority
	unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19) //nolint:errcheck // then at normal priority
	for path := range s.paths {
		time.Sleep(s.delay)
		if _, err := shard.Seal(path); err != nil {
			s.c.event(s.clock.Now(), "seal_error", -1, -1, map[string]string{"spool": filepath.Base(path), "error": err.Error()})
		}
	}
}
