//go:build cgo && linux

package gpu

import (
	"fmt"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// watch makes no calls. It fences off GPUs whose calls hang, keeps the budget,
// and says what GPUs have no tables of.
type watch struct {
	driver *Driver
	said   bool
	stuck  map[*lane]*call
}

func newWatch(d *Driver) *watch { return &watch{driver: d, stuck: map[*lane]*call{}} }

// Name appears in the sampler table.
func (*watch) Name() string { return "gpu watch" }

// Interval is a second.
func (*watch) Interval() time.Duration { return time.Second }

// Close has nothing to free.
func (*watch) Close() error { return nil }

// MayBeSilent marks a source without rows of its own.
func (*watch) MayBeSilent() {}

// Read looks at every GPU.
func (w *watch) Read(out rankagent.Out) error {
	now := out.Now()
	for i, dev := range w.driver.devices {
		if !w.driver.selected[i] {
			continue
		}
		for _, l := range dev.lanes {
			w.look(out, dev, l, now)
		}
		if dev.parent == nil {
			dev.shared.budget.second(dev, out)
		}
		if dev.shared.fenced.Load() {
			for _, l := range dev.lanes {
				out.Absent(l.table, "", dev.key, rankagent.SourceSlow, "a call did not return; no further calls")
			}
		}
		if dev.parent != nil && !w.said {
			for _, t := range []*table.Table{table.GPUPower, table.GPUCounter} {
				out.Absent(t, "", dev.key, rankagent.NotSupported, "a MIG instance has none of its own; see its GPU")
			}
		}
	}
	w.said = true
	return nil
}

// look fences the GPU where the lane's call hangs, and says when such a call
// has returned after all: it stays fenced.
func (w *watch) look(out rankagent.Out, dev *device, l *lane, now clock.NodeTime) {
	began, c := clock.NodeTime(l.began.Load()), l.doing.Load()
	hangs := began != 0 && now-began > fenceAfter
	was := w.stuck[l]
	switch {
	case hangs && was == nil && c != nil:
		w.stuck[l] = c
		dev.shared.fenced.Store(true)
		out.Event(now, EventFenced, dev.index, -1, callDetail{UUID: dev.uuid(), Call: c.name, Seconds: int64(now-began) / 1e9})
	case !hangs && was != nil:
		delete(w.stuck, l)
		out.Event(now, EventReturned, dev.index, -1, callDetail{UUID: dev.uuid(), Call: was.name})
	}
}

// uuid returns the GPU's identity, empty as long as it has not said.
func (dev *device) uuid() string {
	if id := dev.id.Load(); id != nil {
		return id.uuid
	}
	return ""
}

func describeEvery(d time.Duration) string { return fmt.Sprintf("it is dear and read every %v", d) }
