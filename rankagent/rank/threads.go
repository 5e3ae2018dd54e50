package rank

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// The kernel keeps waiting and switches by thread and adds them up for nobody,
// so the sums over a process's threads are made here: of each thread the last
// values are kept, also when it has ended, so a sum never goes back. What a
// thread did between the last look and its end is not in it.
//
// A look at a thread costs 1 to 5 us and one at its switches 11 us, so threads
// that have not run since the last look are looked at less often, switches in
// turn, and of many threads that run a share in turn.

const (
	// maxThreads is the most threads of a process whose sums are kept.
	maxThreads = 4096
	// looks is how many threads of ranks, and of other processes, one
	// reading looks at; each process has an even share, but at least
	// fewestLooks.
	looks, fewestLooks = 512, 4
	// longestRest is for how many readings a thread that does not run is
	// left alone, and up to as many less one more, by its id.
	longestRest = 4
)

// counts is what the scheduler counts of a thread, or of all.
type counts struct{ delay, voluntary, involuntary int64 }

// add adds what of another is known.
func (c *counts) add(o counts) {
	c.delay += max(o.delay, 0)
	c.voluntary += max(o.voluntary, 0)
	c.involuntary += max(o.involuntary, 0)
}

// back reports whether a count is lower than before, which is another thread's
// that was given the id.
func (c counts) back(before counts) bool {
	return c.delay < before.delay || c.voluntary < before.voluntary || c.involuntary < before.involuntary
}

// thread is one of a process's threads, its main thread apart.
type thread struct {
	tid  int
	last counts
	// ran is what the kernel had given it of a CPU at the last look, counted
	// that at the last look at its switches.
	ran, counted int64
	fd           int   // its schedstat, while it runs
	next         int64 // the reading in which to look again
	rest         int64 // 0: it was not looked at yet
	// old says that it may have counted before its process was found, and
	// was not looked at since.
	old bool
}

// threads are those of a process, and what became of those that ended.
type threads struct {
	each  []thread // by id
	at    int      // where the next reading begins
	main  counts
	ended counts
	begun bool
	stale bool // one was not found any more
}

var (
	errManyThreads = errors.New("more than " + strconv.Itoa(maxThreads) + " threads")
	errThreadTurn  = errors.New("not all of its threads have been looked at yet")
)

// sumThreads returns the sums over a process's threads; main is what was just
// read of its main thread, and n how many threads it has.
func (t *Tracker) sumThreads(p *process, main counts, n int64) (counts, error) {
	ts := &p.threads
	if main.voluntary == absent || main.involuntary == absent || main.delay == absent && !t.never(table.RankRunDelay) {
		return counts{}, errLine
	}
	if main.back(ts.main) {
		ts.ended.add(ts.main)
	}
	ts.main = main
	if n > maxThreads {
		t.restThreads(p)
		ts.each, ts.begun, ts.stale = nil, false, false
		return counts{}, errManyThreads
	}
	if n > 1 || len(ts.each) > 0 {
		// As many as before are nearly always the same ones.
		if ts.stale || n != int64(len(ts.each))+1 || (int64(p.pid)+t.tick)%turns == 0 {
			if err := t.listThreads(p); err != nil {
				return counts{}, err
			}
		}
		if err := t.lookAtThreads(p); err != nil {
			return counts{}, err
		}
	}
	ts.begun = true
	sum := ts.ended
	sum.add(ts.main)
	for i := range ts.each {
		if ts.each[i].old {
			return counts{}, errThreadTurn
		}
		sum.add(ts.each[i].last)
	}
	return sum, nil
}

// listThreads compares the threads that there are with those that are known.
func (t *Tracker) listThreads(p *process) error {
	listed, err := t.taskEntries(p)
	if err != nil {
		return err
	}
	p.threads.stale = false
	slices.SortFunc(listed, func(a, b entry) int { return cmp.Compare(a.pid, b.pid) })
	ts := &p.threads
	// Most of the time nothing has changed.
	same := len(listed) == len(ts.each)+1
	for i, j := 0, 0; same && i < len(listed); i++ {
		if listed[i].pid == p.pid {
			continue
		}
		same = j < len(ts.each) && ts.each[j].tid == listed[i].pid
		j++
	}
	if same {
		return nil
	}
	now := make([]thread, 0, len(listed))
	j := 0
	for _, e := range listed {
		if e.pid == p.pid {
			continue
		}
		for ; j < len(ts.each) && ts.each[j].tid < e.pid; j++ {
			t.endThread(ts, &ts.each[j])
		}
		if j < len(ts.each) && ts.each[j].tid == e.pid {
			now = append(now, ts.each[j])
			j++
			continue
		}
		now = append(now, thread{tid: e.pid, fd: closed, old: !ts.begun})
	}
	for ; j < len(ts.each); j++ {
		t.endThread(ts, &ts.each[j])
	}
	ts.each = now
	return nil
}

// taskEntries lists a process's threads; valid until the next reading of a file.
func (t *Tracker) taskEntries(p *process) ([]entry, error) {
	path := t.opts.ProcRoot + "/" + p.key + "/task"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	t.tasks, err = readEntries(fd, t.buf, t.tasks[:0])
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: path, Err: err}
	}
	if len(t.tasks) == 0 {
		return nil, &fs.PathError{Op: "readdir", Path: path, Err: syscall.ESRCH}
	}
	return t.tasks, nil
}

// endThread takes leave of a thread: what it counted stays.
func (t *Tracker) endThread(ts *threads, th *thread) {
	t.shutThread(th)
	ts.ended.add(th.last)
}

func (t *Tracker) shutThread(th *thread) {
	if th.fd != closed {
		unix.Close(th.fd)
		th.fd = closed
		t.open--
	}
}

// restThreads closes what is open of a process's threads.
func (t *Tracker) restThreads(p *process) {
	for i := range p.threads.each {
		t.shutThread(&p.threads.each[i])
	}
}

// lookAtThreads looks at the threads that are due, as many as the process's
// share allows.
func (t *Tracker) lookAtThreads(p *process) error {
	ts := &p.threads
	share := t.shares.others
	if p.role == RoleRank {
		share = t.shares.ranks
	}
	n := len(ts.each)
	start := ts.at
	for i := range n {
		k := (start + i) % n
		th := &ts.each[k]
		if th.next > t.tick {
			continue
		}
		if share == 0 {
			break
		}
		share--
		ts.at = k + 1
		if err := t.look(p, th); err != nil {
			return err
		}
		th.old = false
	}
	return nil
}

// look reads what a thread has counted. One that has ended meanwhile keeps what
// it had; the next listing says so.
func (t *Tracker) look(p *process, th *thread) error {
	first := th.rest == 0
	ran, delay, err := t.threadDelay(p, th)
	if isGone(err) {
		t.missThread(p, th)
		return nil
	}
	if err != nil {
		return err
	}
	rested := !first && ran == th.ran && ran != absent
	if !first && (ran < th.ran || delay < th.last.delay) {
		p.threads.ended.add(th.last) // the id is another thread's now
		th.last, first = counts{}, true
	}
	th.last.delay = delay
	// It did not run, so its switches are what they were; else they are
	// read in turn, and before it is left alone.
	if first || ran == absent || ran != th.counted && (rested || (int64(th.tid)+t.tick)%turns == 0) {
		text, err := readWhole(t.threadPath(p, th, "status"), t.buf)
		if isGone(err) {
			t.missThread(p, th)
			return nil
		}
		if err != nil {
			return err
		}
		now := counts{delay, lookup(text, "voluntary_ctxt_switches"), lookup(text, "nonvoluntary_ctxt_switches")}
		if now.voluntary == absent || now.involuntary == absent {
			return errLine
		}
		if now.back(th.last) {
			p.threads.ended.add(counts{0, th.last.voluntary, th.last.involuntary})
		}
		th.last, th.counted = now, ran
	}
	th.ran = ran
	if !rested {
		th.next, th.rest = t.tick+1, 1
		return nil
	}
	t.shutThread(th)
	th.next = t.tick + th.rest + int64(th.tid)%th.rest
	th.rest = min(2*th.rest, longestRest)
	return nil
}

// missThread notes that a thread could not be found.
func (t *Tracker) missThread(p *process, th *thread) {
	th.next, th.rest = t.tick+1, max(th.rest, 1)
	p.threads.stale = true
}

// threadDelay reads a thread's schedstat: how long it ran, and how long it
// waited to. Both are absent where the kernel has none.
func (t *Tracker) threadDelay(p *process, th *thread) (ran, delay int64, err error) {
	if t.never(table.RankRunDelay) {
		return absent, absent, nil
	}
	var text []byte
	if th.fd != closed {
		text, err = pread(th.fd, t.buf, "schedstat")
	} else {
		text, err = t.openThread(p, th)
	}
	if err != nil {
		t.shutThread(th)
		return 0, 0, err
	}
	f, rest := field(text)
	ran = number(f)
	f, _ = field(rest)
	if delay = number(f); ran == absent || delay == absent {
		return 0, 0, errLine
	}
	return ran, delay, nil
}

// openThread opens and reads a thread's schedstat and keeps it open where there
// is room: a thread that runs is read again at once.
func (t *Tracker) openThread(p *process, th *thread) ([]byte, error) {
	path := t.threadPath(p, th, "schedstat")
	if t.open >= t.maxOpen {
		return readWhole(path, t.buf)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		t.maxOpen = t.open
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	th.fd = fd
	t.open++
	return pread(fd, t.buf, path)
}

func (t *Tracker) threadPath(p *process, th *thread, name string) string {
	return t.opts.ProcRoot + "/" + p.key + "/task/" + strconv.Itoa(th.tid) + "/" + name
}

// isGone reports whether an error says that a process or thread has ended.
func isGone(err error) bool {
	return errors.Is(err, syscall.ESRCH) || errors.Is(err, fs.ErrNotExist)
}

// shares is how many threads of one process a reading looks at.
type shares struct{ ranks, others int }

// shareLooks divides the looks among the processes.
func (t *Tracker) shareLooks() {
	ranks := 0
	for _, p := range t.procs {
		if p.role == RoleRank {
			ranks++
		}
	}
	others := len(t.procs) - ranks
	if len(t.procs) > many {
		others = (others + turns - 1) / turns
	}
	t.shares = shares{max(fewestLooks, looks/max(ranks, 1)), max(fewestLooks, looks/max(others, 1))}
}

// threadSums stores the sums over the process's threads, or why there are none.
func (r row) threadSums(sum counts, err error) {
	for _, c := range []struct {
		col int
		n   int64
	}{
		{table.RankThreadsRunDelay, sum.delay},
		{table.RankThreadsVoluntary, sum.voluntary},
		{table.RankThreadsInvoluntary, sum.involuntary},
	} {
		if errors.Is(err, errThreadTurn) || errors.Is(err, errManyThreads) {
			r.gap(c.col, rankagent.NotSampled, err.Error())
			continue
		}
		r.set(c.col, c.n, err)
	}
}
