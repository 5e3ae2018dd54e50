// Package rank finds the job's processes on a node. It reads /proc only; other
// users' processes are passed over, since their environment cannot be read, and
// nothing of them is kept.
package rank

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// agentMark is in the environment of gswarm's own processes: an agent must not
// wait for itself.
const agentMark = "GSWARM_X_AGENT="

// Processes lists the processes below procRoot whose environment has
// name=value, less gswarm's own. Processes that end meanwhile or cannot be read
// are passed over.
func Processes(procRoot, name, value string) ([]int, error) {
	entries, err := os.ReadDir(procRoot)
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	want := []byte("\x00" + name + "=" + value + "\x00")
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join(procRoot, e.Name(), "environ"))
		if err != nil || len(env) == 0 {
			continue
		}
		env = append([]byte{0}, append(env, 0)...)
		if bytes.Contains(env, want) && !bytes.Contains(env, []byte("\x00"+agentMark)) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
