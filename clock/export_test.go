package clock

import "testing"

// Simulation is an hour of two clocks, for tests outside the package.
type Simulation struct {
	Exchanges              []Exchange
	Brackets, PeerBrackets []Bracket
	Model                  *Model
	Instants               []Instant
}

// Instant is what two clocks show at once.
type Instant struct{ Node, Peer NodeTime }

// SimulateHour runs two clocks for an hour, whose wall clocks are kept to about
// 30 us, as NTP does on a quiet network.
func SimulateHour(t testing.TB, congested bool) Simulation {
	r := newRand(t)
	const end = 3600e9
	p := worldPlan{nodes: 2, end: end, path: quietPath}
	if congested {
		p.path = congestedPath
	}
	w := newWorld(r, p)
	s := Simulation{Exchanges: w.ev[1].Exchanges, Model: w.fit().Model(nodeName(1))}
	wrong := [2]oscillator{{wander: 3e-7, freq: 1e-8 * (1 + r.Float64()), ph: r.Float64()}, {wander: 3e-7, freq: 1e-8 * (1 + r.Float64()), ph: r.Float64()}}
	for tau := 0.0; tau <= end; tau += 1e9 {
		for i, bs := range []*[]Bracket{&s.PeerBrackets, &s.Brackets} {
			o := w.nodes[i]
			*bs = append(*bs, Bracket{
				Raw0: NodeTime(o.read(tau)), Raw1: NodeTime(o.read(tau + 200)),
				Realtime: 1_790_000_000_000_000_000 + int64(wrong[i].read(tau+100)),
			})
		}
	}
	for range 5000 {
		tau := 2e9 + r.Float64()*(end-4e9)
		s.Instants = append(s.Instants, Instant{Node: NodeTime(w.nodes[1].read(tau)), Peer: NodeTime(w.nodes[0].read(tau))})
	}
	return s
}
