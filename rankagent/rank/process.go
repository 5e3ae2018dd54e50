package rank

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// process is one of the job's processes.
type process struct {
	pid, ppid int
	key       string // the pid as the absence table has it
	ino       uint64
	start     int64 // ticks since boot
	stack     int64 // where its stack begins: another after each exec
	comm      string
	seen      int64 // the reading it was last listed in
	again     bool  // who it is has to be read anew
	hidden    bool  // it is there and must not be looked into
	unread    bool  // it has no rows, which has been said

	env    environ // emptied once it has been said
	argv   []string
	cgroup *cgroup
	step   string // Slurm's JOB.STEP by the daemon above it, "none"
	parent *process

	own         bool // gswarm's: it has no rows
	id          Identity
	role        Role
	rank, local int

	visible   []string // GPUs that the environment names
	minors    []int    // GPUs that the devices cgroup lets it open
	gpu       int
	gpuSource string
	gpuNode   int

	mask     cpuSet // of the last reading
	maskN    int
	maskText string
	maskNode string

	files   [numFiles]int // descriptors; closed, or none
	threads threads
	gaps    map[int]bool // columns that are absent for this process
}

// The files that are read of each process in every reading.
const (
	fileStat = iota
	fileSchedstat
	fileSched
	fileIO
	numFiles
)

var fileNames = [numFiles]string{"stat", "schedstat", "sched", "io"}

// closed is the descriptor of a file that is not kept open.
const closed = -1

// shown is what a row and an event say of who a process is.
type shown struct {
	role        Role
	rank, local int
	comm        string
}

func (p *process) shown() shown { return shown{p.role, p.rank, p.local, p.comm} }

// shownRank is the rank that a process is or works for, -1 for none.
func (p *process) shownRank() int {
	if p.own {
		return p.id.Rank
	}
	return p.rank
}

// read reads one of a process's files. Files stay open from reading to reading
// as long as few are: opening costs the kernel more than reading.
func (t *Tracker) read(p *process, f int) ([]byte, error) {
	if p.files[f] != closed {
		b, err := pread(p.files[f], t.buf, fileNames[f])
		if err == nil {
			return b, nil
		}
		t.shut(p, f)
		return nil, err
	}
	path := t.opts.ProcRoot + "/" + p.key + "/" + fileNames[f]
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
	t.open++
	p.files[f] = fd
	b, err := pread(fd, t.buf, path)
	if err != nil {
		t.shut(p, f)
	}
	return b, err
}

func (t *Tracker) shut(p *process, f int) {
	if p.files[f] != closed {
		unix.Close(p.files[f])
		p.files[f] = closed
		t.open--
	}
}

// forget lets go of what is held of a process.
func (t *Tracker) forget(p *process) {
	for f := range p.files {
		t.shut(p, f)
	}
	t.restThreads(p)
	p.env, p.argv, p.cgroup, p.threads = "", nil, nil, threads{}
}

// many is the number of processes from which on the dearest file is read of
// every rank in each reading, and of the others in turn.
const many, turns = 128, 5

// inTurn are the columns that come from it and from the threads' own files.
var inTurn = []int{
	table.RankVoluntary, table.RankInvoluntary, table.RankMigrations,
	table.RankThreadsRunDelay, table.RankThreadsVoluntary, table.RankThreadsInvoluntary,
}

// readProcess appends a process's row. It returns false for one that has none:
// gswarm's own, and one that has just ended.
func (t *Tracker) readProcess(out rankagent.Out, p *process) bool {
	begin := out.Now()
	text, err := t.read(p, fileStat)
	if errors.Is(err, fs.ErrPermission) {
		out.Absent(table.Rank, "", p.key, rankagent.NoPermission, err.Error())
		p.unread = true
		return false
	}
	if err != nil {
		return false // it ended; the next listing says so
	}
	if p.unread {
		out.Present(table.Rank, "", p.key)
		p.unread = false
	}
	s, ok := parseStat(text)
	if !ok || s.start != p.start {
		return false
	}
	if s.stack != p.stack || string(s.name) != p.comm && clean(string(s.name), 64) != p.comm {
		p.again = true
	}
	p.ppid = int(s.ppid)
	if p.own {
		return false
	}
	delay, delayErr := int64(absent), error(nil)
	if text, delayErr = t.read(p, fileSchedstat); delayErr == nil {
		_, rest := field(text)
		f, _ := field(rest)
		delay = number(f)
	}
	var io ioCounts
	var ioErr error
	if text, ioErr = t.read(p, fileIO); ioErr == nil {
		io = parseIO(text)
	}
	sw := switches{absent, absent, absent}
	var swErr error
	turn := len(t.procs) <= many || p.role == RoleRank || (int64(p.pid)+t.tick)%turns == 0
	if turn {
		sw, swErr = t.switchesOf(p)
	}
	var sum counts
	var sumErr error
	if turn {
		if sumErr = cmp.Or(delayErr, swErr); sumErr == nil || t.never(table.RankRunDelay) && swErr == nil {
			sum, sumErr = t.sumThreads(p, counts{delay, sw.voluntary, sw.involuntary}, s.threads)
		}
	}
	for _, err := range []error{delayErr, ioErr, swErr, sumErr} {
		if errors.Is(err, syscall.ESRCH) {
			return false // it ended meanwhile
		}
	}
	t.affinity(p)
	group := p.cgroup.read(t.tick)
	end := out.Now()

	r := row{t: t, p: p, out: out, Row: out.Batch(table.Rank).Append()}
	r.Read(int64(begin), int64(end))
	r.identity()
	r.String(table.RankState, string(s.state))
	r.set(table.RankThreads, s.threads, nil)
	r.set(table.RankCPUUser, times(s.user, nsPerTick), nil)
	r.set(table.RankCPUSystem, times(s.system, nsPerTick), nil)
	r.set(table.RankRunDelay, delay, delayErr)
	if turn {
		r.set(table.RankVoluntary, sw.voluntary, swErr)
		r.set(table.RankInvoluntary, sw.involuntary, swErr)
		r.set(table.RankMigrations, sw.migrations, swErr)
		r.threadSums(sum, sumErr)
	} else {
		t.skipped = true
	}
	r.set(table.RankFaultsMinor, s.minor, nil)
	r.set(table.RankFaultsMajor, s.major, nil)
	r.set(table.RankRSS, times(s.rss, t.page), nil)
	r.set(table.RankReadBytes, io.read, ioErr)
	r.set(table.RankWriteBytes, io.write, ioErr)
	r.set(table.RankReadCallBytes, io.readCall, ioErr)
	r.set(table.RankWriteCallBytes, io.writeCall, ioErr)
	r.set(table.RankReadCalls, io.readCalls, ioErr)
	r.set(table.RankWriteCalls, io.writeCalls, ioErr)
	r.set(table.RankIODelay, times(s.blockDelay, nsPerTick), nil)
	r.set(table.RankCPULast, s.cpu, nil)
	r.set(table.RankNUMANode, nodeOf(t.nodes, s.cpu), nil)
	r.placement()
	r.group(group)
	return true
}

// switches are what the scheduler counts of a main thread.
type switches struct{ voluntary, involuntary, migrations int64 }

// switchesOf reads them from sched, which has all three, or where the kernel
// lacks that, from status.
func (t *Tracker) switchesOf(p *process) (switches, error) {
	if !t.never(table.RankMigrations) {
		text, err := t.read(p, fileSched)
		if err != nil {
			return switches{absent, absent, absent}, err
		}
		s := switches{
			voluntary:   lookup(text, "nr_voluntary_switches"),
			involuntary: lookup(text, "nr_involuntary_switches"),
			migrations:  lookup(text, "se.nr_migrations"),
		}
		if s.voluntary != absent {
			return s, nil
		}
	}
	text, err := readWhole(t.opts.ProcRoot+"/"+p.key+"/status", t.buf)
	return switches{
		voluntary:   lookup(text, "voluntary_ctxt_switches"),
		involuntary: lookup(text, "nonvoluntary_ctxt_switches"),
		migrations:  absent,
	}, err
}

// ioCounts is what the table takes from /proc/PID/io.
type ioCounts struct{ readCall, writeCall, readCalls, writeCalls, read, write int64 }

func parseIO(text []byte) ioCounts {
	return ioCounts{
		readCall: lookup(text, "rchar"), writeCall: lookup(text, "wchar"),
		readCalls: lookup(text, "syscr"), writeCalls: lookup(text, "syscw"),
		read: lookup(text, "read_bytes"), write: lookup(text, "write_bytes"),
	}
}

// affinity reads where a process may run, and puts it into words when that has
// changed.
func (t *Tracker) affinity(p *process) {
	var mask cpuSet
	if t.live {
		mask = affinityOf(p.pid, t.mask[:])
	} else if b, err := readWhole(t.opts.ProcRoot+"/"+p.key+"/status", t.buf); err == nil {
		mask, _ = parseList(value(b, "Cpus_allowed_list"))
	}
	if p.maskN > 0 && slices.Equal(mask, p.mask) {
		return
	}
	p.mask = slices.Clone(mask)
	p.maskN, p.maskText, p.maskNode = mask.count(), mask.text(), nodesOf(t.nodes, mask).text()
}

// affinityOf asks the kernel where a process's main thread may run; nil where
// it does not say. What it returns lies in mask.
func affinityOf(pid int, mask []uint64) cpuSet {
	n, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETAFFINITY, uintptr(pid), uintptr(8*len(mask)), uintptr(unsafe.Pointer(&mask[0])))
	if errno != 0 {
		return nil
	}
	words := int(n) / 8
	for words > 0 && mask[words-1] == 0 {
		words--
	}
	return cpuSet(mask[:words])
}

// row fills one row and says of what is missing why it is.
type row struct {
	table.Row
	t   *Tracker
	p   *process
	out rankagent.Out
}

func (r row) identity() {
	p := r.p
	r.Int(table.RankPID, int64(p.pid))
	r.String(table.RankRole, string(p.role))
	r.String(table.RankName, p.comm)
	if p.rank >= 0 {
		r.Int(table.RankRank, int64(p.rank))
	}
	if p.local >= 0 {
		r.Int(table.RankLocal, int64(p.local))
	}
	r.t.findGPU(p)
	if p.gpuSource != "" {
		r.Int(table.RankGPU, int64(p.gpu))
		r.String(table.RankGPUSource, p.gpuSource)
		if p.gpuNode >= 0 {
			r.Int(table.RankGPUNode, int64(p.gpuNode))
		}
	}
}

func (r row) placement() {
	if r.p.maskN == 0 {
		r.gap(table.RankAffinity, rankagent.SourceError, "sched_getaffinity did not answer")
		return
	}
	r.there(table.RankAffinity)
	r.Int(table.RankAffinityCount, int64(r.p.maskN))
	r.String(table.RankAffinity, r.p.maskText)
	if r.p.maskNode != "" {
		r.String(table.RankAffinityNodes, r.p.maskNode)
	}
}

// set stores a value or says why there is none.
func (r row) set(col int, n int64, err error) {
	c := &table.Rank.Columns[col]
	switch {
	case r.t.never(col):
	case err != nil:
		r.gap(col, reason(err), err.Error())
	case n == absent, c.Type == table.Int32 && n > 1<<31-1:
		r.gap(col, rankagent.InvalidValue, "no such number in "+c.Source)
	default:
		r.Int(col, n)
		r.there(col)
	}
}

func (r row) gap(col int, why rankagent.Reason, detail string) {
	if r.p.gaps == nil {
		r.p.gaps = map[int]bool{}
	}
	r.p.gaps[col] = true
	if r.p.hidden && why == rankagent.NotFound {
		why = rankagent.NoPermission // what must not be seen is not found
	}
	r.out.Absent(table.Rank, table.Rank.Columns[col].Name, r.p.key, why, detail)
}

func (r row) there(col int) {
	if r.p.gaps[col] {
		delete(r.p.gaps, col)
		r.out.Present(table.Rank, table.Rank.Columns[col].Name, r.p.key)
	}
}

// never reports whether this machine has no value for a column, which has been
// said.
func (t *Tracker) never(col int) bool {
	for i := range t.wide {
		if t.wide[i].column == col {
			return true
		}
	}
	return false
}
