package plant

import (
	"math/rand/v2"
	"sort"

	"github.com/gswarm/gswarm/table"
)

// change is how a stretch of a track differs from what was recorded. Factors of
// 1 and zeros change nothing.
type change struct {
	// clockMHz, where it is set, is the SM clock; clockMax the highest that it
	// may have.
	clockMHz, clockMax int64
	// reasons replace the recorded event reasons where they are not -1.
	reasons int64
	// power is the factor on what the GPU uses above idle.
	power float64
	// powerMW, where it is set, is the level that a limit holds the power at.
	powerMW int64
	// nvlink and pcie are factors on the rates.
	nvlink, pcie float64
	// busy is the factor on what SMs, pipes and memory did.
	busy float64
	// util, where it is not negative, replaces the utilisation.
	util int64
}

func unchanged() change {
	return change{reasons: -1, power: 1, nvlink: 1, pcie: 1, busy: 1, util: -1}
}

// segment is a stretch of a track: a part of the recording, as long as it was
// or stretched, up to end.
type segment struct {
	end    int64
	gpu    int // of the recording
	from   stretch
	change *change
}

// track is what one GPU of a made-up job does, put together from recorded
// stretches. Its readings are taken from the recording: instants from the
// nearest reading, windows as the mean of what lies in them.
type track struct {
	m     *Material
	begin int64
	segs  []segment
	// as is the recorded GPU whose identity, lag and heat it has.
	as int
	// watts is the factor of this board's power to the recorded one's, cool how
	// well its heat goes away.
	watts, cool float64
	// heat is by how much worse the heat goes away during hot.
	heat float64
	hot  stretch
}

// cooling is the factor on the thermal resistance at t.
func (k *track) cooling(t int64) float64 {
	if k.heat > 0 && t >= k.hot.begin && t < k.hot.end {
		return k.cool * k.heat
	}
	return k.cool
}

func (k *track) end() int64 {
	if len(k.segs) == 0 {
		return k.begin
	}
	return k.segs[len(k.segs)-1].end
}

// append adds a recorded stretch that shall take length.
func (k *track) append(gpu int, from stretch, length int64, c *change) {
	if length > 0 {
		k.segs = append(k.segs, segment{k.end() + length, gpu, from, c})
	}
}

// tile adds length of what a recorded stretch shows, over and over, each time
// from another place in it, so that its noise does not repeat.
func (k *track) tile(rng *rand.Rand, gpu int, from stretch, length int64, c *change) {
	for length > 0 {
		part := min(length, from.length(), 400e6+rng.Int64N(2e9))
		at := from.begin
		if free := from.length() - part; free > 0 {
			at += rng.Int64N(free)
		}
		k.append(gpu, stretch{at, at + part}, part, c)
		length -= part
	}
}

// at finds the segment that covers t, and where in the recording that is.
func (k *track) at(t int64) (*segment, int64) {
	i := sort.Search(len(k.segs), func(i int) bool { return k.segs[i].end > t })
	i = min(i, len(k.segs)-1)
	s := &k.segs[i]
	begin := k.begin
	if i > 0 {
		begin = k.segs[i-1].end
	}
	part := float64(t-begin) / float64(s.end-begin)
	return s, s.from.begin + int64(min(1, max(0, part))*float64(s.from.length()))
}

// powerLag is by how much a power sample trails what the GPU does: in the
// recording power rises 19 to 21 ms after computing begins and falls 30 to 32 ms
// after it ends.
const powerLag = 26e6

// power is what a sample at t shows, in milliwatts.
func (k *track) power(t int64) float64 {
	s, src := k.at(t - powerLag)
	p := float64(k.m.gpus[s.gpu].powerAt(src+powerLag)) * k.watts
	if s.change != nil {
		c := s.change
		const idle = 125e3
		p = min(p, idle) + max(0, p-idle)*c.power
		if c.powerMW > 0 && p > float64(c.powerMW)*0.85 {
			// A limit is held as the recorded one is: within some percent.
			p = float64(c.powerMW) * (1 + 0.35*(p/(700e3*k.watts)-1))
		}
	}
	return p
}

// activity is the mean over a stretch of what GPM measures.
func (k *track) activity(w stretch) (v [activities]float64) {
	first := sort.Search(len(k.segs), func(i int) bool { return k.segs[i].end > w.begin })
	begin := k.begin
	if first > 0 {
		begin = k.segs[first-1].end
	}
	for _, s := range k.segs[first:] {
		if begin >= w.end {
			break
		}
		from, to := max(begin, w.begin), min(s.end, w.end)
		scale := float64(s.from.length()) / float64(s.end-begin)
		src := stretch{s.from.begin + int64(float64(from-begin)*scale), s.from.begin + int64(float64(to-begin)*scale)}
		if src.length() > 0 {
			part := float64(to-from) / float64(w.length())
			mean := k.m.gpus[s.gpu].activity.mean(src)
			for c := range v {
				v[c] += part * mean[c] * s.change.rate(c)
			}
		}
		begin = s.end
	}
	return v
}

// The columns of GPM as they lie in a window's values.
const (
	gpmTensor  = table.ActTensor - table.ActSMUtil
	gpmPCIeTx  = table.ActPCIeTx - table.ActSMUtil
	gpmPCIeRx  = table.ActPCIeRx - table.ActSMUtil
	gpmNVLinkA = table.ActNVLinkTx - table.ActSMUtil
	gpmNVLinkB = table.ActNVLinkRx - table.ActSMUtil
)

// rate is the factor on a column of GPM.
func (c *change) rate(column int) float64 {
	switch {
	case c == nil:
		return 1
	case column == gpmPCIeTx || column == gpmPCIeRx:
		return c.pcie
	case column == gpmNVLinkA || column == gpmNVLinkB:
		return c.nvlink
	}
	return c.busy
}

// cheap is a reading of the cheap set at t, less temperatures and powers.
func (k *track) cheap(t int64) cheapSample {
	s, src := k.at(t)
	r := k.m.gpus[s.gpu].cheapAt(src)
	if c := s.change; c != nil {
		if c.clockMHz > 0 {
			r.clock = c.clockMHz
		}
		if c.clockMax > 0 && r.clock > c.clockMax {
			// It wavers by a step of the clock's generator, as real ones do.
			r.clock = c.clockMax - src/100e6%2*15
		}
		if c.reasons >= 0 {
			r.reasons = c.reasons
		}
		if c.util >= 0 {
			r.util = c.util
		}
	}
	return r
}

// identity of the recorded GPU that the track stands for.
func (k *track) identity() *recordedGPU { return &k.m.gpus[k.as] }
