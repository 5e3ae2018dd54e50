// Package launcher is what stands in the job's line of commands: it finds out
// where it is (in front of srun, behind it, alone), sees to it that each node
// gets one agent, runs the wrapped command as if it were not there, and ends as
// the command ended.
//
// It decides from the environment alone (Detect, Plan), so what it will do can
// be tested without a cluster. Nothing that goes wrong with the sampling keeps
// the job from running; it is said on stderr once, when the job is over.
package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/control"
	"github.com/gswarm/gswarm/redact"
	"github.com/gswarm/gswarm/rundir"
)

// runVar is in the environment of a wrapped job and holds the scheduler's job
// and the run's directory: a wrap inside it starts no sampler. It is no secret.
//
// The job stands there because sbatch and salloc hand the environment on: a job
// that is submitted from within a wrapped one is a run of its own.
const runVar = "GSWARM_X_RUN"

// GPUNodes is the pattern of the device nodes of NVIDIA's driver.
const GPUNodes = "/dev/nvidia[0-9]*"

// Options are the settings of a wrap.
type Options struct {
	// Command is the wrapped command and its arguments.
	Command []string
	// Out is the run directory asked for, "" to choose one.
	Out      string
	Interval time.Duration
	Tile     time.Duration
	// Sync is the time between syncs of the spools, 0 to choose by
	// filesystem.
	Sync  time.Duration
	Ports control.Ports
	// Quiet leaves out the closing line; what was lost is still said.
	Quiet bool
	// Strict makes a failure of the sampling fail the job before it starts.
	Strict bool
	// Agent is the program to start as agent.
	Agent   string
	Version string
	// Notes are said at the end together with what was lost.
	Notes []string
	// Config is what run.yaml records of the settings.
	Config map[string]string
	// GPUNodes is the pattern of the GPUs' device nodes.
	GPUNodes string
	// GPU is what the agents are told of the GPUs.
	GPU control.GPUConfig
	// NVML, SkewOffset and SkewPPM are handed to the agents, for tests.
	NVML       string
	SkewOffset time.Duration
	SkewPPM    float64
}

// Process is what a wrap knows of the process it runs in.
type Process struct {
	Env    []string
	Host   string
	Now    time.Time
	Stderr io.Writer
}

// Getenv looks a variable up.
func (p Process) Getenv(name string) string {
	prefix := name + "="
	for _, kv := range p.Env {
		if strings.HasPrefix(kv, prefix) {
			return kv[len(prefix):]
		}
	}
	return ""
}

// Nested returns the run that this process is part of already, "" for none.
func (p Process) Nested() string {
	job, dir, _ := strings.Cut(p.Getenv(runVar), ":")
	if job != p.job() {
		return ""
	}
	return dir
}

// job is the scheduler's job, the first of a heterogeneous one.
func (p Process) job() string { return first(p.Getenv("SLURM_HET_JOB_ID"), p.Getenv("SLURM_JOB_ID")) }

// Wrap runs the command and samples around it. It returns how the command
// ended; the caller ends likewise by EndAs. An error means that the command was
// not run.
func Wrap(opts Options, p Process) (Ending, error) {
	here := Detect(p.Getenv, p.Host, lookAround("/proc", os.Getpid()), p.Now)
	w := &wrap{opts: opts, p: p, here: here, begin: p.Now, notes: opts.Notes}
	if here.Position == Front {
		return w.front()
	}
	return w.rank()
}

// wrap is one run of Wrap.
type wrap struct {
	opts  Options
	p     Process
	here  Surroundings
	begin time.Time
	dir   rundir.Dir // as the user is told it
	abs   rundir.Dir // as agents in other working directories need it
	runID string     // tells this run from every other; "" where none is recorded

	mu    sync.Mutex
	notes []string
	told  string // what the node's agent wants said
}

// note keeps a line for the end: nothing is printed into the job's output while
// it runs.
func (w *wrap) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	if !slices.Contains(w.notes, line) {
		w.notes = append(w.notes, line)
	}
}

// said returns the notes so far.
func (w *wrap) said() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.notes)
}

// tell keeps what the node's agent wants said.
func (w *wrap) tell(note string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = note
}

// lost is a note of something that was not recorded. Under --strict it is an
// error instead, as long as the job has not begun.
func (w *wrap) lost(err error) error {
	if w.opts.Strict {
		return fmt.Errorf("%w (--strict: the command was not started)", err)
	}
	w.note("nothing is recorded: %v", err)
	return nil
}

// say prints the notes and the closing line.
func (w *wrap) say(closing string) {
	var b strings.Builder
	// What every rank of a node finds out is said once on it; what its agent
	// has to say, the agent has told one rank only.
	if w.here.Position != Behind || w.here.LocalRank == 0 {
		for _, n := range w.said() {
			fmt.Fprintf(&b, "gswarm: %s\n", n)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told != "" {
		fmt.Fprintf(&b, "gswarm: %s\n", w.told)
	}
	if closing != "" && !w.opts.Quiet {
		fmt.Fprintf(&b, "gswarm: %s\n", closing)
	}
	if b.Len() > 0 && writable(w.p.Stderr) {
		io.WriteString(w.p.Stderr, b.String()) //nolint:errcheck // stderr may be closed
	}
}

// writable reports whether something can be written now. The job's stderr may be
// a pipe that nobody empties, or a terminal that is held: that must not keep wrap
// when the job has ended.
func writable(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return true
	}
	// Not by Fd, which would make the description blocking for all who
	// share it.
	raw, err := f.SyscallConn()
	if err != nil {
		return true // closed: the write says so
	}
	const patience = time.Second
	n := 0
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		for again := true; again; {
			var err error
			n, err = unix.Poll(fds, int(patience.Milliseconds()))
			again = errors.Is(err, unix.EINTR)
		}
	})
	return err != nil || n > 0
}

// closing is the line that names the dataset and what to do with it.
func (w *wrap) closing(nodes int, elapsed time.Duration) string {
	where := "1 node"
	if nodes != 1 {
		where = strconv.Itoa(nodes) + " nodes"
	}
	return fmt.Sprintf("%s sampled for %s; next: gswarm merge %s", where, round(elapsed), w.dir)
}

func round(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < time.Minute:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// run is run.yaml as it stands at the start.
func (w *wrap) run() rundir.Run {
	cwd, err := os.Getwd()
	if err != nil {
		cwd = ""
	}
	return rundir.Run{
		Version: w.opts.Version, Identity: w.here.String(),
		Command: redact.Args(w.opts.Command), WorkDir: cwd,
		Scheduler: w.here.Scheduler, Nodes: w.here.Nodes,
		Begin: w.begin.UTC(), Interval: w.opts.Interval, Tile: w.opts.Tile, Config: w.opts.Config,
	}
}

// agentConfig is what all agents of the run are told alike.
func (w *wrap) agentConfig(run rundir.Run) control.AgentConfig {
	return control.AgentConfig{
		Dir: w.abs, Run: run, Node: w.here.Node, Ports: w.opts.Ports, JobVar: w.here.Job,
		Interval: w.opts.Interval, Tile: w.opts.Tile, Sync: w.opts.Sync,
		GPUNodes: w.opts.GPUNodes, GPU: w.opts.GPU, NVML: w.opts.NVML, SkewOffset: w.opts.SkewOffset, SkewPPM: w.opts.SkewPPM,
	}
}

// jobEnv is the job's environment: wrap's own, what a wrap inside it sees, and
// where the job's processes may send marks. What an outer job had of these is
// left out: of two variables of one name the first would count.
func (w *wrap) jobEnv() []string {
	env := make([]string, 0, len(w.p.Env)+2)
	for _, kv := range w.p.Env {
		if !strings.HasPrefix(kv, runVar+"=") && !strings.HasPrefix(kv, control.MarkVar+"=") {
			env = append(env, kv)
		}
	}
	env = append(env, runVar+"="+w.p.job()+":"+string(w.abs))
	if w.runID != "" {
		env = append(env, control.MarkVar+"="+control.MarkName(w.runID))
	}
	return env
}
