package rank

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// rankVars are the variables that hold a process's world rank, the innermost
// launcher's first: torchrun under srun has both.
var rankVars = []struct{ name, with string }{
	{"RANK", "TORCHELASTIC_RUN_ID"},
	{"RANK", "WORLD_SIZE"},
	{"OMPI_COMM_WORLD_RANK", ""},
	{"PMIX_RANK", ""},
	{"PMI_RANK", ""},
	{"SLURM_PROCID", ""},
}

// Of returns the world rank of a process of the job, which is known by a
// variable and its value, or -1: it is another's, does not say or cannot be
// read. Without such a variable every process is taken for the job's.
func Of(procRoot string, pid int, job [2]string) int {
	env, err := os.ReadFile(filepath.Join(procRoot, strconv.Itoa(pid), "environ"))
	if err != nil {
		return -1
	}
	values := map[string]string{}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if name, value, ok := bytes.Cut(kv, []byte{'='}); ok {
			values[string(name)] = string(value)
		}
	}
	if job[0] != "" && values[job[0]] != job[1] {
		return -1
	}
	for _, v := range rankVars {
		if v.with != "" && values[v.with] == "" {
			continue
		}
		if n, err := strconv.Atoi(values[v.name]); err == nil && n >= 0 {
			return n
		}
	}
	return -1
}
