package rankagent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gswarm/gswarm/rundir"
)

// claimPatience is how long a directory without meta.yaml is given: its owner
// writes it right after mkdir.
const claimPatience = 2 * time.Second

// claimNode makes the node's directory, or takes the one that an earlier agent
// of this very machine made. Where another machine claims the same name, the
// later one gets a name of its own and clash is true.
func claimNode(d rundir.Dir, node, machine string) (name string, clash bool, err error) {
	if err := os.MkdirAll(d.Nodes(), rundir.DirMode); err != nil {
		return "", false, fmt.Errorf("creating the nodes' directory: %w", err)
	}
	for i := 1; i < 1000; i++ {
		name = node
		if i > 1 {
			name = fmt.Sprintf("%s~%d", node, i)
		}
		err := os.Mkdir(d.Node(name), rundir.DirMode)
		if err == nil {
			return name, i > 1, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", false, fmt.Errorf("creating the node's directory: %w", err)
		}
		owner, err := ownerOf(d, name)
		if err != nil {
			return "", false, err
		}
		if owner == machine || owner == "" {
			return name, i > 1, nil
		}
	}
	return "", false, fmt.Errorf("a thousand machines claim to be node %s", node)
}

// ownerOf returns the machine that a node's directory belongs to, "" if its
// maker died before it said.
func ownerOf(d rundir.Dir, name string) (string, error) {
	for waited := time.Duration(0); ; waited += 50 * time.Millisecond {
		m, err := rundir.ReadNodeMeta(d, name)
		if err == nil {
			return m.Machine, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if waited >= claimPatience {
			return "", nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}
