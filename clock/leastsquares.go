package clock

import "math"

const (
	// solveSteps and solveGood end the iteration: nanoseconds do not matter.
	solveSteps = 200
	solveGood  = 1e-6
)

// leastSquares returns the x, with x[fixed] = 0, that minimise the weighted
// squares of x[a]-x[b]-d, by conjugate gradients on the normal equations,
// scaled by their diagonal. Sites that no term reaches stay 0.
func leastSquares(n, fixed int, terms []term) []float64 {
	x := make([]float64, n)
	r := make([]float64, n)
	diag := make([]float64, n)
	for _, t := range terms {
		r[t.a] += t.w * t.d
		r[t.b] -= t.w * t.d
		diag[t.a] += t.w
		diag[t.b] += t.w
	}
	pre := make([]float64, n)
	for i := range pre {
		if i != fixed && diag[i] > 0 {
			pre[i] = 1 / diag[i]
		}
	}
	z, p, q := make([]float64, n), make([]float64, n), make([]float64, n)
	dot := func(a, b []float64) (s float64) {
		for i := range a {
			s += a[i] * b[i]
		}
		return s
	}
	for i := range z {
		z[i] = pre[i] * r[i]
		p[i] = z[i]
	}
	rz := dot(r, z)
	first := rz
	for range solveSteps {
		if !(rz > first*solveGood*solveGood) || math.IsInf(rz, 0) {
			break
		}
		for i := range q {
			q[i] = 0
		}
		for _, t := range terms {
			d := t.w * (p[t.a] - p[t.b])
			q[t.a] += d
			q[t.b] -= d
		}
		q[fixed] = 0
		step := rz / dot(p, q)
		for i := range x {
			x[i] += step * p[i]
			r[i] -= step * q[i]
			z[i] = pre[i] * r[i]
		}
		next := dot(r, z)
		for i := range p {
			p[i] = z[i] + next/rz*p[i]
		}
		rz = next
	}
	for i := range x {
		if math.IsNaN(x[i]) || math.IsInf(x[i], 0) {
			return make([]float64, n)
		}
	}
	return x
}
