package rank

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/rankagent"
)

const (
	// maxNew bounds how many processes one reading gets to know; the rest
	// come in the next. A job that forks without end must not make the
	// agent do likewise.
	maxNew = 1000
	// maxProcesses bounds how many have rows.
	maxProcesses = 4096
	// maxEnviron bounds what is read of an environment, maxCommand of a
	// command line.
	maxEnviron, maxCommand = 2 << 20, 16 << 10
)

// entry is a process as the directory /proc lists it. The inode number tells a
// process from a later one of the same id: it is made anew for each.
type entry struct {
	pid int
	ino uint64
}

// scanner lists /proc.
type scanner struct {
	fd      int
	opened  bool
	buf     []byte
	entries []entry
}

// list returns the processes that there are, valid until the next call. It
// costs one system call for some hundred processes and opens none of them.
func (s *scanner) list(root string) ([]entry, error) {
	if !s.opened {
		fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: root, Err: err}
		}
		s.fd, s.opened, s.buf = fd, true, make([]byte, 64<<10)
	}
	var err error
	if s.entries, err = readEntries(s.fd, s.buf, s.entries[:0]); err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: root, Err: err}
	}
	return s.entries, nil
}

// readEntries reads the numbered entries of an open directory from where it
// stands.
func readEntries(fd int, buf []byte, to []entry) ([]entry, error) {
	if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
		return nil, err
	}
	for {
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			return to, nil
		}
		to = appendEntries(to, buf[:n])
	}
}

// appendEntries picks the processes out of the records that getdents64 gave.
func appendEntries(to []entry, b []byte) []entry {
	const name = 19 // where a record's name begins
	for len(b) > name {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size <= name || size > len(b) {
			return to
		}
		text := b[name:size]
		for i, c := range text {
			if c == 0 {
				text = text[:i]
				break
			}
		}
		if pid := number(text); pid != absent && pid <= 1<<30 {
			to = append(to, entry{int(pid), binary.NativeEndian.Uint64(b)})
		}
		b = b[size:]
	}
	return to
}

func (s *scanner) close() {
	if s.opened {
		unix.Close(s.fd)
		s.opened = false
	}
}

// stranger is a process that is none of the job's, as far as is known. It is
// looked at again after 1, 2, 4, ... seconds: between fork and exec a process
// of the job's still has the environment and the user of whoever starts it.
type stranger struct {
	ino  uint64
	next int64 // the reading in which to look again
	wait int64
	seen int64
}

// longestWait is the longest time between two looks at a stranger, in readings.
const longestWait = 64

// find compares what is there with what is known.
func (t *Tracker) find(out rankagent.Out, listed []entry) {
	var fresh []*process
	t.waiting = 0
	for _, e := range listed {
		if p := t.procs[e.pid]; p != nil && (p.ino == e.ino || t.same(p)) {
			p.ino, p.seen = e.ino, t.tick
			continue
		}
		s, known := t.foreign[e.pid]
		if known && s.ino == e.ino && s.next > t.tick {
			s.seen = t.tick
			t.foreign[e.pid] = s
			continue
		}
		if len(fresh) >= maxNew {
			t.waiting++
			continue
		}
		if !known || s.ino != e.ino {
			s = stranger{ino: e.ino, wait: 1}
		}
		s.seen, s.next, s.wait = t.tick, t.tick+s.wait, min(2*s.wait, longestWait)
		t.foreign[e.pid] = s
		if p := t.candidate(e); p != nil {
			fresh = append(fresh, p)
		}
	}
	t.gone(out)
	// Parents before children: who belongs to the job, and with which
	// rank, is handed down.
	slices.SortFunc(fresh, func(a, b *process) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.pid, b.pid))
	})
	for _, p := range t.inOrder() {
		if p.again {
			t.lookAgain(out, p)
		}
	}
	for _, p := range fresh {
		t.admit(out, p)
	}
	t.started = true
}

// gone takes leave of processes that have ended.
func (t *Tracker) gone(out rankagent.Out) {
	for pid, s := range t.foreign {
		if s.seen != t.tick {
			delete(t.foreign, pid)
		}
	}
	for pid, p := range t.procs {
		if p.hidden = p.seen != t.tick && t.lives(p); p.hidden {
			p.seen = t.tick
		}
		if p.seen != t.tick {
			t.sayExit(out, p)
			t.forget(p)
			t.mu.Lock()
			delete(t.procs, pid)
			t.mu.Unlock()
		}
	}
}

// lives reports whether a process that is not listed is there all the same:
// where /proc is mounted with hidepid=2, one that must not be looked into, since
// it has made itself undumpable, is not listed. A file that was opened before
// still tells.
func (t *Tracker) lives(p *process) bool {
	if !t.live || p.files[fileStat] == closed {
		return false
	}
	b, err := pread(p.files[fileStat], t.buf, fileNames[fileStat])
	if err != nil {
		return false
	}
	s, ok := parseStat(b)
	return ok && s.start == p.start && s.state != 'Z' && s.state != 'X'
}

// same reports whether a process whose inode was made anew is still the one
// that is known: the kernel drops inodes when memory is short.
func (t *Tracker) same(p *process) bool {
	s, err := t.statOf(p.pid)
	return err == nil && s.start == p.start
}

// candidate reads who a process is, nil where it is another user's, gswarm's
// own, or gone.
func (t *Tracker) candidate(e entry) *process {
	uid, err := owner(t.opts.ProcRoot, e.pid)
	if err != nil || uid != t.opts.UID || e.pid == os.Getpid() {
		return nil
	}
	p := &process{pid: e.pid, ino: e.ino, key: strconv.Itoa(e.pid), seen: t.tick}
	for i := range p.files {
		p.files[i] = closed
	}
	if !t.identify(p) {
		return nil
	}
	return p
}

// identify reads who a process is: at first, and again after an exec.
func (t *Tracker) identify(p *process) bool {
	s, err := t.statOf(p.pid)
	if err != nil || s.state == 'Z' || s.start == absent {
		return false
	}
	p.start, p.stack, p.ppid = s.start, s.stack, int(s.ppid)
	p.comm = clean(string(s.name), 64)
	env, err := readEnviron(t.opts.ProcRoot, p.pid)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return false
	}
	p.env = environ(env)
	p.argv = readCommand(t.opts.ProcRoot, p.pid)
	p.cgroup = t.groups.of(t.opts.ProcRoot, p.pid)
	return true
}

// admit takes a process in if it is the job's.
func (t *Tracker) admit(out rankagent.Out, p *process) {
	p.parent = t.procs[p.ppid]
	if !t.belongs(p) {
		return
	}
	if len(t.procs) >= maxProcesses {
		t.waiting++
		return
	}
	delete(t.foreign, p.pid)
	// A process may be caught between fork and exec: look once more.
	p.again = true
	t.place(p)
	t.mu.Lock()
	t.procs[p.pid] = p
	t.mu.Unlock()
	if p.own {
		return
	}
	t.sayStart(out, p, "process_start")
}

// belongs reports whether a process is the job's.
func (t *Tracker) belongs(p *process) bool {
	if _, agent := p.env.lookup(agentMark); agent {
		return false
	}
	// Slurm's daemons are root's; where the job is root's too, they are in
	// its cgroup and none of its processes.
	if len(p.argv) > 0 && strings.HasPrefix(p.argv[0], "slurmstepd") {
		return false
	}
	if run, wrapped := runOf(p.env); wrapped && t.opts.Run != "" {
		return run == t.opts.Run // else it is another run's of the same job
	}
	if t.says(p.env) {
		return true
	}
	if job, _ := p.cgroup.slurmStep(); t.opts.Job.Name == "SLURM_JOB_ID" && job != "" && job == t.opts.Job.Value {
		return true
	}
	return p.parent != nil && !p.parent.own
}

// says reports whether an environment is that of a process of the job.
func (t *Tracker) says(env environ) bool {
	if run, wrapped := runOf(env); wrapped && t.opts.Run != "" {
		return run == t.opts.Run
	}
	return t.opts.Job.Name != "" && env.get(t.opts.Job.Name) == t.opts.Job.Value
}

// runOf returns the run that an environment names, behind the job's id and a
// colon.
func runOf(env environ) (dir string, wrapped bool) {
	v, wrapped := env.lookup(runVar)
	_, dir, _ = strings.Cut(v, ":")
	return dir, wrapped
}

// place decides a process's role, rank and GPU.
func (t *Tracker) place(p *process) {
	p.own = own(p.argv)
	p.id = identify(p.env.get, t.isStep(p))
	if !p.id.Known() && len(p.env) == 0 && p.parent != nil {
		p.id = p.parent.id // it cannot be read, or was emptied
	}
	parent := p.parent
	for parent != nil && parent.own {
		parent = parent.parent
	}
	settle(p, parent, t.opts.Alone)
	p.visible = visibleGPUs(p.env)
	p.minors = p.cgroup.gpuMinors()
	t.findGPU(p)
}

// isStep reports whether Slurm's variables of a process speak of the step that
// it is in. A job that was submitted from within another inherits the other's:
// the cgroup or the daemon above the process knows better.
func (t *Tracker) isStep(p *process) bool {
	if p.env.get("SLURM_PROCID") == "" {
		return true // there is nothing to be wrong about
	}
	job, step := p.cgroup.slurmStep()
	if job == "" {
		if p.parent != nil {
			p.step = p.parent.step
		}
		if p.step == "" {
			job, step = t.stepDaemon(p.ppid)
			if p.step = "none"; job != "" {
				p.step = job + "." + step
			}
		}
		job, step, _ = strings.Cut(p.step, ".")
	} else {
		p.step = job + "." + step
	}
	if step == "" {
		return true // nobody knows better than the environment
	}
	if _, err := strconv.ParseUint(step, 10, 64); err != nil {
		return false // batch, extern, interactive
	}
	return job == p.env.get("SLURM_JOB_ID") && step == cmp.Or(p.env.get("SLURM_STEP_ID"), p.env.get("SLURM_STEPID"))
}

// stepDaemon looks for Slurm's step daemon above a process; its command line,
// which everybody may read, names job and step.
func (t *Tracker) stepDaemon(pid int) (job, step string) {
	for range 32 {
		if pid <= 1 {
			return "", ""
		}
		if argv := readCommand(t.opts.ProcRoot, pid); len(argv) > 0 {
			if rest, ok := strings.CutPrefix(argv[0], "slurmstepd: ["); ok {
				job, step, _ = strings.Cut(strings.TrimSuffix(strings.TrimSpace(rest), "]"), ".")
				return job, step
			}
		}
		s, err := t.statOf(pid)
		if err != nil {
			return "", ""
		}
		pid = int(s.ppid)
	}
	return "", ""
}

// lookAgain finds out who a process is that is not what it was: it has called
// exec, or renamed itself.
func (t *Tracker) lookAgain(out rankagent.Out, p *process) {
	p.again = false
	was, wasOwn := p.shown(), p.own
	stack := p.stack
	if !t.identify(p) {
		return
	}
	t.place(p)
	if stack != p.stack {
		p.again = true // and what it starts next
	}
	now := p.shown()
	if now == was && p.own == wasOwn {
		p.env = ""
		return
	}
	for _, c := range t.procs {
		c.again = c.again || c.parent == p // what it is handed down has changed
	}
	if p.own {
		return
	}
	kind := "process_change"
	if wasOwn {
		kind = "process_start"
	}
	t.sayStart(out, p, kind)
}

// inOrder returns the processes by id, so that readings are alike.
func (t *Tracker) inOrder() []*process {
	ps := make([]*process, 0, len(t.procs))
	for _, p := range t.procs {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b *process) int { return a.pid - b.pid })
	return ps
}

// Processes lists the processes below procRoot whose environment has
// name=value, less gswarm's own. Processes that end meanwhile or cannot be read
// are passed over.
func Processes(procRoot, name, value string) ([]int, error) {
	var s scanner
	defer s.close()
	listed, err := s.list(procRoot)
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var pids []int
	for _, e := range listed {
		if e.pid == os.Getpid() {
			continue
		}
		env, err := readEnviron(procRoot, e.pid)
		if err != nil || env == "" {
			continue
		}
		_, agent := environ(env).lookup(agentMark)
		if v, ok := environ(env).lookup(name); ok && v == value && !agent {
			pids = append(pids, e.pid)
		}
	}
	return pids, nil
}
