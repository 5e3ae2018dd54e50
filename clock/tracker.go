package clock

// Tracker follows the offset to one peer while a run goes on, from its latest
// bursts, by the method that Fit uses afterwards. It is for decisions that
// cannot wait, such as when to tick; the timeline comes from Fit. It is not
// safe for concurrent use.
type Tracker struct {
	bursts [][]evidence
	next   int
	all    []evidence // reused
	edge   *edge
	clean  bool
}

// NewTracker returns a tracker that keeps the given number of bursts.
func NewTracker(keep int) *Tracker {
	return &Tracker{bursts: make([][]evidence, max(keep, 1))}
}

// Add takes the exchanges of a burst; what cannot be true is left out.
func (t *Tracker) Add(xs []Exchange) {
	slot := t.bursts[t.next][:0]
	for _, x := range xs {
		if usable(x) {
			slot = append(slot, asked(x))
		}
	}
	if len(slot) == 0 {
		return
	}
	t.bursts[t.next] = slot
	t.next = (t.next + 1) % len(t.bursts)
	t.all = t.all[:0]
	for _, b := range t.bursts {
		t.all = append(t.all, b...)
	}
	var found []Contradiction
	t.edge, found = fitEdge(t.all)
	t.clean = len(found) == 0
}

// Offset returns the peer's clock minus the node's when the node's clock shows
// at, give or take bound nanoseconds; ok is false before the first burst.
func (t *Tracker) Offset(at NodeTime) (ns, bound int64, ok bool) {
	if t.edge == nil {
		return 0, 0, false
	}
	lo, est, hi, ok := t.edge.across(int64(at), int64(at), int64(at))
	if !ok {
		return 0, 0, false
	}
	return est - int64(at), max(est-lo, hi-est), true
}

// Steady says whether all that is kept fits one steady rate that is known well
// enough to be relied on between bursts that are farther apart.
func (t *Tracker) Steady() bool {
	return t.edge != nil && t.clean && len(t.edge.segs) == 1 && t.edge.segs[0].tight
}
