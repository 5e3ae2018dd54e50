package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// OtherRunError says that a directory asked for holds another run.
type OtherRunError struct {
	Dir      Dir
	Identity string
}

func (e *OtherRunError) Error() string {
	return fmt.Sprintf("%s holds another run (%s): name another directory with -o, or remove it", e.Dir, e.Identity)
}

// CreateFree makes the first directory of base/name, base/name-2, … that does
// not exist yet. mkdir decides, so two that ask at once get two directories.
func CreateFree(base, name string) (Dir, error) {
	const limit = 10000
	for i := 1; i <= limit; i++ {
		path := filepath.Join(base, name)
		if i > 1 {
			path = fmt.Sprintf("%s-%d", path, i)
		}
		err := os.Mkdir(path, DirMode)
		if err == nil {
			return Dir(path), nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("creating the run directory: %w", err)
		}
	}
	return "", fmt.Errorf("creating the run directory: %s and %d more like it exist", filepath.Join(base, name), limit-1)
}

// CreateAt makes the directory that the user asked for, or takes it if it is
// there and empty of runs; one that holds another run is refused. Identity is
// compared only where join is true: all ranks of a step come to the same
// directory.
func CreateAt(path, identity string, join bool) (Dir, error) {
	d := Dir(filepath.Clean(path))
	if err := os.MkdirAll(path, DirMode); err != nil {
		return "", fmt.Errorf("creating the run directory: %w", err)
	}
	r, err := ReadRun(d)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if names, _ := d.NodeNames(); len(names) > 0 && !join {
			return "", &OtherRunError{Dir: d, Identity: "without a run.yaml"}
		}
		return d, nil
	case err != nil:
		return "", fmt.Errorf("looking into the run directory: %w", err)
	case join && r.Identity == identity:
		return d, nil
	}
	return "", &OtherRunError{Dir: d, Identity: r.Identity}
}

// Identity is what the environment says about which run this is.
type Identity struct {
	// JobID is the scheduler's job, empty without a scheduler. For an
	// array it is the array's id and Task the task's.
	JobID, Task string
	// Het is the component of a heterogeneous job, empty for other jobs.
	Het string
	// Restart is how often the job was requeued, "" or "0" for never.
	Restart string
	// Step is what tells a step within the job: the scheduler's step, or
	// the MPI launcher's own job id.
	Step string
	// Stamp stands in for the job where there is no scheduler.
	Stamp string
}

// Name returns the run directory's name.
func (id Identity) Name() string {
	var b strings.Builder
	b.WriteString(Prefix)
	if id.JobID == "" {
		b.WriteString(CleanName(id.Stamp))
	} else {
		b.WriteString(CleanName(id.JobID))
	}
	if id.Task != "" {
		b.WriteString("_" + CleanName(id.Task))
	}
	if id.Het != "" {
		b.WriteString("+" + CleanName(id.Het))
	}
	if id.Restart != "" && id.Restart != "0" {
		b.WriteString(".r" + CleanName(id.Restart))
	}
	if id.Step != "" {
		b.WriteString("." + CleanName(id.Step))
	}
	return b.String()
}
