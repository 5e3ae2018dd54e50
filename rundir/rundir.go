// Package rundir knows where things lie in a run directory and what its YAML
// files say: run.yaml of the run, meta.yaml of each node, timeline/meta.yaml
// of the merge. It names runs, creates and finds their directories and tells
// whether a run still goes on.
//
// Every rank's wrap links it, so it imports nothing heavy: no Arrow, no NVML.
package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// Format is the version of the run directory and of the YAML files in it.
const Format = 1

// Prefix begins the name of every run directory that gswarm names itself.
const Prefix = "gswarm-"

// Modes of what is created in a run directory: command lines and host names
// are nobody else's business.
const (
	DirMode  fs.FileMode = 0o700
	FileMode fs.FileMode = 0o600
)

// Dir is the path of a run directory.
type Dir string

// Join returns a path below the run directory.
func (d Dir) Join(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// RunFile is the path of run.yaml.
func (d Dir) RunFile() string { return d.Join("run.yaml") }

// HeadFile is the path of the file through which the agents of a step find
// their head. It exists only while the run goes on and holds the run's key.
func (d Dir) HeadFile() string { return d.Join(".head.yaml") }

// Nodes is the directory that holds one directory for each node.
func (d Dir) Nodes() string { return d.Join("nodes") }

// Node is the directory of a node; name must have been through CleanName.
func (d Dir) Node(name string) string { return d.Join("nodes", name) }

// MetaFile is the path of a node's meta.yaml.
func (d Dir) MetaFile(node string) string { return d.Join("nodes", node, "meta.yaml") }

// Spool is the path of a node's n-th spool.
func (d Dir) Spool(node string, n int) string {
	return d.Join("nodes", node, fmt.Sprintf("spool-%d", n))
}

// Timeline is the directory of the merge's output.
func (d Dir) Timeline() string { return d.Join("timeline") }

// NodeNames lists the node directories, sorted. A run without any gives none.
func (d Dir) NodeNames() ([]string, error) {
	entries, err := os.ReadDir(d.Nodes())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the run's nodes: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// CleanName makes a host name safe as the name of a directory: letters,
// digits, '.', '_' and '-' stay, all else becomes '_', and it never is empty
// or begins with a dot.
func CleanName(s string) string {
	const limit = 200 // below NAME_MAX with room for suffixes
	if len(s) > limit {
		s = s[:limit]
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '_'
	}, s)
	if s == "" || s[0] == '.' {
		s = "_" + s
	}
	return s
}

// PartName is the name of the directory of a node's further sampler, which sees
// GPUs that the first does not. CleanName leaves no plus sign, so NodeOf finds
// the node again.
func PartName(node, part string) string { return node + "+" + CleanName(part) }

// NodeOf returns the node that a directory below nodes belongs to.
func NodeOf(dir string) string {
	node, _, _ := strings.Cut(dir, "+")
	return node
}

// ErrNoRun says that no run was found where one was looked for.
var ErrNoRun = errors.New("no gswarm run here")

// Find returns the run directory that a command's argument means: arg itself,
// or the newest run below the working directory where arg is empty.
func Find(arg string) (Dir, error) {
	if arg != "" {
		st, err := os.Stat(arg)
		if err != nil {
			return "", fmt.Errorf("opening the run directory: %w", err)
		}
		if !st.IsDir() {
			return "", fmt.Errorf("%s is a file; give the run's directory, %s…", arg, Prefix)
		}
		d := Dir(filepath.Clean(arg))
		if !d.looksLikeRun() {
			return "", fmt.Errorf("%s holds neither run.yaml nor nodes/: %w", arg, ErrNoRun)
		}
		return d, nil
	}
	matches, err := filepath.Glob(Prefix + "*")
	if err != nil {
		return "", fmt.Errorf("looking for runs: %w", err)
	}
	type found struct {
		dir  Dir
		when time.Time
	}
	var runs []found
	for _, m := range matches {
		d := Dir(m)
		if !d.looksLikeRun() {
			continue
		}
		when := time.Time{}
		if r, err := ReadRun(d); err == nil {
			when = r.Begin
		}
		runs = append(runs, found{d, when})
	}
	if len(runs) == 0 {
		return "", fmt.Errorf("%w: name its directory, or go to where %s… lies", ErrNoRun, Prefix)
	}
	sort.SliceStable(runs, func(i, j int) bool { return runs[i].when.After(runs[j].when) })
	return runs[0].dir, nil
}

func (d Dir) looksLikeRun() bool {
	for _, p := range []string{d.RunFile(), d.Nodes()} {
		if _, err := os.Stat(p); err == nil {
			return true
		}
	}
	return false
}
