//go:build cgo && linux

package gpu

import "time"

// turns lets one goroutine at a time do something in the driver. Waiting for
// one's turn ends after a while: who has it may hang.
type turns struct{ taken chan struct{} }

func newTurns() turns { return turns{make(chan struct{}, 1)} }

// turn is one's own, or none where the wait was too long.
type turn struct{ of *turns }

// take waits for a turn for as long as patience.
func (t *turns) take(patience time.Duration) turn {
	select {
	case t.taken <- struct{}{}:
		return turn{t}
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case t.taken <- struct{}{}:
		return turn{t}
	case <-timer.C:
		return turn{}
	}
}

func (t *turn) mine() bool { return t.of != nil }

// give ends a turn; it may be called again, and where there was none.
func (t *turn) give() {
	if t.of != nil {
		<-t.of.taken
		t.of = nil
	}
}
