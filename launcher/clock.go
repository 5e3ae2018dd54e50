package launcher

import (
	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/probe"
	"github.com/gswarm/gswarm/control"
)

// clockServer answers the agents' clock exchanges with this process's clock.
type clockServer struct{ r *probe.Responder }

func serveClock(ports control.Ports, key control.Key, runID string, source clock.Source) (*clockServer, error) {
	r, err := probe.Listen(probe.ResponderConfig{
		Key: key[:], Run: runID, Node: control.HeadName, Source: source,
		Ports: [2]int{int(ports.Lo), int(ports.Hi)}, PerSecond: control.AnswersPerSecond,
	})
	if err != nil {
		return nil, err
	}
	return &clockServer{r}, nil
}

func (c *clockServer) port() int { return c.r.Port() }

// Close stops answering.
func (c *clockServer) Close() { c.r.Close() }
