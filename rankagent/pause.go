package rankagent

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// pause holds up all readings on demand. It is there for measuring what the
// readings cost a job, by a paired comparison within one run: stopping the
// process from outside would stop it anywhere, also in the driver.
type pause struct {
	mu sync.Mutex
	// resumed is closed while readings are taken.
	resumed chan struct{}
}

// benchVar makes an agent obey SIGUSR1, pause, and SIGUSR2, go on. Else it
// ignores both: they are meant for the job.
const benchVar = "GSWARM_X_BENCH"

// newPause returns nil, which never holds anything up, unless the environment
// asks for it.
func newPause(ctx context.Context) *pause {
	if os.Getenv(benchVar) == "" {
		return nil
	}
	p := &pause{resumed: make(chan struct{})}
	close(p.resumed)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-signals:
				p.set(s == syscall.SIGUSR1)
			}
		}
	}()
	return p
}

func (p *pause) set(held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.resumed:
		if held {
			p.resumed = make(chan struct{})
		}
	default:
		if !held {
			close(p.resumed)
		}
	}
}

// held says whether readings are held up.
func (p *pause) held() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.gate():
		return false
	default:
		return true
	}
}

// wait returns when readings may be taken, and whether it had to wait.
func (p *pause) wait(ctx context.Context) (waited bool) {
	if !p.held() {
		return false
	}
	select {
	case <-p.gate():
	case <-ctx.Done():
	}
	return true
}

func (p *pause) gate() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resumed
}
