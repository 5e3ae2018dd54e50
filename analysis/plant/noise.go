package plant

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
)

// hostNoise is how unevenly the counters of real processes and of a real node
// grew: for each series the growth in each second. It was recorded by gswarm on
// a machine of two cores that other programs used as well.
type hostNoise struct{ series [][][]int64 }

// The kinds of series in the recording, in its order: of ranks, of their
// helpers, of the node. Each has one series for each process or node.
const (
	noiseRankCPU = iota
	noiseRankDelay
	noiseRankVoluntary
	noiseRankInvoluntary
	noiseRankFaults
	noiseWorkerCPU
	noiseWorkerRead
	noiseNodeSwitches
	noiseNodeInterrupts
	noiseNodeCPU
	noiseNodeSegments
	noiseKinds
)

func loadHostNoise() (*hostNoise, error) {
	path, err := testdata("host", "growth.gz")
	if err != nil {
		return nil, err
	}
	packed, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h := &hostNoise{}
	if err := h.unpack(b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// unpack reads for each kind the number of series, for each series the number
// of seconds and the growth in each.
func (h *hostNoise) unpack(b []byte) error {
	damaged := errors.New("not the length that it should have: the file is damaged")
	next := func() int64 {
		v, n := binary.Varint(b)
		if n <= 0 {
			b = nil
			return -1
		}
		b = b[n:]
		return v
	}
	h.series = make([][][]int64, noiseKinds)
	for k := range h.series {
		for range max(0, next()) {
			n := next()
			if n < 2 || int(n) > len(b) {
				return damaged
			}
			s := make([]int64, n)
			for i := range s {
				s[i] = next()
			}
			h.series[k] = append(h.series[k], s)
		}
		if len(h.series[k]) == 0 {
			return damaged
		}
	}
	if b == nil || len(b) > 0 {
		return damaged
	}
	return nil
}

// walk gives, second by second, how much a recorded counter grew in relation to
// its mean, from a random place on; calm damps that towards 1.
type walk struct {
	growth []int64
	at     int
	mean   float64
	calm   float64
}

func (h *hostNoise) walk(rng *rand.Rand, kind int, calm float64) *walk {
	s := h.series[kind][rng.IntN(len(h.series[kind]))]
	w := &walk{growth: s, at: rng.IntN(len(s)), calm: calm}
	for _, v := range s {
		w.mean += float64(v) / float64(len(s))
	}
	return w
}

func (w *walk) next() float64 {
	if w.mean == 0 {
		return 1
	}
	w.at = (w.at + 1) % len(w.growth)
	f := float64(w.growth[w.at]) / w.mean
	return 1 + (min(f, 12)-1)*(1-w.calm)
}
