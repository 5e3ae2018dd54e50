package plant

import (
	"fmt"
	"math"
	"slices"

	"github.com/gswarm/gswarm/rankagent/gpu/nvmltest"
)

// Material is what jobs are put together from: the recorded readings of each
// GPU as functions of time, and where in them what was going on.
type Material struct {
	gpus  [8]recordedGPU
	truth *Truth
	host  *hostNoise
}

// recordedGPU is what one GPU showed. Times are those of the recorder's wall
// clock.
type recordedGPU struct {
	uuid, name   string
	powerLimitMW int64
	memory       int64
	// lags are by how much the windows of GPM trailed what they show, stretch
	// after stretch of training. It differs from GPU to GPU, stays the same for
	// many seconds and then jumps.
	lags     []int64
	activity fine
	power    []powerSample
	cheap    []cheapSample
	windows  []window
	thermal  thermal
	// kernels are, for each step of train and train2, the stretch in which it
	// computed; the i-th is the same step on all GPUs.
	kernels []stretch
	// spins are stretches in which it waited in a collective.
	spins []stretch
}

// activities is the number of columns that GPM fills.
const activities = 11

type window struct {
	begin, end int64
	// lag is by how much it trails what it shows.
	lag   int64
	value [activities]float64
}

type powerSample struct{ t, mw int64 }

type cheapSample struct{ t, read, util, utilMem, mem, clock, clockMem, reasons int64 }

// stretch is a part of the recording.
type stretch struct{ begin, end int64 }

func (s stretch) length() int64 { return s.end - s.begin }

// Load reads the recordings.
func Load() (*Material, error) {
	rec, err := nvmltest.Load()
	if err != nil {
		return nil, fmt.Errorf("load the recording: %w", err)
	}
	m := &Material{}
	if m.truth, err = loadTruth(); err != nil {
		return nil, fmt.Errorf("load the truth of the recording: %w", err)
	}
	if m.host, err = loadHostNoise(); err != nil {
		return nil, fmt.Errorf("load the recording of a host: %w", err)
	}
	for g := range m.gpus {
		m.gpus[g] = newRecordedGPU(rec, g)
	}
	slowest := m.slowest()
	for g := range m.gpus {
		states := m.states(g, slowest)
		u := &m.gpus[g]
		u.findLags(m.truth, states)
		u.activity = refine(u.windows, states)
		u.thermal = fitThermal(rec, g, u.power)
		for _, s := range slices.Concat(m.truth.In(g, "train"), m.truth.In(g, "train2")) {
			u.kernels = append(u.kernels, stretch{s.Begin, s.Computed})
		}
		u.mend()
		for i, s := range m.truth.In(g, "train_slow_rank3") {
			if wait := (stretch{s.Computed, slowest["train_slow_rank3"][i]}); wait.length() > 200e6 {
				u.spins = append(u.spins, wait)
			}
		}
	}
	return m, nil
}

// mend puts another step's piece into the place of those near which the lag of the
// windows jumped: what was spread over them there is partly of the step beside.
func (u *recordedGPU) mend() {
	share := make([]float64, len(u.kernels))
	for i, k := range u.kernels {
		share[i] = u.activity.mean(k)[gpmTensor]
	}
	typical := slices.Sorted(slices.Values(share))[len(share)/2]
	good := func(v float64) bool { return math.Abs(v/typical-1) < 0.03 }
	last := slices.IndexFunc(share, good)
	for i := range u.kernels {
		if good(share[i]) {
			last = i
		} else {
			u.kernels[i] = u.kernels[last]
		}
	}
}

// slowest is, for each step of each phase of training, when the last rank had
// computed.
func (m *Material) slowest() map[string][]int64 {
	last := map[string][]int64{}
	for _, phase := range training {
		for g := range m.gpus {
			for i, s := range m.truth.In(g, phase) {
				if g == 0 {
					last[phase] = append(last[phase], s.Computed)
				}
				last[phase][i] = max(last[phase][i], s.Computed)
			}
		}
	}
	return last
}

// training are the phases with steps of computing and exchange.
var training = []string{"train", "train_slow_rank3", "train_input_stall", "train2"}

// state is what a GPU was doing.
type state int

const (
	computes state = iota
	spins
	exchanges // all-reduces of some ms, and the host's part of the step
	rests
	unknown
)

type stateAt struct {
	stretch
	is state
}

// states says what a GPU did in the phases of training, by what the job wrote
// down.
func (m *Material) states(g int, slowest map[string][]int64) []stateAt {
	var all []stateAt
	for _, phase := range training {
		steps := m.truth.In(g, phase)
		for i, s := range steps[:len(steps)-1] {
			begin := s.Begin
			if phase == "train_input_stall" {
				begin += 450e6
			}
			all = append(all,
				stateAt{stretch{s.Begin, begin}, rests}, stateAt{stretch{begin, s.Computed}, computes},
				stateAt{stretch{s.Computed, slowest[phase][i]}, spins}, stateAt{stretch{slowest[phase][i], steps[i+1].Begin}, exchanges})
		}
	}
	return all
}

func newRecordedGPU(rec *nvmltest.Recording, g int) recordedGPU {
	wall := func(raw int64) int64 { return raw - int64(rec.AnchorRaw) + int64(rec.AnchorReal) }
	is := rec.GPUs[g]
	u := recordedGPU{uuid: is.UUID, name: is.Name, powerLimitMW: int64(is.PowerLimitMW), memory: int64(is.MemoryByte)}
	for _, row := range rec.Cheap.Rows {
		if v := row.Value; row.GPU == g {
			u.cheap = append(u.cheap, cheapSample{
				wall(v[nvmltest.ColT]), v[nvmltest.ColRead], v[nvmltest.ColUtil], v[nvmltest.ColUtilMem], v[nvmltest.ColMemUsed],
				v[nvmltest.ColSM], v[nvmltest.ColMem], v[nvmltest.ColReasons],
			})
		}
	}
	at := int64(0)
	for _, row := range rec.Power.Rows {
		if row.GPU == g {
			at += row.Value[nvmltest.PowGap] * 1000
			u.power = append(u.power, powerSample{at, row.Value[nvmltest.PowPower]})
		}
	}
	at = 0
	for _, row := range rec.Activity.Rows {
		if row.GPU != g {
			continue
		}
		w := window{begin: at + row.Value[nvmltest.ActGap]}
		w.end = w.begin + row.Value[nvmltest.ActLength]
		at = w.end
		for c := range w.value {
			w.value[c] = float64(row.Value[nvmltest.ActSM+c]) / float64(rec.Activity.Columns[nvmltest.ActSM+c].Scale)
		}
		w.begin, w.end = wall(w.begin), wall(w.end)
		u.windows = append(u.windows, w)
	}
	return u
}

// cheapAt is the recorded reading nearest to t.
func (u *recordedGPU) cheapAt(t int64) cheapSample {
	i, _ := slices.BinarySearchFunc(u.cheap, t, func(s cheapSample, t int64) int { return int(min(1, max(-1, s.t-t))) })
	return nearest(u.cheap, i, t, func(s cheapSample) int64 { return s.t })
}

// powerAt is the recorded sample nearest to t, in milliwatts.
func (u *recordedGPU) powerAt(t int64) int64 {
	i, _ := slices.BinarySearchFunc(u.power, t, func(s powerSample, t int64) int { return int(min(1, max(-1, s.t-t))) })
	return nearest(u.power, i, t, func(s powerSample) int64 { return s.t }).mw
}

func nearest[T any](all []T, i int, t int64, at func(T) int64) T {
	if i == len(all) || i > 0 && t-at(all[i-1]) < at(all[i])-t {
		i--
	}
	return all[i]
}
