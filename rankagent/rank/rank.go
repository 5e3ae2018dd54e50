// Package rank finds the job's processes on a node, whoever their parent is,
// and reads for each what the kernel counts of it: the table rank, and the
// events of processes that come and go.
//
// A process belongs to the job if its environment or its cgroup says so, or if
// one that belongs to the job started it. Only processes of the agent's own
// user are looked at; of other users' nothing is kept, not even that they are
// there. The package reads files below /proc and /sys and nothing else, and it
// changes nothing.
package rank

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// agentMark is in the environment of gswarm's own processes: an agent must not
// watch itself.
const agentMark = "GSWARM_X_AGENT"

// runVar is in the environment of a wrapped job and names its run.
const runVar = "GSWARM_X_RUN"

// Variable is an environment variable and the value that it must have.
type Variable struct{ Name, Value string }

// GPUs tells a process's GPU by what the driver and the devices' files say.
// The numbers are the ordinals of the table gpu.
type GPUs interface {
	// Count is how many GPUs the agent sees.
	Count() int
	// OfPID returns the GPUs that the driver says a process uses; ok is
	// false where it was not asked.
	OfPID(pid int) (gpus []int, ok bool)
	// ByUUID and ByMinor find a GPU by what the environment and the
	// devices cgroup call it.
	ByUUID(uuid string) (gpu int, ok bool)
	ByMinor(minor int) (gpu int, ok bool)
	// NUMANode returns the memory node that a GPU hangs on.
	NUMANode(gpu int) (node int, ok bool)
}

// Options says whose processes to look for, and where.
type Options struct {
	ProcRoot string // "/proc"
	SysRoot  string // "/sys"
	// UID is the user whose processes may be looked at.
	UID int
	// Job is the scheduler's variable that names the job; its name is
	// empty where there is no scheduler.
	Job Variable
	// Run is the run's directory, which a wrapped job has in its
	// environment.
	Run string
	// Alone says that no launcher gives ranks: the wrapped program is rank
	// 0, unless a launcher's variables say otherwise.
	Alone bool
	// GPUs may be nil.
	GPUs func() GPUs
}

func (o Options) withDefaults() Options {
	if o.ProcRoot == "" {
		o.ProcRoot = "/proc"
	}
	if o.SysRoot == "" {
		o.SysRoot = "/sys"
	}
	if o.GPUs == nil {
		o.GPUs = func() GPUs { return nil }
	}
	return o
}

const (
	interval = time.Second
	// userHZ is the unit of times in /proc/PID/stat, 100 in the ABI of
	// every architecture that gswarm builds for.
	nsPerTick = 1_000_000_000 / 100
)

// Tracker knows the job's processes on this node. It is a source of the agent;
// RankOf and Describe may be called from anywhere.
type Tracker struct {
	opts   Options
	live   bool // the files are the running kernel's
	page   int64
	nodes  []numaNode
	groups *groups
	wide   []gap // what this machine never has

	// What follows is the reading goroutine's, but for procs, which is
	// changed under mu.
	mu        sync.Mutex
	procs     map[int]*process
	foreign   map[int]stranger
	scan      scanner
	buf       []byte
	tasks     []entry // of the process that is being read
	shares    shares
	mask      [128]uint64 // 8192 CPUs
	open      int         // files kept open
	maxOpen   int
	tick      int64
	started   bool
	waiting   int  // processes that this reading did not get to
	skipped   bool // it left out columns of processes that had not their turn
	described []Described
}

// gap is a column that this machine has no value for.
type gap struct {
	column int
	reason rankagent.Reason
	detail string
}

// Open prepares the search. It fails only where there is no /proc at all.
func Open(opts Options) (*Tracker, error) {
	opts = opts.withDefaults()
	if _, err := os.Stat(filepath.Join(opts.ProcRoot, "self")); err != nil {
		if _, err := os.ReadDir(opts.ProcRoot); err != nil {
			return nil, fmt.Errorf("looking for processes: %w", err)
		}
	}
	t := &Tracker{
		opts: opts, live: opts.ProcRoot == "/proc", page: int64(os.Getpagesize()),
		procs: map[int]*process{}, foreign: map[int]stranger{},
		buf: make([]byte, 64<<10), maxOpen: fileLimit() / 2,
		nodes: numaNodes(opts.SysRoot),
	}
	t.groups = openGroups(opts.ProcRoot, opts.SysRoot)
	t.lookAround()
	return t, nil
}

// fileLimit is how many files this process may have open.
func fileLimit() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 256
	}
	return int(min(l.Cur, 1<<16))
}

// lookAround finds out what this machine never has, so that it is said once and
// not for every process.
func (t *Tracker) lookAround() {
	never := func(reason rankagent.Reason, detail string, columns ...int) {
		for _, c := range columns {
			t.wide = append(t.wide, gap{c, reason, detail})
		}
	}
	at := func(name string) string { return filepath.Join(t.opts.ProcRoot, name) }
	if b, err := os.ReadFile(at("sys/kernel/task_delayacct")); err != nil || len(b) == 0 || b[0] != '1' {
		never(rankagent.NotSupported, "kernel.task_delayacct is off", table.RankIODelay)
	}
	if _, err := os.Stat(at("self/schedstat")); err != nil {
		never(rankagent.NotSupported, "the kernel keeps no schedstat", table.RankRunDelay, table.RankThreadsRunDelay)
	}
	if _, err := os.Stat(at("self/sched")); err != nil {
		never(rankagent.NotSupported, "the kernel has no /proc/PID/sched", table.RankMigrations)
	}
	if _, err := os.Stat(at("self/io")); err != nil {
		never(rankagent.NotSupported, "the kernel does not count I/O by process",
			table.RankReadBytes, table.RankWriteBytes, table.RankReadCallBytes, table.RankWriteCallBytes, table.RankReadCalls, table.RankWriteCalls)
	}
	if len(t.nodes) == 0 {
		never(rankagent.NotFound, "no NUMA nodes in "+t.opts.SysRoot, table.RankNUMANode, table.RankAffinityNodes, table.RankGPUNode)
	}
	t.wide = append(t.wide, t.groups.never()...)
}

// Sources returns the tracker as the agent's source.
func (t *Tracker) Sources() []rankagent.Source { return []rankagent.Source{t} }

// Name implements rankagent.Source.
func (t *Tracker) Name() string { return "rank" }

// Interval implements rankagent.Source.
func (t *Tracker) Interval() time.Duration { return interval }

// Close implements rankagent.Source.
func (t *Tracker) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for pid, p := range t.procs {
		t.forget(p)
		delete(t.procs, pid)
	}
	t.scan.close()
	return nil
}

// Read implements rankagent.Source: it looks for processes that came and went,
// and appends a row for each that is there.
func (t *Tracker) Read(out rankagent.Out) error {
	t.tick++
	for _, g := range t.wide {
		out.Absent(table.Rank, table.Rank.Columns[g.column].Name, "", g.reason, g.detail)
	}
	listed, err := t.scan.list(t.opts.ProcRoot)
	if err != nil {
		out.Absent(table.Rank, "", "", reason(err), err.Error())
		return nil
	}
	t.find(out, listed)
	t.shareLooks()
	rows := 0
	t.skipped = false
	for _, p := range t.inOrder() {
		if t.readProcess(out, p) {
			rows++
		}
	}
	if rows > 0 {
		t.sayLimits(out)
	}
	if t.skipped {
		for _, c := range inTurn {
			out.Absent(table.Rank, table.Rank.Columns[c].Name, "", rankagent.NotSampled, "processes other than ranks are read in turn, one in "+strconv.Itoa(turns))
		}
	}
	switch {
	case t.waiting > 0:
		out.Absent(table.Rank, "", "", rankagent.NotSampled, "more new processes than are looked at in one second")
	case rows == 0:
		out.Absent(table.Rank, "", "", rankagent.NotFound, "no process of the job can be seen")
	default:
		out.Present(table.Rank, "", "")
	}
	return nil
}

// sayLimits says that a limit is not set, once and not for each process; where
// some have it and others do not, null speaks for itself.
func (t *Tracker) sayLimits(out rankagent.Out) {
	quota, limit := false, false
	for _, p := range t.procs {
		if c := p.cgroup; c != nil {
			quota = quota || len(c.quotas) > 0
			limit = limit || c.limit != absent
		}
	}
	say := func(set bool, detail string, columns ...int) {
		for _, c := range columns {
			switch name := table.Rank.Columns[c].Name; {
			case t.never(c):
			case set:
				out.Present(table.Rank, name, "")
			default:
				out.Absent(table.Rank, name, "", rankagent.NotFound, detail)
			}
		}
	}
	say(quota, "no CPU quota is set", table.RankPeriods, table.RankThrottled, table.RankThrottledTime)
	say(limit, "no memory limit is set", table.RankMemoryLimit)
}

// RankOf returns the rank that a process is, or works for: -1 where it has
// none or is none of the job's.
func (t *Tracker) RankOf(pid int) int {
	if t == nil { // there is no /proc
		return -1
	}
	t.mu.Lock()
	p := t.procs[pid]
	t.mu.Unlock()
	if p != nil {
		return p.shownRank()
	}
	// Younger than the last look: its environment says as much.
	if uid, err := owner(t.opts.ProcRoot, pid); err != nil || uid != t.opts.UID {
		return -1
	}
	env, err := readEnviron(t.opts.ProcRoot, pid)
	if err != nil || len(env) == 0 || !t.says(environ(env)) {
		return -1
	}
	if id := Identify(environ(env).get); id.Known() {
		return id.Rank
	}
	// Without a rank of its own it works for whoever started it.
	for range 8 {
		s, err := readStat(t.opts.ProcRoot, pid, make([]byte, 4096))
		if err != nil {
			return -1
		}
		pid = int(s.ppid)
		t.mu.Lock()
		p := t.procs[pid]
		t.mu.Unlock()
		if p != nil {
			return p.shownRank()
		}
	}
	return -1
}
