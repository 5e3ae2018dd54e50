package rundir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/gswarm/gswarm/clock"
)

// Run is run.yaml: what ran, where, and how it ended.
type Run struct {
	Format  int    `yaml:"format"`
	Version string `yaml:"version"`
	// ID tells this run from every other; Identity says what it was
	// derived from ("slurm 12345.0", "local").
	ID       string `yaml:"id"`
	Identity string `yaml:"identity"`
	// Command is the wrapped command, secret-looking values replaced.
	Command   []string  `yaml:"command,flow"`
	WorkDir   string    `yaml:"workdir"`
	Scheduler Scheduler `yaml:"scheduler"`
	// Nodes are the nodes that the run was to sample.
	Nodes []string  `yaml:"nodes,flow"`
	Begin time.Time `yaml:"begin"`
	// End is absent while the run goes on, and for ever if gswarm was
	// killed.
	End       *time.Time    `yaml:"end,omitempty"`
	Interval  time.Duration `yaml:"interval"`
	Tile      time.Duration `yaml:"tile"`
	Reference *Reference    `yaml:"reference,omitempty"`
	// Exit is how the wrapped command ended, where gswarm stood in front.
	Exit *Exit `yaml:"exit,omitempty"`
	// Ranks is how each rank ended, where gswarm stood behind the launcher.
	Ranks []Rank `yaml:"ranks,omitempty"`
	// Config is the settings in force.
	Config map[string]string `yaml:"config,omitempty"`
	// Notes are what gswarm said on stderr.
	Notes []string `yaml:"notes,omitempty"`
}

// Scheduler is what the scheduler called the job.
type Scheduler struct {
	// Kind is "slurm" or "none".
	Kind string `yaml:"kind"`
	// Position is where wrap stood: "front", "behind" or "alone".
	Position string `yaml:"position"`
	Launcher string `yaml:"launcher,omitempty"`
	JobID    string `yaml:"job_id,omitempty"`
	ArrayJob string `yaml:"array_job_id,omitempty"`
	Task     string `yaml:"array_task_id,omitempty"`
	HetGroup string `yaml:"het_component,omitempty"`
	Restarts string `yaml:"restart_count,omitempty"`
	Step     string `yaml:"step,omitempty"`
	Cluster  string `yaml:"cluster,omitempty"`
	Part     string `yaml:"partition,omitempty"`
	// EndTime is when the scheduler will end the job at the latest, in seconds
	// since the Unix epoch, 0 where it does not say.
	EndTime int64 `yaml:"end_time,omitempty"`
}

// Reference names the clock that the timeline is relative to.
type Reference struct {
	Node   string       `yaml:"node"`
	Anchor clock.Anchor `yaml:"anchor"`
}

// Exit is how a process ended: by Code, or by Signal where it is not empty.
type Exit struct {
	Code   int    `yaml:"code" json:"code"`
	Signal string `yaml:"signal,omitempty" json:"signal,omitempty"`
}

// Rank is one rank that gswarm was the parent of.
type Rank struct {
	Rank      int    `yaml:"rank" json:"rank"`
	LocalRank int    `yaml:"local_rank" json:"local_rank"`
	Node      string `yaml:"node" json:"node"`
	PID       int    `yaml:"pid" json:"pid"`
	Exit      *Exit  `yaml:"exit,omitempty" json:"exit,omitempty"`
}

// NodeMeta is a node's meta.yaml.
type NodeMeta struct {
	Format  int    `yaml:"format"`
	Version string `yaml:"version"`
	RunID   string `yaml:"run_id"`
	Node    string `yaml:"node"`
	Host    string `yaml:"host"`
	// Machine tells this node from another that claims the same name.
	Machine string `yaml:"machine"`
	// Part tells apart samplers of one node that see different GPUs.
	Part string `yaml:"part,omitempty"`
	// Begin is when the first agent of the node began; BeginRaw the same
	// instant on its raw clock.
	Begin    time.Time      `yaml:"begin"`
	BeginRaw clock.NodeTime `yaml:"begin_raw_ns"`
	Interval time.Duration  `yaml:"interval"`
	// Sync is how often the spool is synced: as asked for, or by what the
	// filesystem is. SyncPhase is this node's place within it, which spreads
	// the nodes' syncs.
	Sync      time.Duration `yaml:"sync"`
	SyncPhase time.Duration `yaml:"sync_phase"`
	FSType    string        `yaml:"filesystem,omitempty"`
	// Shared says that other hosts may have the filesystem too.
	Shared bool `yaml:"filesystem_shared"`
	// GPUCounts says how many GPUs the run saw, the job was given and the
	// node has; -1 where that is not known.
	GPUCounts GPUCounts `yaml:"gpu_counts"`
	// Driver says why there are no GPU readings, where there are none.
	Driver string `yaml:"gpu_driver"`
	// GPUs, Plan and Facts are the sources' own accounts.
	GPUs  any               `yaml:"gpus,omitempty"`
	Plan  any               `yaml:"plan,omitempty"`
	Facts any               `yaml:"facts,omitempty"`
	Env   map[string]string `yaml:"environment,omitempty"`
	Ranks []Rank            `yaml:"ranks,omitempty"`
	// Processes are the ranks' processes as they were found on the node,
	// whoever started them.
	Processes any `yaml:"rank_processes,omitempty"`
	// End is how the node's agent ended, absent while it runs and for ever
	// if it was killed.
	End *NodeEnd `yaml:"end,omitempty"`
}

// GPUCounts tells the three ways apart in which GPUs can be counted.
type GPUCounts struct {
	Visible int `yaml:"visible"`
	Job     int `yaml:"job"`
	Node    int `yaml:"node"`
}

// NodeEnd is the agent's last word.
type NodeEnd struct {
	Time   time.Time `yaml:"time"`
	Reason string    `yaml:"reason"`
}

// ReadRun reads run.yaml. A missing file is fs.ErrNotExist.
func ReadRun(d Dir) (*Run, error) {
	var r Run
	if err := readYAML(d.RunFile(), &r); err != nil {
		return nil, err
	}
	return &r, checkFormat(d.RunFile(), r.Format)
}

// WriteRun replaces run.yaml.
func WriteRun(d Dir, r *Run) error {
	r.Format = Format
	return writeYAML(d.RunFile(), r)
}

// ReadNodeMeta reads a node's meta.yaml. A missing file is fs.ErrNotExist.
func ReadNodeMeta(d Dir, node string) (*NodeMeta, error) {
	var m NodeMeta
	if err := readYAML(d.MetaFile(node), &m); err != nil {
		return nil, err
	}
	return &m, checkFormat(d.MetaFile(node), m.Format)
}

// WriteNodeMeta replaces a node's meta.yaml.
func WriteNodeMeta(d Dir, node string, m *NodeMeta) error {
	m.Format = Format
	return writeYAML(d.MetaFile(node), m)
}

// NewerError says that a file was written by a later gswarm.
type NewerError struct {
	Path      string
	Have, Max int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s has format %d, this gswarm reads up to %d: use the gswarm that wrote it, or a newer one", e.Path, e.Have, e.Max)
}

func checkFormat(path string, format int) error {
	if format > Format {
		return &NewerError{Path: path, Have: format, Max: Format}
	}
	if format < 1 {
		return fmt.Errorf("%s has no format number: it is not one of gswarm's, or it is damaged", path)
	}
	return nil
}

// readYAML is lenient about unknown keys: a newer gswarm of the same format may
// have added some.
func readYAML(path string, to any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", filepath.Base(path), err)
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return fmt.Errorf("%s is empty: the program that wrote it was killed", path)
	}
	if err := yaml.Unmarshal(b, to); err != nil {
		return fmt.Errorf("%s is damaged: %w", path, err)
	}
	return nil
}

func writeYAML(path string, from any) error {
	b, err := yaml.Marshal(from)
	if err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	return WriteFile(path, b)
}

// WriteFile replaces a file so that a reader sees the old content or the new,
// whatever happens in between: written beside it, synced, renamed.
func WriteFile(path string, content []byte) (err error) {
	// A name of its own keeps two writers apart, on whatever nodes; the
	// prefix keeps readers away.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	tmp := f.Name()
	defer func() {
		if err != nil {
			os.Remove(tmp)
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	_, err = f.Write(content)
	if serr := f.Sync(); err == nil && !ignorable(serr) {
		err = serr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// ignorable reports whether a failed fsync only means that the filesystem has
// none (some network and FUSE filesystems answer so).
func ignorable(err error) bool {
	return err == nil || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrInvalid)
}
