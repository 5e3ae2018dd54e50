package launcher

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/control"
	"github.com/gswarm/gswarm/rundir"
)

const (
	// headStart is how long the agents' step waits behind the start of the
	// job's own, so that the job's keeps the step id that it has without
	// gswarm. Where Slurm takes longer, the ids are shifted by one.
	headStart = 100 * time.Millisecond
	// firstReading is how long the end of a job shorter than that waits for
	// the agents to have taken one reading.
	firstReading = 1500 * time.Millisecond
	// lastFlushes is how long the end of a job waits for all agents.
	lastFlushes = 5 * time.Second
	// stepEnd is how long the agents' step may take to end after that.
	stepEnd = 2 * time.Second
)

// front runs a launcher with one agent on every node of the job.
func (w *wrap) front() (Ending, error) {
	h, err := w.openHead()
	if err != nil {
		if err := w.lost(err); err != nil {
			return Ending{}, err
		}
	}
	j, err := startJob(w.opts.Command, w.jobEnv())
	if err != nil {
		if h != nil {
			h.abandon()
		}
		return Ending{}, err
	}
	if h == nil {
		ending := <-j.ended
		w.say("")
		return ending, nil
	}
	go h.startAgents()
	ending := <-j.ended
	go func() {
		<-j.hurry
		h.ctl.Hurry()
	}()
	nodes := h.end(ending, j.hurry)
	w.say(w.closing(nodes, time.Since(w.begin)))
	return ending, nil
}

// head is wrap's part as head of its agents.
type head struct {
	w     *wrap
	run   rundir.Run
	ctl   *control.Head
	clock *clockServer
	end0  chan struct{} // closed when the job has ended

	mu   sync.Mutex
	said []*tail
	done chan struct{} // closed when every agents' step has ended
}

// openHead makes the run directory and opens the head's ports.
func (w *wrap) openHead() (*head, error) {
	var err error
	if w.opts.Out != "" {
		w.dir, err = rundir.CreateAt(w.opts.Out, w.here.String(), false)
	} else {
		w.dir, err = rundir.CreateFree("", w.here.Identity.Name())
	}
	if err != nil {
		w.dir = ""
		return nil, err
	}
	abs, err := filepath.Abs(string(w.dir))
	if err != nil {
		return nil, fmt.Errorf("finding the run directory's path: %w", err)
	}
	w.abs = rundir.Dir(abs)
	source := clock.System{}
	bracket, err := source.Bracket()
	if err != nil {
		return nil, err
	}
	key := control.NewKey()
	h := &head{w: w, run: w.run(), end0: make(chan struct{}), done: make(chan struct{})}
	w.runID = string(w.abs) + " " + w.here.String() + " " + w.begin.UTC().Format(time.RFC3339Nano)
	h.run.ID = w.runID
	h.run.Reference = &rundir.Reference{Node: control.HeadName, Anchor: clock.AnchorOf(bracket)}
	if err := h.listen(key, source); err != nil {
		if w.opts.Strict {
			os.Remove(string(w.abs))
			return nil, err
		}
		// Each node samples for itself and looks at run.yaml for the end.
		h.run.Reference = nil
		w.note("the nodes' clocks are not tied together: %v", err)
	}
	if err := rundir.WriteRun(w.abs, &h.run); err != nil {
		h.abandon()
		return nil, err
	}
	return h, nil
}

// listen opens the head's ports.
func (h *head) listen(key control.Key, source clock.Source) error {
	var err error
	if h.clock, err = serveClock(h.w.opts.Ports, key, h.run.ID, source); err != nil {
		return err
	}
	h.ctl, err = control.NewHead(h.w.opts.Ports, key, h.run.ID, *h.run.Reference, h.clock.port())
	if err != nil {
		h.clock.Close()
		h.clock = nil
	}
	return err
}

// close closes the head's ports.
func (h *head) close() {
	if h.ctl != nil {
		h.ctl.Close()
		h.clock.Close()
	}
}

// abandon closes what openHead opened, for a job that never began.
func (h *head) abandon() {
	h.close()
	// Only what this process has just made, and only if nobody added to it.
	os.Remove(h.w.abs.RunFile())
	os.Remove(string(h.w.abs))
}

// startAgents starts one agent on each node, as a step of the job's.
func (h *head) startAgents() {
	defer close(h.done)
	select {
	case <-time.After(headStart):
	case <-h.end0: // even a job that short leaves one reading
	}
	endpoint := control.Endpoint{RunID: h.run.ID} // no address: no head
	if h.ctl != nil {
		var err error
		if endpoint, err = h.ctl.Endpoint(); err != nil {
			h.w.note("no node is sampled: %v", err)
			return
		}
	}
	cfg := h.w.agentConfig(h.run)
	cfg.Head = &endpoint
	text, err := json.Marshal(cfg)
	if err != nil {
		h.w.note("no node is sampled: %v", err)
		return
	}
	var steps sync.WaitGroup
	for _, plan := range PlanAgents(h.w.here, h.w.opts.Agent, h.w.p.Env) {
		steps.Add(1)
		go func() {
			defer steps.Done()
			h.runStep(plan, text)
		}()
	}
	steps.Wait()
}

// runStep runs one step of agents to its end. A step that ends before any agent
// was heard of is tried by its plain form, which sees fewer GPUs at worst.
func (h *head) runStep(plan AgentStep, config []byte) {
	for _, argv := range [][]string{plan.Argv, plan.Plain} {
		if argv == nil || h.heard() > 0 {
			return
		}
		said, err := h.startStep(argv, plan.Env, config)
		if err != nil {
			h.w.note("no node is sampled: starting the agents: %v", err)
			return
		}
		io.Copy(said, said.pipe) //nolint:errcheck // judged by which agents said goodbye
		said.pipe.Close()
	}
}

// heard returns how many nodes have been heard of: by the head, or where there
// is none by what they left.
func (h *head) heard() int {
	if h.ctl != nil {
		return len(h.ctl.Agents())
	}
	names, err := h.w.abs.NodeNames()
	if err != nil {
		return 0
	}
	return len(names)
}

// startStep starts one srun of the agents, as nobody's child: srun answers
// SIGTERM by killing its tasks at once, and Slurm may send it to every
// descendant of the batch script when the job's grace period begins. What it
// prints comes through a pipe, whose end is the step's end.
func (h *head) startStep(argv, env []string, config []byte) (*tail, error) {
	r, wr, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	in, err := pipeOf(config)
	if err != nil {
		r.Close()
		wr.Close()
		return nil, err
	}
	cmd := exec.Command(h.w.opts.Agent, append([]string{"agent", "--detach", "--"}, argv...)...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, wr, wr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Run()
	in.Close()
	wr.Close()
	said := &tail{pipe: r}
	h.mu.Lock()
	h.said = append(h.said, said)
	h.mu.Unlock()
	if err != nil {
		io.Copy(said, r) //nolint:errcheck // only what it said is wanted
		r.Close()
		return nil, fmt.Errorf("%w: %s", err, said.last())
	}
	return said, nil
}

// pipeOf returns a file from which b can be read. A memory file, unlike a pipe,
// takes any length at once, and unlike a file on disk it has no name.
func pipeOf(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("gswarm-agent", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("handing over the agents' configuration: %w", err)
	}
	f := os.NewFile(uintptr(fd), "gswarm-agent")
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, fmt.Errorf("handing over the agents' configuration: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		f.Close()
		return nil, fmt.Errorf("handing over the agents' configuration: %w", err)
	}
	return f, nil
}

// end stops the agents, writes how the run ended and returns how many nodes
// were sampled. Whoever closes hurry wants it at once.
func (h *head) end(e Ending, hurry <-chan struct{}) int {
	close(h.end0)
	want := len(h.w.here.Nodes)
	if h.ctl == nil {
		return h.endAlone(e)
	}
	if time.Since(h.w.begin) < 2*firstReading {
		h.ctl.WaitReady(want, h.patience(firstReading))
	}
	h.ctl.Stop("job ended", lastFlushes)
	exit := e.Exit()
	end := time.Now().UTC()
	h.run.Exit, h.run.End = &exit, &end
	sampled := h.judge()
	h.run.Notes = h.w.said()
	if err := rundir.WriteRun(h.w.abs, &h.run); err != nil {
		h.w.note("the run's end is not recorded: %v", err)
	}
	h.close()
	select {
	case <-h.done:
	case <-hurry:
	case <-time.After(stepEnd):
		// Not killed: srun would kill agents that still write.
	}
	return sampled
}

// endAlone is end where no agent can reach the head: run.yaml tells them.
func (h *head) endAlone(e Ending) int {
	exit := e.Exit()
	end := time.Now().UTC()
	h.run.Exit, h.run.End, h.run.Notes = &exit, &end, h.w.said()
	if err := rundir.WriteRun(h.w.abs, &h.run); err != nil {
		h.w.note("the run's end is not recorded: %v", err)
	}
	select {
	case <-h.done:
	case <-time.After(lastFlushes):
	}
	return h.heard()
}

// patience returns d, or nothing where no step was or can be started.
func (h *head) patience(d time.Duration) time.Duration {
	select {
	case <-h.done:
		return 0
	default:
		return d
	}
}

// judge notes which nodes have not been sampled to the end, and why as far as
// it is known.
func (h *head) judge() int {
	agents := map[string]control.Agent{}
	for _, a := range h.ctl.Agents() {
		agents[a.Hello.Node] = a
		if a.Bye != nil && a.Bye.Note != "" {
			h.w.note("%s", a.Bye.Note)
		}
	}
	var missing, cut []string
	for _, n := range h.w.here.Nodes {
		a, ok := agents[n]
		switch {
		case !ok:
			missing = append(missing, n)
		case a.Bye == nil:
			cut = append(cut, n)
		}
	}
	if len(missing) > 0 {
		h.w.note("no agent on %s%s", brief(missing), h.because())
	}
	if len(cut) > 0 {
		h.w.note("the agent on %s ended early; what it had written is kept", brief(cut))
	}
	return len(agents)
}

// because returns what the agents' step had to say.
func (h *head) because() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.said {
		if line := s.last(); line != "" {
			return ": " + line
		}
	}
	return ""
}

// brief lists some of many nodes.
func brief(nodes []string) string {
	const most = 4
	if len(nodes) <= most {
		return strings.Join(nodes, ", ")
	}
	return fmt.Sprintf("%s and %d more nodes", strings.Join(nodes[:most], ", "), len(nodes)-most)
}

// AgentStep is one command that starts agents.
type AgentStep struct {
	Argv []string
	// Plain is the command to try where Slurm refuses Argv; may be nil.
	Plain []string
	Env   []string
}

// PlanAgents returns the steps that put one agent on each node of the job: one,
// or one for each component of a heterogeneous job.
func PlanAgents(s Surroundings, agent string, env []string) []AgentStep {
	var groups []string
	for i := range s.HetGroups {
		groups = append(groups, strconv.Itoa(i))
	}
	if len(groups) == 0 {
		groups = []string{""}
	}
	var steps []AgentStep
	for _, g := range groups {
		nodes := len(s.Nodes)
		if g != "" {
			nodes = len(hosts(lookup(env, "SLURM_JOB_NODELIST_HET_GROUP_"+g)))
		}
		n := strconv.Itoa(max(nodes, 1))
		argv := []string{
			"srun", "--overlap", "--export=ALL", "--nodes=" + n, "--ntasks=" + n, "--ntasks-per-node=1",
			"--gpu-bind=none", "--cpu-bind=none", "--mem=0", "--mpi=none",
			"--wait=0", "--kill-on-bad-exit=0", "--input=all", "--quiet", "--job-name=gswarm",
		}
		if g != "" {
			argv = append(argv, "--het-group="+g)
		}
		step := AgentStep{Argv: append(slices.Clone(argv), agent, "agent"), Env: agentStepEnv(env)}
		// By itself the step of a job with --gpus or --gpus-per-task is shown
		// one GPU of each node. Slurm refuses a number that some node does
		// not have.
		if gpus := lookup(env, "SLURM_GPUS_ON_NODE"); gpus != "" {
			step.Plain = step.Argv
			step.Argv = append(append(argv, "--gres=gpu:"+gpus), agent, "agent")
		}
		steps = append(steps, step)
	}
	return steps
}

// agentStepEnv is the environment of the srun that starts the agents. The job's
// own settings for srun must not shape this step, so every input variable goes
// but those that name the job.
func agentStepEnv(env []string) []string {
	keep := map[string]bool{
		"SLURM_JOB_ID": true, "SLURM_JOBID": true, "SLURM_CONF": true,
		"SLURM_CLUSTER_NAME": true, "SLURM_CONF_SERVER": true,
	}
	kept := make([]string, 0, len(env))
	for _, kv := range agentEnv(env) {
		name, _, _ := strings.Cut(kv, "=")
		input := strings.HasPrefix(name, "SLURM_") || strings.HasPrefix(name, "SRUN_") || strings.HasPrefix(name, "SBATCH_")
		if input && !keep[name] {
			continue
		}
		kept = append(kept, kv)
	}
	return kept
}

func lookup(env []string, name string) string { return Process{Env: env}.Getenv(name) }

// tail keeps the end of what a program prints.
type tail struct {
	pipe *os.File // where it comes from
	mu   sync.Mutex
	buf  []byte
}

// Write keeps the last kilobytes and never fails.
func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - most; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return len(p), nil
}

// last returns the last line that is not empty.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.buf)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
