package launcher

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// lookAround reads the Origin of a process.
func lookAround(proc string, pid int) Origin {
	parent, _ := ancestor(proc, pid)
	name := strconv.Itoa(parent)
	if _, begin := ancestor(proc, parent); begin != "" {
		name += "-" + begin
	}
	return Origin{Parent: name, Step: slurmOrigin(proc, pid)}
}

// ancestor returns a process's parent and the time at which the process itself
// began, 0 and "" if it cannot be read.
func ancestor(proc string, pid int) (parent int, begin string) {
	b, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, ""
	}
	// The name in parentheses may hold anything; fields are counted after
	// the last closing one.
	rest := string(b[bytes.LastIndexByte(b, ')')+1:])
	const parentField, beginField = 1, 19 // fields 4 and 22 of proc(5)
	fields := strings.Fields(rest)
	if len(fields) <= beginField {
		return 0, ""
	}
	return number(fields[parentField], 0), fields[beginField]
}

var (
	// stepdTitle is the title that slurmstepd gives itself.
	stepdTitle = regexp.MustCompile(`^slurmstepd: \[([0-9]+(?:\+[0-9]+)?\.[a-z0-9_+]+)\]`)
	// stepCgroup is the part of a cgroup's path that names a step.
	stepCgroup = regexp.MustCompile(`/job_([0-9]+)/step_([a-z0-9_]+)(?:/|$)`)
)

// slurmOrigin returns the step that a process runs in: by the title of its
// nearest slurmstepd, or by its cgroup where the process table is hidden. A
// process that left both behind gets "".
func slurmOrigin(proc string, pid int) string {
	const generations = 256
	for p, i := pid, 0; p > 1 && i < generations; i++ {
		title, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(p), "cmdline"))
		if err != nil {
			break
		}
		if m := stepdTitle.FindSubmatch(title); m != nil {
			return string(m[1])
		}
		p, _ = ancestor(proc, p)
	}
	groups, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return ""
	}
	if m := stepCgroup.FindSubmatch(groups); m != nil {
		return string(m[1]) + "." + string(m[2])
	}
	return ""
}
