package analysis

import (
	"math"
	"slices"
)

// trackSteps follows a repeating signal from step to step: where its shape, the
// mean of all its periods, fits best near the place where the next one is due.
// It returns the bins in which steps begin, at the sharpest rise of the shape,
// one for each step and the end of the last. A step may take up to longestStep
// periods.
func trackSteps(x []float64, period float64) []float64 {
	width := max(1, int(period/finestShape))
	y := thin(x, width)
	p := period / float64(width)
	shape := shapeOf(y, p)
	if shape == nil {
		return nil
	}
	fit := fitOf(y, shape)
	var begins []float64
	for at := firstFit(fit, p); at >= 0 && at < len(fit); {
		begins = append(begins, vertex(fit, at)*float64(width))
		next := bestNear(fit, at, p)
		if next <= at {
			break
		}
		at = next
	}
	return begins
}

const (
	// finestShape is the number of bins of a shape at most: more say no more.
	finestShape = 48
	// longestStep is how many periods a step may take before the next is
	// looked for anew.
	longestStep = 4
	// fits is the correlation with the shape that counts as a step.
	fits = 0.5
)

// thin takes means of width values.
func thin(x []float64, width int) []float64 {
	if width == 1 {
		return x
	}
	out := make([]float64, 0, len(x)/width)
	for i := 0; i+width <= len(x); i += width {
		out = append(out, mean(x[i:i+width]))
	}
	return out
}

// shapeOf folds y by its period and turns the result so that it begins with the
// sharpest rise.
func shapeOf(y []float64, p float64) []float64 {
	n := int(math.Round(p))
	if n < 3 || len(y) < 3*n {
		return nil
	}
	// A period that is known to less than a bin over all steps would smear a
	// fold of all of them: fold the twenty in the middle.
	from := max(0, len(y)/2-10*n)
	sum, count := make([]float64, n), make([]float64, n)
	for i := from; i < min(len(y), from+20*n); i++ {
		phase := math.Mod(float64(i-from), p) / p
		k := min(n-1, int(phase*float64(n)))
		sum[k] += y[i]
		count[k]++
	}
	for k := range sum {
		sum[k] /= max(count[k], 1)
	}
	rise, at := math.Inf(-1), 0
	for k := range sum {
		if d := sum[(k+1)%n] - sum[(k+n-1)%n]; d > rise {
			rise, at = d, k
		}
	}
	return append(slices.Clone(sum[at:]), sum[:at]...)
}

// fitOf is the correlation of the shape with y at each place.
func fitOf(y, shape []float64) []float64 {
	n := len(shape)
	s := centred(shape)
	norm := 0.0
	for _, v := range s {
		norm += v * v
	}
	if len(y) < n || norm == 0 {
		return nil
	}
	fit := make([]float64, len(y)-n+1)
	for i := range fit {
		part := y[i : i+n]
		m := mean(part)
		dot, own := 0.0, 0.0
		for k, v := range part {
			d := v - m
			dot += d * s[k]
			own += d * d
		}
		if own > 0 {
			fit[i] = dot / math.Sqrt(own*norm)
		}
	}
	return fit
}

func centred(x []float64) []float64 {
	m := mean(x)
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v - m
	}
	return out
}

// firstFit is the first place where the shape fits well, -1 for none.
func firstFit(fit []float64, p float64) int {
	for i := range fit {
		if fit[i] < fits {
			continue
		}
		best := i
		for k := i; k < min(len(fit), i+int(p/2)+1); k++ {
			if fit[k] > fit[best] {
				best = k
			}
		}
		return best
	}
	return -1
}

// bestNear is where the step after the one at begins: the best fit near one
// period later, and where there is none, the first later one; at where there is
// none at all.
func bestNear(fit []float64, at int, p float64) int {
	best, value := at, fits
	for i := at + int(0.7*p); i <= at+int(math.Ceil(1.3*p)) && i < len(fit); i++ {
		if fit[i] > value {
			best, value = i, fit[i]
		}
	}
	if best > at {
		return best
	}
	for i := at + int(1.3*p); i < min(len(fit), at+int(longestStep*p)); i++ {
		if i > at && fit[i] >= fits {
			if k := firstFit(fit[i:], p); k >= 0 {
				return i + k
			}
		}
	}
	return at
}
