package clock

import "math"

// What the estimate assumes of clocks and paths, in nanoseconds and seconds.
// Bounds rest on none of it: a wrong guess here costs accuracy, never truth.
const (
	// offsetNoise is the random walk of a raw clock's offset: 1e-4 us^2/s.
	offsetNoise = 100.0
	// rateSpread is how far the rate at the beginning may be from the mean:
	// 1 ppm.
	rateSpread = 1000.0
	// burstNoise is how far the middle of a burst's interval is off where the
	// burst met no queue.
	burstNoise = 1000.0
	// quietSpan is how far to either side the narrowest interval is looked
	// for that stands for a path without queues.
	quietSpan = 60_000_000_000
	// gapSpan bounds the time between two knots for the prediction.
	gapSpan = 1e6
)

// rateNoises are the random walks of a raw clock's rate that are tried: from
// 1e-6 ppm^2/s, a steady oven, to 1e-1, a rate that swings by a ppm within
// seconds. The one that explains the bursts best is taken, for each segment.
var rateNoises = [...]float64{1, 10, 100, 1e3, 1e4, 1e5}

// state is the filter's view at a knot: offset in ns, rate in ns/s, their
// covariance.
type state struct{ x, v, pxx, pxv, pvv float64 }

// predict carries a state over dt seconds.
func (s state) predict(dt, rateNoise float64) state {
	return state{
		x: s.x + s.v*dt, v: s.v,
		pxx: s.pxx + 2*dt*s.pxv + dt*dt*s.pvv + offsetNoise*dt + rateNoise*dt*dt*dt/3,
		pxv: s.pxv + dt*s.pvv + rateNoise*dt*dt/2,
		pvv: s.pvv + rateNoise*dt,
	}
}

// update takes a measurement z of the offset with variance r into account.
func (s state) update(z, r float64) state {
	k, g := s.pxx/(s.pxx+r), s.pxv/(s.pxx+r)
	d := z - s.x
	return state{
		x: s.x + k*d, v: s.v + g*d,
		pxx: (1 - k) * s.pxx, pxv: (1 - k) * s.pxv, pvv: s.pvv - g*s.pxv,
	}
}

// estimate chooses the most likely offset at each knot: a Kalman filter over
// offset and rate, forward, then smoothed backward (Rauch, Tung, Striebel), so
// that each estimate rests on what came before and after it, clamped into the
// envelope.
//
// A burst counts for the less the wider its interval is against the narrowest
// of the minutes around it: what is wider met a queue, on one side of the path
// perhaps.
func (e *edge) estimate() {
	widths := make([]float64, len(e.knots))
	for i := range e.knots {
		// Measured from the facts themselves, not from the envelope, which
		// holds what the neighbours said as well.
		s := &e.segs[e.knots[i].seg]
		lo, hi := e.knots[i].carry(e.knots[i].t, e.base, s.rate, s.limit)
		widths[i] = math.Abs(hi - lo)
		e.knots[i].est = lo + (hi-lo)/2
	}
	quiet := slidingMin(e.knots, widths)
	for i := range e.segs {
		e.smooth(&e.segs[i], widths, quiet)
		e.settle(e.segs[i])
	}
}

// slidingMin returns the least width within quietSpan of each knot.
func slidingMin(ks []knot, widths []float64) []float64 {
	out := make([]float64, len(ks))
	var queue []int // indexes of rising widths
	next := 0
	for i := range ks {
		for next < len(ks) && ks[next].t-ks[i].t <= quietSpan {
			for len(queue) > 0 && widths[queue[len(queue)-1]] >= widths[next] {
				queue = queue[:len(queue)-1]
			}
			queue = append(queue, next)
			next++
		}
		for ks[i].t-ks[queue[0]].t > quietSpan {
			queue = queue[1:]
		}
		out[i] = widths[queue[0]]
	}
	return out
}

// smooth sets the estimates of a segment and its rates at both ends.
func (e *edge) smooth(s *segment, widths, quiet []float64) {
	ks := e.knots[s.first : s.last+1]
	rate := s.mean
	if math.IsInf(s.known, 0) || math.Abs(rate) > driftLimit {
		rate = 0
	}
	// The line of the mean rate is taken out: what is left is small.
	line := func(i int) float64 { return rate * float64(ks[i].t-ks[0].t) }
	noise := func(i int) float64 {
		r := burstNoise + widths[s.first+i] - quiet[s.first+i]
		return r * r
	}
	spread := min(s.known, driftLimit)*1e9 + rateSpread
	first := state{x: ks[0].est, pxx: 1e18, pvv: spread * spread}
	states := make([]state, len(ks))
	forward := func(rateNoise float64) (likely float64) {
		for i := range ks {
			p, z, r := first, ks[i].est-line(i), noise(i)
			if i > 0 {
				p = states[i-1].predict(min(float64(ks[i].t-ks[i-1].t)/1e9, gapSpan), rateNoise)
				v := p.pxx + r
				likely -= math.Log(v) + (z-p.x)*(z-p.x)/v
			}
			states[i] = p.update(z, r)
		}
		return likely
	}
	rateNoise, best := rateNoises[0], math.Inf(-1)
	for _, q := range rateNoises {
		if l := forward(q); l > best {
			rateNoise, best = q, l
		}
	}
	forward(rateNoise)
	back := states[len(ks)-1]
	ks[len(ks)-1].est = back.x + line(len(ks)-1)
	s.after = rate + back.v/1e9
	for i := len(ks) - 2; i >= 0; i-- {
		back = states[i].backward(back, min(float64(ks[i+1].t-ks[i].t)/1e9, gapSpan), rateNoise)
		ks[i].est = back.x + line(i)
	}
	s.before = rate + back.v/1e9
}

// backward returns the smoothed state before after, dt seconds later; s is the
// filtered one. Covariances of the smoothed states are not needed.
func (s state) backward(after state, dt, rateNoise float64) state {
	p := s.predict(dt, rateNoise)
	// C = P F' Ppred^-1
	a, b := s.pxx+dt*s.pxv, s.pxv
	c, d := s.pxv+dt*s.pvv, s.pvv
	det := p.pxx*p.pvv - p.pxv*p.pxv
	if det <= 0 || math.IsInf(det, 0) || math.IsNaN(det) {
		return state{x: after.x - after.v*dt, v: after.v}
	}
	dx, dv := after.x-p.x, after.v-p.v
	u, w := (p.pvv*dx-p.pxv*dv)/det, (p.pxx*dv-p.pxv*dx)/det
	return state{x: s.x + a*u + b*w, v: s.v + c*u + d*w}
}

// settle clamps a segment's estimates into its envelope. Time must not run
// backwards in them: where it would, the middles of the envelope are taken,
// whose slopes the segment's limit bounds.
//
// The line between two knots stays within the envelope, which bulges outwards
// between them.
func (e *edge) settle(s segment) {
	ks := e.knots[s.first : s.last+1]
	ok := true
	for i := range ks {
		k := &ks[i]
		k.est = min(max(k.est, k.lo), k.hi)
		if k.est != k.est || i > 0 && k.est-ks[i-1].est < -float64(k.t-ks[i-1].t) {
			ok = false
			break
		}
	}
	for i := range ks {
		if !ok {
			ks[i].est = ks[i].lo + (ks[i].hi-ks[i].lo)/2
		}
	}
}
