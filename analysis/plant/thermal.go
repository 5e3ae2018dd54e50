package plant

import (
	"math"

	"github.com/gswarm/gswarm/rankagent/gpu/nvmltest"
)

// thermal is a GPU's temperature as its power makes it: resistances against the
// air, one with the time constant of the chip and one with that of its sink.
type thermal struct {
	ambient    float64
	fast, slow resistance
}

// resistance is in degrees per watt, tau in seconds.
type resistance struct{ perWatt, tau float64 }

// perWatt is the resistance against the air once all is warm.
func (h thermal) perWatt() float64 { return h.fast.perWatt + h.slow.perWatt }

// filter follows a power with a time constant.
func filter(f, watts, seconds, tau float64) float64 {
	return f + (watts-f)*(1-math.Exp(-seconds/tau))
}

// heat is a GPU's thermal state.
type heat struct{ fast, slow float64 }

// next lets watts flow for some seconds and returns the temperature; worse is a
// factor on the resistances.
func (h *heat) next(is thermal, watts, worse, seconds float64) float64 {
	h.fast = filter(h.fast, watts*worse, seconds, is.fast.tau)
	h.slow = filter(h.slow, watts*worse, seconds, is.slow.tau)
	return is.ambient + is.fast.perWatt*h.fast + is.slow.perWatt*h.slow
}

// fitThermal finds what describes the recorded temperature best.
func fitThermal(rec *nvmltest.Recording, g int, power []powerSample) thermal {
	var times []int64
	var temps []float64
	for _, row := range rec.Cheap.Rows {
		if row.GPU == g {
			times = append(times, row.Value[nvmltest.ColT]-int64(rec.AnchorRaw)+int64(rec.AnchorReal))
			temps = append(temps, float64(row.Value[nvmltest.ColTemp]))
		}
	}
	filtered := func(tau float64) []float64 {
		out, at := make([]float64, len(times)), 0
		f := float64(power[0].mw) / 1000
		for i, t := range times {
			for at < len(power)-1 && power[at+1].t <= t {
				at++
				f = filter(f, float64(power[at].mw)/1000, float64(power[at].t-power[at-1].t)/1e9, tau)
			}
			out[i] = f
		}
		return out
	}
	best, least := thermal{}, math.Inf(1)
	for tau := 0.1; tau < 3; tau *= 1.6 {
		fast := filtered(tau)
		for tau2 := 4.0; tau2 < 60; tau2 *= 1.6 {
			slow := filtered(tau2)
			var a [unknown][unknown]float64
			var y [unknown]float64
			for i := range fast {
				x := [unknown]float64{1, fast[i], slow[i]}
				for r := range x {
					for c := range x {
						a[r][c] += x[r] * x[c]
					}
					y[r] += x[r] * temps[i]
				}
			}
			a[3][3] = 1 // there are only three unknowns
			x := solve(a, y)
			sum := 0.0
			for i := range fast {
				d := temps[i] - x[0] - x[1]*fast[i] - x[2]*slow[i]
				sum += d * d
			}
			if sum < least {
				best, least = thermal{x[0], resistance{x[1], tau}, resistance{x[2], tau2}}, sum
			}
		}
	}
	return best
}
