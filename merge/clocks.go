package merge

import (
	"context"
	"fmt"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rundir"
)

// Clocks is what a run's shards say of its clocks.
type Clocks struct {
	Dir       string                `json:"dir"`
	Reference ReferenceMeta         `json:"reference"`
	Nodes     []clock.Summary       `json:"nodes"`
	Loops     []clock.Contradiction `json:"loops,omitempty"`
	Missing   []Missing             `json:"missing,omitempty"`
	nodes     []*node
}

// Point is a node's clock at an instant.
type Point struct {
	// Time is reference time, OffsetNS the reference's raw clock minus the
	// node's, right to within BoundNS.
	Time              clock.ClusterTime
	OffsetNS, BoundNS int64
}

// FitClocks fits the clocks of the run in dir from its shards. It writes
// nothing, and takes what is there of a run that goes on.
func FitClocks(_ context.Context, dir string) (*Clocks, error) {
	m := &merger{dir: rundir.Dir(dir), opts: Options{Partial: true, now: time.Now}} //nolint:forbidigo // how long ago a run was heard of, not a stamp
	defer m.close()
	if err := m.readRun(); err != nil {
		return nil, err
	}
	if err := m.scan(); err != nil {
		return nil, err
	}
	if err := m.fit(); err != nil {
		return nil, fmt.Errorf("fitting the clocks: %w", err)
	}
	m.sortMissing()
	c := &Clocks{
		Dir: dir, Loops: m.result.Loops(), nodes: m.nodes, Missing: m.missing,
		Reference: ReferenceMeta{Node: m.result.Reference, Anchor: m.result.Anchor, Chosen: m.chosen},
	}
	for i, n := range m.nodes {
		// Samplers of one machine share its clock.
		if n.rows > 0 && (i == 0 || m.nodes[i-1].machine != n.machine) {
			c.Nodes = append(c.Nodes, n.model.Summary())
		}
	}
	return c, nil
}

// Curve returns a node's clock at n evenly spaced instants of its rows, without
// those at which nothing is known.
func (c *Clocks) Curve(name string, n int) []Point {
	var out []Point
	for _, o := range c.nodes {
		if o.machine != name || n < 2 || len(out) > 0 {
			continue
		}
		for i := range n {
			t := o.first + (o.last-o.first)/clock.NodeTime(n-1)*clock.NodeTime(i)
			if off, bound, ok := o.model.Offset(t); ok {
				ct, _, _ := o.model.At(t)
				out = append(out, Point{Time: ct, OffsetNS: off, BoundNS: bound})
			}
		}
	}
	return out
}
