package clock

import (
	"math"
	"math/rand/v2"
)

// oscillator is a clock whose truth is known: the reading at true time tau is
// origin + tau + skew*tau + a sinusoidal wander of the rate.
type oscillator struct {
	origin           int64
	skew             float64 // rate error
	wander, freq, ph float64 // amplitude of the rate, radians per ns, phase
	jumps            []jump
	// walk is the integral of a rate that walks, every walkStep ns.
	walk     []float64
	walkStep float64
}

type jump struct{ at, by float64 }

func (o oscillator) read(tau float64) int64 {
	v := tau + o.skew*tau
	if o.freq > 0 {
		v += o.wander / o.freq * (math.Cos(o.ph) - math.Cos(o.freq*tau+o.ph))
	}
	if n := len(o.walk); n > 1 && tau > 0 {
		i := min(int(tau/o.walkStep), n-2)
		v += o.walk[i] + (o.walk[i+1]-o.walk[i])*(tau/o.walkStep-float64(i))
	}
	for _, j := range o.jumps {
		if tau >= j.at {
			v += j.by
		}
	}
	return o.origin + int64(math.Floor(v))
}

// randomOscillator stays within the assumptions: two of them differ by at most
// 100 ppm in rate, and each strays at most 1.2 ppm from its mean one way.
func randomOscillator(r *rand.Rand) oscillator {
	return oscillator{
		origin: r.Int64N(40 * 86400e9),
		skew:   (r.Float64()*100 - 50) * 1e-6,
		wander: r.Float64() * 1.2e-6,
		freq:   2 * math.Pi / (math.Exp(r.Float64()*math.Log(720)) * 5e9), // 5 s to 1 h
		ph:     r.Float64() * 2 * math.Pi,
	}
}

// path is the network between two clocks.
type path struct {
	there, back    float64 // least delays, ns
	queue          float64 // mean of the queueing, each way
	outlier, loss  float64 // shares
	duplicate      float64
	congested      float64 // share of 20 s stretches with one-way congestion
	congestedDelay float64
	outlierDelay   float64 // mean of the outliers, 1 ms if zero
	reorder        float64 // share of exchanges recorded after the next one
	seed           uint64  // of the congestion
}

func randomPath(r *rand.Rand) path {
	return path{
		there: 2000 + r.Float64()*40000, back: 2000 + r.Float64()*40000,
		queue: r.Float64() * 40000, outlier: r.Float64() * 0.05,
		loss: r.Float64() * r.Float64() * 0.5, duplicate: 0.02,
		congested: r.Float64() * 0.6, congestedDelay: r.Float64() * 400000,
	}
}

func (p path) delay(r *rand.Rand, least float64, tau float64, way int) float64 {
	d := least + r.ExpFloat64()*p.queue
	if r.Float64() < p.outlier {
		mean := p.outlierDelay
		if mean == 0 {
			mean = 1e6
		}
		d += r.ExpFloat64() * mean
	}
	// A stretch of time is congested or not, decided by its number.
	if way == 0 && rand.New(rand.NewPCG(uint64(tau/20e9), p.seed)).Float64() < p.congested {
		d += r.Float64() * p.congestedDelay
	}
	return d
}

// plan is when bursts happen.
type plan struct {
	from, to, gap float64 // true ns; the mean gap between bursts
	size          int
	stretch       bool // from 1.25 times after 38 bursts to 10 s, as Loop does it
}

// exchanges simulates a node asking a peer by plan.
func exchanges(r *rand.Rand, node, peer oscillator, name string, p path, pl plan) []Exchange {
	var xs []Exchange
	burst := int64(0)
	one := func(tau float64) float64 {
		for s := range pl.size {
			tau += 0.2e6 + r.Float64()*1.8e6
			x := Exchange{Peer: name, Burst: burst, Seq: int32(s)}
			x.T1 = NodeTime(node.read(tau))
			tau += p.delay(r, p.there, tau, 0)
			x.T2 = NodeTime(peer.read(tau))
			tau += 1000 + r.ExpFloat64()*5000
			x.T3 = NodeTime(peer.read(tau))
			tau += p.delay(r, p.back, tau, 1)
			x.T4 = NodeTime(node.read(tau))
			if r.Float64() < p.loss {
				continue
			}
			xs = append(xs, x)
			if r.Float64() < p.duplicate {
				xs = append(xs, x)
			}
		}
		burst++
		return tau
	}
	gap := pl.gap
	for tau := pl.from; tau < pl.to; tau += gap * (0.8 + 0.4*r.Float64()) {
		tau = one(tau)
		if pl.stretch && burst > 38 {
			gap = min(gap*1.25, 10*pl.gap)
		}
	}
	one(pl.to) // the burst at the end
	for i := 1; i < len(xs); i++ {
		if r.Float64() < p.reorder && xs[i].Burst == xs[i-1].Burst {
			xs[i-1], xs[i] = xs[i], xs[i-1]
		}
	}
	return xs
}

// cluster carries true time to what the timeline should say.
func cluster(ref oscillator, a Anchor, tau float64) int64 {
	return a.Realtime + ref.read(tau) - int64(a.Raw)
}
