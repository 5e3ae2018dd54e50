package rankagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/control"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// ErrHasAgent says that the node has an agent of this run already.
var ErrHasAgent = errors.New("the node has an agent of this run already")

// Opened is a group of sources that is ready to be read.
type Opened struct {
	Sources []Source
	// Describe puts what the group knows into meta.yaml; may be nil.
	Describe func(*rundir.NodeMeta)
	// Update is Describe for what grows during the run: it is called
	// whenever meta.yaml is written; may be nil.
	Update func(*rundir.NodeMeta)
	// Close is called once after all sources were closed; may be nil.
	Close func() error
}

// Opener opens a group of sources. Openers run side by side while others are
// read already: a GPU driver may take seconds. An opener reports what is absent
// through out and returns an error only for what nobody foresaw.
type Opener struct {
	Name string
	Open func(out Out) (Opened, error)
}

// Setup is what an agent is made of.
type Setup struct {
	Config  control.AgentConfig
	Version string
	Clock   clock.Source
	Openers []Opener
	// GPUs are the minor numbers of the GPU device nodes that this process
	// may open.
	GPUs []int
	// JobAlive reports whether processes of the job are left on the node.
	JobAlive func() bool
	// RankOf returns the rank of a process of the job, -1 where it has none;
	// may be nil.
	RankOf func(pid int) int
	// Machine tells this node from others, BootID its present life.
	Machine, BootID, Host string
	// Listening is called when the agent can be joined: from then on it has
	// nothing more to say to whoever started it.
	Listening func()
}

const (
	// flushEvery is how much a killed agent may lose.
	flushEvery = time.Second
	// extendEvery is how often open absences are written again.
	extendEvery = time.Minute
	// sourcePatience is how long the end waits for readings under way and for
	// the last readings of counters.
	sourcePatience = 120 * time.Millisecond
	// joinPatience is how long an agent waits for the first wrap.
	joinPatience = 10 * time.Second
	// worthSaying is how long a run must be for a node that did not find its
	// head in that time to be named on the terminal; merge always names it.
	worthSaying = 2 * time.Second
	// sync intervals by filesystem, unless the user chose one.
	syncLocal, syncShared = time.Second, 30 * time.Second
)

// agent is one node's sampler while it runs.
type agent struct {
	Setup
	cfg   control.AgentConfig
	clock clock.Source
	c     *collector
	w     *writer
	node  string
	pid   int

	members *members
	cluster *cluster

	mu      sync.Mutex
	runners []*runner
	closers []func() error
	updates []func(*rundir.NodeMeta)
	meta    rundir.NodeMeta
	note    string // what the user ought to know at the end
	endErr  error  // how the spool ended

	pause   *pause
	ready   chan struct{} // closed when every opener has been heard
	flushed chan chan struct{}
	// lastWatch is when the sampler table was last written; the loop's.
	lastWatch clock.NodeTime
	ended     chan struct{} // closed when all is on disk
}

// attached reports whether a head in front started the agent as a step of its
// own; then it ends when the head says so, not when ranks leave.
func (a *agent) attached() bool { return a.cfg.Head != nil }

// Run samples this node until the job is over. It returns ErrHasAgent at once
// where the node has an agent of this run; other errors say that nothing could
// be recorded at all.
func Run(ctx context.Context, s Setup) error {
	stepAside()
	term := catchTerm()
	local, err := control.ListenLocal(control.SocketName(s.Config.Run.ID, s.Config.Part))
	if errors.Is(err, control.ErrTaken) {
		return ErrHasAgent
	}
	if err != nil {
		return fmt.Errorf("taking the node's socket: %w", err)
	}
	defer local.Close()

	a := &agent{
		Setup: s, cfg: s.Config, clock: s.Clock, c: newCollector(s.Clock), pid: os.Getpid(),
		ready: make(chan struct{}), flushed: make(chan chan struct{}), ended: make(chan struct{}),
	}
	if err := a.open(); err != nil {
		return err
	}
	a.members = newMembers(a, s.GPUs)
	a.cluster = newCluster(a)
	go local.Serve(a.members.serve)
	s.Listening()
	return a.sample(ctx, term)
}

// open claims the node's directory and begins its spool.
func (a *agent) open() error {
	bracket, err := a.clock.Bracket()
	if err != nil {
		return err
	}
	claimed := a.cfg.Node
	if a.cfg.Part != "" {
		claimed = rundir.PartName(claimed, a.cfg.Part)
	}
	name, clash, err := claimNode(a.cfg.Dir, claimed, a.Machine)
	if err != nil {
		return err
	}
	a.node = name
	fsType, shared := rundir.Filesystem(string(a.cfg.Dir))
	every := a.cfg.Sync
	if every == 0 {
		every = syncLocal
		if shared {
			every = syncShared
		}
	}
	a.meta = rundir.NodeMeta{
		Version: a.Version, RunID: a.cfg.Run.ID, Node: name, Host: a.Host, Machine: a.Machine, Part: a.cfg.Part,
		Begin: time.Unix(0, bracket.Realtime).UTC(), BeginRaw: bracket.Raw0,
		Interval: a.cfg.Interval, Sync: every, SyncPhase: phase(name, every), FSType: fsType, Shared: shared,
		GPUCounts: rundir.GPUCounts{Visible: -1, Job: -1, Node: -1},
	}
	// A writer that finds no meta.yaml writes it later.
	if err := rundir.WriteNodeMeta(a.cfg.Dir, name, &a.meta); err != nil && !passing(err) {
		return err
	}
	a.w = &writer{
		dir: a.cfg.Dir, node: name, clock: a.clock, c: a.c, restore: a.writeMeta,
		meta: shard.SpoolMeta{Node: name, Program: a.Version, BootID: a.BootID, Tile: a.cfg.Tile},
	}
	if err := openWriter(a.w, every); err != nil {
		return err
	}
	a.c.event(bracket.Raw0, "agent_start", -1, -1, map[string]any{"pid": a.pid, "version": a.Version, "part": a.cfg.Part})
	if clash {
		a.c.event(bracket.Raw0, "name_clash", -1, -1, map[string]string{"claimed": a.cfg.Node, "host": a.Host})
	}
	return nil
}

// sample is the agent's life from its first reading to its last.
func (a *agent) sample(ctx context.Context, term <-chan os.Signal) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	base := timebase{clock: a.clock, offset: a.cluster.offset}
	a.pause = newPause(ctx)
	marks := a.listenMarks()
	a.startSources(ctx, base)
	a.cluster.start(ctx)
	if !a.attached() {
		a.members.expectSomebody(joinPatience)
	}

	reason := a.loop(ctx, base, term)

	stop()
	a.stopSources()
	marks.end()
	a.cluster.endBurst()
	end := a.clock.Now()
	a.watch(end)
	a.c.extendAbsences(end)
	a.c.event(end, "agent_end", -1, -1, map[string]string{"reason": reason})
	err := a.w.end(reason, func() error {
		a.mu.Lock()
		a.meta.End = &rundir.NodeEnd{Time: a.realtime(), Reason: reason}
		a.mu.Unlock()
		return a.writeMeta()
	})
	a.mu.Lock()
	a.endErr = err
	a.mu.Unlock()
	a.cluster.leave(a.members.ranks(), a.lastNote())
	close(a.ended)
	// Whoever waits for Flushed gets it before the process is gone.
	time.Sleep(5 * time.Millisecond)
	return err
}

// loop flushes each second until something ends the run, and returns what.
func (a *agent) loop(ctx context.Context, base timebase, term <-chan os.Signal) string {
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	tile := a.tileOf(base)
	extend := a.clock.Now()
	dying := false
	last := a.clock.Now()
	for {
		var answer chan struct{}
		select {
		case <-ctx.Done():
			return "cancelled"
		case <-a.members.done:
			return "ranks gone"
		case why := <-a.cluster.stopped:
			return why
		case <-term:
			// The grace period is when jobs save their state: keep
			// sampling, but owe the disk nothing.
			if !dying {
				dying = true
				a.c.event(a.clock.Now(), "sigterm", -1, -1, nil)
			}
		case answer = <-a.flushed:
		case <-ticker.C:
			if a.pause.held() {
				continue
			}
		}
		now := a.clock.Now()
		if now-last >= clock.NodeTime(flushEvery)/2 {
			a.bracket()
			a.watch(now)
			last = now
		}
		if now-extend >= clock.NodeTime(extendEvery) {
			extend = now
			a.c.extendAbsences(now)
			a.saveMeta()
		}
		a.w.flush(answer, dying)
		if t := a.tileOf(base); t != tile {
			tile = t
			a.w.rotate()
		}
		if (dying || a.cluster.headLost()) && a.attached() && !a.JobAlive() {
			return "job gone"
		}
	}
}

func (a *agent) tileOf(base timebase) int64 {
	return int64(base.reference()) / int64(a.cfg.Tile)
}

// startSources opens every group on a goroutine of its own and begins to read
// what it opened.
func (a *agent) startSources(ctx context.Context, base timebase) {
	var opening sync.WaitGroup
	for _, o := range a.Openers {
		opening.Add(1)
		go func() {
			defer opening.Done()
			out := &reading{c: a.c, tick: noTick}
			opened, err := o.Open(out)
			out.deliver()
			if err != nil {
				a.c.event(a.clock.Now(), "source_error", -1, -1, map[string]string{"source": o.Name, "error": err.Error()})
				return
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			if ctx.Err() != nil {
				return
			}
			if opened.Describe != nil {
				opened.Describe(&a.meta)
			}
			if opened.Update != nil {
				a.updates = append(a.updates, opened.Update)
			}
			if opened.Close != nil {
				a.closers = append(a.closers, opened.Close)
			}
			for _, src := range opened.Sources {
				r := newRunner(src, base, a.cfg.Interval, a.c)
				r.pause = a.pause
				a.runners = append(a.runners, r)
				go r.run(ctx)
			}
		}()
	}
	go func() {
		opening.Wait()
		a.bracket()
		a.saveMeta()
		close(a.ready)
	}()
}

// stopSources ends the readings. A reading that hangs is left behind: it cannot
// be interrupted, and the process ends soon.
func (a *agent) stopSources() {
	a.mu.Lock()
	defer a.mu.Unlock()
	deadline := time.Now().Add(sourcePatience) //nolint:forbidigo // a patience, not a stamp
	stuck := false
	for _, r := range a.runners {
		if err := r.stop(time.Until(deadline)); err != nil { //nolint:forbidigo // as above
			stuck = true
			a.c.event(a.clock.Now(), "source_error", -1, -1, map[string]string{"source": r.src.Name(), "error": err.Error()})
		}
	}
	if stuck {
		return
	}
	for _, c := range a.closers {
		if err := c(); err != nil {
			a.c.event(a.clock.Now(), "source_error", -1, -1, map[string]string{"error": err.Error()})
		}
	}
}

// bracket records the node's clocks.
func (a *agent) bracket() {
	b, err := a.clock.Bracket()
	if err != nil {
		a.c.setAbsent(table.ClockBracket, "", "", SourceError, err.Error())
		return
	}
	b.Clocksource = clocksource()
	a.cluster.recordBracket(b)
}

// watch writes what the sampling cost since the last call.
func (a *agent) watch(now clock.NodeTime) {
	a.mu.Lock()
	runners := append([]*runner(nil), a.runners...)
	a.mu.Unlock()
	b := table.NewBatch(table.Sampler, len(runners)+1)
	begin := a.watched(now)
	var all stats
	for _, r := range runners {
		r.slow(now)
		s := r.take()
		all.due += s.due
		all.done += s.done
		all.late += s.late
		all.lateMax = max(all.lateMax, s.lateMax)
		all.wall += s.wall
		all.cpu += s.cpu
		all.rows += s.rows
		s.row(b, r.src.Name(), begin, now)
	}
	row := all.row(b, "agent", begin, now)
	cpu, rss := usage()
	row.Int(table.SamAgentCPU, cpu)
	row.Int(table.SamAgentRSS, rss)
	row.Int(table.SamSpoolBytes, a.w.bytes())
	row.Int(table.SamDroppedRows, a.w.rowsDropped())
	a.c.add(b, noTick)
}

// watched returns when watch was last called and notes that it is now.
func (a *agent) watched(now clock.NodeTime) clock.NodeTime {
	begin := a.lastWatch
	if begin == 0 {
		begin = a.meta.BeginRaw
	}
	a.lastWatch = now
	return begin
}

// settle puts on disk what is known when a rank has ended. For the node's last
// rank that is the end of the agent.
func (a *agent) settle(last bool) string {
	if last {
		<-a.ended
		return a.lastNote()
	}
	answer := make(chan struct{})
	select {
	case a.flushed <- answer:
		<-answer
	case <-a.ended:
	}
	return ""
}

// rankZeroIsHere makes this node the one that the others look to.
func (a *agent) rankZeroIsHere() { a.cluster.lead() }

func (a *agent) writeMeta() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.meta.Ranks = a.members.ranks()
	for _, update := range a.updates {
		update(&a.meta)
	}
	return rundir.WriteNodeMeta(a.cfg.Dir, a.node, &a.meta)
}

// saveMeta writes meta.yaml during the run; a failure is data.
func (a *agent) saveMeta() {
	if err := a.writeMeta(); err != nil {
		a.c.event(a.clock.Now(), "meta_error", -1, -1, map[string]string{"error": err.Error()})
	}
}

func (a *agent) realtime() time.Time {
	b, err := a.clock.Bracket()
	if err != nil {
		return time.Time{}
	}
	return time.Unix(0, b.Realtime).UTC()
}

func (a *agent) say(note string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.note == "" {
		a.note = note
	}
}

func (a *agent) lastNote() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	// What is lost for good comes before all else.
	if n := a.w.rowsDropped(); n > 0 {
		note := fmt.Sprintf("%d rows of node %s could not be written", n, a.node)
		if a.endErr != nil {
			note += ": " + a.endErr.Error()
		}
		return note
	}
	if a.note == "" {
		if missing := a.cluster.unheard(); len(missing) > 0 && a.clock.Now()-a.meta.BeginRaw > clock.NodeTime(worthSaying) {
			more := ""
			if n := len(missing) - 1; n > 0 {
				more = fmt.Sprintf(" and %d more", n)
			}
			return fmt.Sprintf("node %s%s found no head: what is recorded there is not aligned", missing[0], more)
		}
	}
	return a.note
}
