package launcher

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/control"
	"github.com/gswarm/gswarm/rundir"
)

const (
	// lastFlush is how long the end of a rank waits for its node's agent.
	// Where Slurm tracks processes by cgroup, the agent is killed as soon
	// as the last rank of its node is gone.
	lastFlush = 300 * time.Millisecond
	// agentPatience is how long a rank tries to find or start its agent.
	agentPatience = 10 * time.Second
)

// rank runs the command as one rank of a job, or as the only process of one:
// the sampling is done by the node's agent, which this process starts if none
// of its neighbours does.
func (w *wrap) rank() (Ending, error) {
	if err := w.rankDir(); err != nil {
		if err := w.lost(err); err != nil {
			return Ending{}, err
		}
	}
	w.adviseForm()
	j, err := startJob(w.opts.Command, w.jobEnv())
	if err != nil {
		if w.dir != "" {
			os.Remove(string(w.abs)) // goes only if nobody has put anything there
		}
		return Ending{}, err
	}
	var m *membership
	if w.dir != "" {
		m = w.join(j.pid)
	}
	ending := <-j.ended
	nodes := 0
	if m != nil {
		nodes = m.leave(ending, j.hurry)
	}
	closing := ""
	if w.dir != "" && w.here.Rank == 0 && nodes > 0 {
		closing = w.closing(max(nodes, len(w.here.Nodes)), time.Since(w.begin))
	}
	w.say(closing)
	return ending, nil
}

// rankDir finds the directory that all ranks of the step share, or makes one
// for a process that stands alone.
func (w *wrap) rankDir() error {
	behind := w.here.Position == Behind
	if behind && w.opts.Out == "" && w.here.Ambiguous != "" {
		return fmt.Errorf("%s: name a directory that all nodes share with -o", w.here.Ambiguous)
	}
	var err error
	switch {
	case w.opts.Out != "":
		w.dir, err = rundir.CreateAt(w.opts.Out, w.here.String(), behind)
	case behind:
		w.dir, err = rundir.CreateAt(w.here.Identity.Name(), w.here.String(), true)
	default:
		w.dir, err = rundir.CreateFree("", w.here.Identity.Name())
	}
	if err != nil {
		w.dir = ""
		return err
	}
	abs, err := filepath.Abs(string(w.dir))
	if err != nil {
		return fmt.Errorf("finding the run directory's path: %w", err)
	}
	// The agent may be in another working directory; the user reads the
	// short form.
	w.abs = rundir.Dir(abs)
	// All ranks of a step derive the same id; a process alone has a
	// directory that no other run shares.
	w.runID = string(w.abs) + " " + w.here.String()
	if w.here.Position == Alone {
		w.runID += " " + w.begin.UTC().Format(time.RFC3339Nano)
	}
	return nil
}

// adviseForm notes the form that works where wrap stands in front of a launcher
// of other nodes that it cannot follow.
func (w *wrap) adviseForm() {
	if w.here.Position != Alone {
		return
	}
	if form := followable(w.opts.Command); form != "" {
		w.note("only this node is sampled; to sample every node: %s", form)
	}
}

// followable returns the form of the command that works, where the command
// starts processes on other nodes by itself, else "".
func followable(command []string) string {
	base := filepath.Base(command[0])
	switch base {
	case "srun": // without an allocation, or wrap would stand in front of it
		return "srun [its options] gswarm wrap -- PROGRAM"
	case "salloc":
		return "salloc [its options] gswarm wrap -- COMMAND"
	case "sbatch":
		return "put gswarm wrap -- before srun in the batch script"
	case "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "mpirun.openmpi", "mpirun.mpich":
		hosts := map[string]bool{
			"-hostfile": true, "--hostfile": true, "-machinefile": true, "--machinefile": true, "-f": true,
			"-host": true, "--host": true, "-H": true, "-hosts": true, "--hosts": true,
		}
		for _, a := range command[1:] {
			name, _, _ := strings.Cut(a, "=")
			if hosts[name] {
				return base + " [its options] gswarm wrap -- PROGRAM"
			}
		}
	case "ssh", "pdsh", "clush", "parallel-ssh", "pssh":
		return base + " HOST gswarm wrap -o DIR -- COMMAND, with a DIR that the nodes share"
	}
	return ""
}

// membership is this rank's tie to its node's agent.
type membership struct {
	w      *wrap
	socket string
	cfg    control.AgentConfig
	join   control.Join
	pid    int

	agent int              // the agent's process id
	part  *membership      // the sampler of GPUs that the node's agent cannot see
	ended chan rundir.Exit // the job's end, for the goroutine that holds the tie
	left  chan int         // its answer: how many nodes took note, as far as is known
}

// join ties this rank to the node's agent, in the background: the job does not
// wait for it.
func (w *wrap) join(pid int) *membership {
	run := w.run()
	run.ID = w.runID
	m := &membership{
		w: w, socket: control.SocketName(run.ID, ""), pid: pid,
		join: control.Join{
			PID: os.Getpid(), Rank: w.here.Rank, LocalRank: w.here.LocalRank,
			Size: w.here.Size, LocalSize: w.here.LocalSize, GPUs: VisibleGPUs(w.opts.GPUNodes),
		},
		ended: make(chan rundir.Exit, 1), left: make(chan int, 1),
	}
	if w.here.Position == Alone {
		m.join.LocalSize = 1
	}
	m.cfg = w.agentConfig(run)
	m.cfg.Dir = w.abs
	m.cfg.SingleNode = w.here.Position == Alone || len(w.here.Nodes) == 1 ||
		w.here.LocalSize > 0 && w.here.LocalSize == w.here.Size
	go m.hold()
	return m
}

// hold keeps the tie until the job ends: it finds the agent, or has one
// started, and does so again should the agent die.
func (m *membership) hold() {
	for {
		c, err := m.connect(agentPatience)
		if err != nil {
			m.w.note("nothing is recorded: %v", err)
			<-m.ended
			m.left <- 0
			return
		}
		c.Send(control.Message{Started: &control.Started{PID: m.pid}}) //nolint:errcheck // a dead agent shows below
		gone := make(chan *control.Flushed, 1)
		go func() {
			for {
				msg, err := c.Receive()
				if err != nil {
					gone <- nil
					return
				}
				if msg.Flushed != nil {
					gone <- msg.Flushed
					return
				}
			}
		}()
		select {
		case exit := <-m.ended:
			c.Send(control.Message{Exited: &control.Exited{Exit: exit}}) //nolint:errcheck // a dead agent shows below
			nodes := 1
			select {
			case f := <-gone:
				if f != nil && f.Note != "" {
					m.w.tell(f.Note)
				}
				if f != nil && f.Last {
					awaitExit(m.agent, agentExit)
				}
				if f != nil {
					nodes = max(nodes, f.Nodes)
				}
			case <-time.After(lastFlush):
			}
			c.Close()
			if part := m.takePart(); part != nil {
				part.ended <- exit
				<-part.left
			}
			m.left <- nodes
			return
		case <-gone:
			// The agent died; its name is free. The next one goes on in
			// the same directory, and the gap is in the data.
			c.Close()
		}
	}
}

// leave tells the agent how the job ended and returns on how many nodes that was
// taken note of. Whoever closes hurry wants it at once.
func (m *membership) leave(e Ending, hurry <-chan struct{}) int {
	m.ended <- e.Exit()
	select {
	case n := <-m.left:
		return n
	case <-hurry:
	case <-time.After(lastFlush + agentStart):
		m.w.note("nothing is recorded: the node's agent did not answer")
	}
	return 0
}

// agentStart is how much longer than the flush the end of a very short job
// waits for an agent that is just starting.
const agentStart = 700 * time.Millisecond

// agentExit is how long a node's last rank waits for the agent, which has said
// that all is on disk, to be gone.
const agentExit = 100 * time.Millisecond

// awaitExit waits for the end of a process that is not our child. Slurm looks at
// a step's cgroup when its last task has ended; where it finds a process it kills
// it and looks again a second later, and srun waits.
func awaitExit(pid int, patience time.Duration) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it is gone, or the kernel is older than 5.3
	}
	defer unix.Close(fd)
	deadline := time.Now().Add(patience)
	for left := patience; left > 0; left = time.Until(deadline) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// connect returns a connection on which the agent has answered, starting an
// agent where none is. Of all ranks of a node the one that wins the election
// starts it; the others wait for it.
func (m *membership) connect(patience time.Duration) (*control.LocalConn, error) {
	var last error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		c, err := m.tryJoin()
		if err == nil {
			return c, nil
		}
		election, eerr := control.Elect(m.socket)
		if errors.Is(eerr, control.ErrTaken) {
			time.Sleep(time.Duration(10+rand.IntN(20)) * time.Millisecond)
			continue
		}
		if eerr != nil {
			return nil, fmt.Errorf("electing the one to start the agent: %w", eerr)
		}
		// Somebody may have won, started it and let go in between.
		if c, err := m.tryJoin(); err == nil {
			election.Close()
			return c, nil
		}
		last = startAgent(m.w.opts.Agent, m.cfg)
		election.Close()
		if last != nil {
			return nil, last
		}
	}
	if last == nil {
		last = errors.New("the node's agent did not answer")
	}
	return nil, last
}

func (m *membership) tryJoin() (*control.LocalConn, error) {
	c, err := control.DialLocal(m.socket)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(2 * time.Second)) //nolint:errcheck // a failed deadline shows in the read
	if err := c.Send(control.Message{Join: &m.join}); err != nil {
		c.Close()
		return nil, err
	}
	msg, err := c.Receive()
	if err == nil && msg.Joined == nil {
		err = errors.New("unexpected answer")
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	c.SetDeadline(time.Time{}) //nolint:errcheck // likewise
	m.agent = msg.Joined.AgentPID
	if !msg.Joined.Covered && m.cfg.Part == "" && m.part == nil {
		m.startPart()
	}
	return c, nil
}

// startPart starts a sampler of its own for GPUs that the node's agent does not
// see: Slurm may show each rank its own.
func (m *membership) startPart() {
	cfg := m.cfg
	cfg.Part = partName(m.join.GPUs)
	// How many of the node's ranks share these GPUs is not known.
	join := m.join
	join.LocalSize = 0
	part := &membership{
		w: m.w, socket: control.SocketName(cfg.Run.ID, cfg.Part), pid: m.pid, cfg: cfg, join: join,
		ended: make(chan rundir.Exit, 1), left: make(chan int, 1),
	}
	m.part = part
	go part.hold()
}

// takePart returns the part once; only hold's goroutine calls it.
func (m *membership) takePart() *membership {
	p := m.part
	m.part = nil
	return p
}

func partName(gpus []int) string {
	var b strings.Builder
	b.WriteString("gpu")
	for _, g := range gpus {
		fmt.Fprintf(&b, "-%d", g)
	}
	return b.String()
}

// startAgent starts the node's agent so that it belongs to nobody: a process of
// a session of its own starts it and ends at once. It returns when the agent
// can be joined, or with what the agent said when it could not start.
func startAgent(program string, cfg control.AgentConfig) error {
	text, err := json.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("starting the node's agent: %w", err)
	}
	r, wr, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting the node's agent: %w", err)
	}
	defer r.Close()
	cmd := exec.Command(program, "agent", "--detach")
	cmd.Stdin = bytes.NewReader(text)
	cmd.Stderr = wr
	cmd.Env = agentEnv(os.Environ())
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	wr.Close()
	if err != nil {
		return fmt.Errorf("starting the node's agent: %w", err)
	}
	// The agent holds the pipe until it can be joined, or has said why not.
	r.SetReadDeadline(time.Now().Add(agentPatience)) //nolint:errcheck // pipes have deadlines
	said, err := bufio.NewReader(io.LimitReader(r, 4096)).ReadString('\n')
	go cmd.Wait() //nolint:errcheck // it is only reaped
	if said = strings.TrimSpace(said); said != "" {
		return fmt.Errorf("the node's agent could not start: %s", said)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("waiting for the node's agent: %w", err)
	}
	return nil
}

// agentEnv is the environment of an agent: what the job's processes have, since
// the agent reads the job's settings there, less what would change gswarm. NVML
// is bound lazily, since drivers differ in what they have.
func agentEnv(env []string) []string {
	kept := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if strings.HasPrefix(kv, runVar+"=") || strings.HasPrefix(kv, control.MarkVar+"=") || strings.HasPrefix(kv, "LD_PRELOAD=") || strings.HasPrefix(kv, "LD_BIND_NOW=") {
			continue
		}
		kept = append(kept, kv)
	}
	return append(kept, agentMark+"=1")
}

// agentMark tells an agent's processes from the job's.
const agentMark = "GSWARM_X_AGENT"

// VisibleGPUs lists the minor numbers of the GPU device nodes that this process
// may open, without asking the driver: a cgroup that denies one answers EPERM.
// The pattern is GPUNodes outside of tests.
func VisibleGPUs(pattern string) []int {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil
	}
	return openable(paths)
}

func openable(paths []string) []int {
	gpus := []int{}
	for _, p := range paths {
		minor, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(p), "nvidia"))
		if err != nil {
			continue
		}
		f, err := os.OpenFile(p, os.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
		if err == nil {
			f.Close()
		}
		// An allowed node without a driver behind it answers otherwise.
		if err == nil || !errors.Is(err, os.ErrPermission) {
			gpus = append(gpus, minor)
		}
	}
	slices.Sort(gpus)
	return gpus
}
