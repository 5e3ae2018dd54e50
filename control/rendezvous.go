package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"gopkg.in/yaml.v3"

	"github.com/gswarm/gswarm/rundir"
)

// Publish writes where the head is into the run directory, readable by the
// user alone. It holds the run's key and is removed at the end.
func Publish(d rundir.Dir, e Endpoint) error {
	b, err := yaml.Marshal(e)
	if err != nil {
		return fmt.Errorf("publishing the head's address: %w", err)
	}
	return rundir.WriteFile(d.HeadFile(), b)
}

// Unpublish removes what Publish wrote.
func Unpublish(d rundir.Dir) error {
	if err := os.Remove(d.HeadFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the head's address: %w", err)
	}
	return nil
}

// Published reads what Publish wrote; fs.ErrNotExist says that no head has
// published itself yet, or that this node cannot see it yet.
func Published(d rundir.Dir) (Endpoint, error) {
	var e Endpoint
	b, err := os.ReadFile(d.HeadFile())
	if err != nil {
		return e, fmt.Errorf("reading the head's address: %w", err)
	}
	if err := yaml.Unmarshal(b, &e); err != nil {
		return e, fmt.Errorf("reading the head's address: %w", err)
	}
	if e.RunID == "" || e.Port == 0 {
		return e, errors.New("reading the head's address: the file says nothing")
	}
	return e, nil
}
