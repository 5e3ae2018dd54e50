package analysis

import (
	"math"
)

// Phases are found on the means over all GPUs of what their units did, block by
// block: the stretches are chosen such that the squares of the deviations from
// each stretch's means, plus a price for each stretch, are least.
const (
	// minPhaseNS is the length that a phase has at least.
	minPhaseNS = int64(5e9)
	// edgeBlocks is the same for the first and the last one, in blocks.
	edgeBlocks = 2
	// maxPhaseBlocks bounds the search, whose time grows with its square.
	maxPhaseBlocks = 4096
	// phasePrice is the price of a stretch, for each channel and in units of
	// the channel's variance and of the logarithm of the number of blocks: 1
	// would be that of Schwarz's criterion for independent values, and steps
	// make neighbouring blocks anything but independent.
	phasePrice = 8
	// samePhase is the difference that two neighbouring stretches must have in
	// some channel, as a share of its full scale, to be two phases.
	samePhase = 0.06
	// edgeDiffers is how many times that a stretch shorter than a phase must
	// differ.
	edgeDiffers = 4
	// channelNoise is the least deviation of a channel that is believed.
	channelNoise = 0.015
)

// channels are what phases are told apart by, each on a scale of 0 to 1.
func (m *model) channels() (first int64, x [][]float64) {
	from, to := m.blocks(m.span)
	n := int(to - from)
	const count = 8
	x = make([][]float64, count)
	for c := range x {
		x[c] = make([]float64, n)
	}
	for i := range n {
		var s [count]moments
		for _, d := range m.workers {
			u := m.usageOf(d, from+int64(i), from+int64(i)+1)
			limit := 700.0
			if d.facts.PowerLimitMW > 0 {
				limit = float64(d.facts.PowerLimitMW) / 1e3
			}
			for c, v := range [count]float64{
				u.util, u.sm, u.tensor + u.fp, u.dram, u.link / m.linkPeak, max(u.rx, u.tx) / m.pciePeak,
				u.power / limit, u.work / 100,
			} {
				if !math.IsNaN(v) {
					s[c].add(v)
				}
			}
		}
		for c := range count {
			st := s[c].stat()
			x[c][i] = st.Mean
			if c == count-1 { // how unlike the GPUs are
				x[c][i] = st.SD
			}
			if st.N == 0 && i > 0 {
				x[c][i] = x[c][i-1]
			}
		}
	}
	return from, x
}

// findPhases returns the phases as spans that cover the run without gaps.
func (m *model) findPhases() []Span {
	if m.span.EndNS <= m.span.BeginNS || len(m.workers) == 0 {
		return nil
	}
	first, x := m.channels()
	width := int64(1)
	for len(x[0]) > maxPhaseBlocks {
		width *= 2
		for c := range x {
			x[c] = halve(x[c])
		}
	}
	shortest := max(3, int((minPhaseNS+m.block*width-1)/(m.block*width)))
	cuts := mergeAlike(x, segment(x, shortest), shortest)
	var spans []Span
	for i := range len(cuts) - 1 {
		s := Span{(first + int64(cuts[i])*width) * m.block, (first + int64(cuts[i+1])*width) * m.block}
		spans = append(spans, s)
	}
	// The run's first and last readings lie within a block.
	spans[0].BeginNS, spans[len(spans)-1].EndNS = m.span.BeginNS, m.span.EndNS
	return spans
}

func halve(x []float64) []float64 {
	out := make([]float64, 0, len(x)/2+1)
	for i := 0; i < len(x); i += 2 {
		out = append(out, mean(x[i:min(i+2, len(x))]))
	}
	return out
}

// segment returns the borders of the stretches of at least shortest blocks, from
// 0 to the number of blocks, by dynamic programming over all that there could be.
func segment(x [][]float64, shortest int) []int {
	n := len(x[0])
	if n < 2*shortest {
		return []int{0, n}
	}
	// Sums of the scaled channels and of their squares.
	sums := make([][]float64, 0, len(x))
	squares := make([]float64, n+1)
	for _, ch := range x {
		scale := 1 / noise(ch)
		sum := make([]float64, n+1)
		for i, v := range ch {
			v *= scale
			sum[i+1] = sum[i] + v
			squares[i+1] += v * v
		}
		sums = append(sums, sum)
	}
	for i := range n {
		squares[i+1] += squares[i]
	}
	cost := func(from, to int) float64 {
		c := squares[to] - squares[from]
		for _, s := range sums {
			d := s[to] - s[from]
			c -= d * d / float64(to-from)
		}
		return c
	}
	price := phasePrice * float64(len(x)) * math.Log(float64(n))
	best := make([]float64, n+1)
	last := make([]int, n+1)
	for to := 1; to <= n; to++ {
		best[to] = math.Inf(1)
		for from := 0; from < to; from++ {
			least := shortest
			if from == 0 || to == n {
				least = min(shortest, edgeBlocks) // it may have gone on outside of the run
			}
			if to-from < least {
				break
			}
			if c := best[from] + cost(from, to) + price; c < best[to] {
				best[to], last[to] = c, from
			}
		}
	}
	cuts := []int{n}
	for at := n; at > 0; {
		at = last[at]
		cuts = append([]int{at}, cuts...)
	}
	return cuts
}

// noise is the deviation of a channel from block to block, as the median shows
// it: changes of phase are rare.
func noise(ch []float64) float64 {
	d := make([]float64, 0, len(ch))
	for i := 1; i < len(ch); i++ {
		d = append(d, math.Abs(ch[i]-ch[i-1]))
	}
	return max(channelNoise, 1.4826/math.Sqrt2*median(d))
}

// mergeAlike joins neighbouring stretches whose means differ too little to be
// two phases, the most alike first. A stretch that is shorter than a phase, at
// the begin or the end of the run, must differ more: it holds few steps.
func mergeAlike(x [][]float64, cuts []int, shortest int) []int {
	for len(cuts) > 2 {
		at, least := 0, math.Inf(1)
		for i := 1; i < len(cuts)-1; i++ {
			d := 0.0
			for _, ch := range x {
				d = max(d, math.Abs(median(ch[cuts[i-1]:cuts[i]])-median(ch[cuts[i]:cuts[i+1]])))
			}
			if min(cuts[i]-cuts[i-1], cuts[i+1]-cuts[i]) < shortest {
				d /= edgeDiffers
			}
			if d < least {
				at, least = i, d
			}
		}
		if least >= samePhase {
			break
		}
		cuts = append(cuts[:at], cuts[at+1:]...)
	}
	return cuts
}
