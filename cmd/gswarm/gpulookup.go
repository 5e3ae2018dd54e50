package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gswarm/gswarm/rankagent/gpu"
)

// nvidiaProc is where NVIDIA's driver describes its GPUs.
const nvidiaProc = "/proc/driver/nvidia/gpus"

// gpuLookup tells rankagent/rank which GPU a process means. It knows none until
// the driver has been asked, which takes a while.
type gpuLookup struct {
	known atomic.Pointer[knownGPUs]

	mu      sync.Mutex
	holders map[int][]int // the processes that hold each GPU
}

type knownGPUs struct {
	count    int
	byUUID   map[string]int
	byMinor  map[int]int
	numaNode map[int]int
}

var noGPUs = knownGPUs{}

func (l *gpuLookup) get() *knownGPUs {
	if k := l.known.Load(); k != nil {
		return k
	}
	return &noGPUs
}

// set takes what the driver says of the GPUs.
func (l *gpuLookup) set(devices []gpu.Info) { l.known.Store(lookupOf(devices, nvidiaProc)) }

func lookupOf(devices []gpu.Info, proc string) *knownGPUs {
	k := &knownGPUs{count: len(devices), byUUID: map[string]int{}, byMinor: map[int]int{}, numaNode: map[int]int{}}
	for _, d := range devices {
		k.byUUID[d.UUID] = d.Index
		if d.NUMANode != nil {
			k.numaNode[d.Index] = *d.NUMANode
		}
		if m, ok := minorOf(proc, d.PCIBusID); ok {
			k.byMinor[m] = d.Index
		}
	}
	return k
}

// minorOf returns the minor number of a GPU's device node. The driver's bus ids
// have eight digits of domain, the directory's names four.
func minorOf(proc, busID string) (minor int, ok bool) {
	if len(busID) < 4 {
		return 0, false
	}
	b, err := os.ReadFile(filepath.Join(proc, strings.ToLower(busID[4:]), "information"))
	if err != nil {
		return 0, false
	}
	for l := range strings.SplitSeq(string(b), "\n") {
		if v, found := strings.CutPrefix(l, "Device Minor:"); found {
			m, err := strconv.Atoi(strings.TrimSpace(v))
			return m, err == nil
		}
	}
	return 0, false
}

// Count implements rank.GPUs.
func (l *gpuLookup) Count() int { return l.get().count }

// held takes what the driver says of who holds a GPU.
func (l *gpuLookup) held(gpu int, pids []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders == nil {
		l.holders = map[int][]int{}
	}
	l.holders[gpu] = pids
}

// OfPID implements rank.GPUs.
func (l *gpuLookup) OfPID(pid int) (gpus []int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for g, pids := range l.holders {
		if slices.Contains(pids, pid) {
			gpus = append(gpus, g)
		}
	}
	slices.Sort(gpus)
	return gpus, l.holders != nil
}

// ByUUID implements rank.GPUs; CUDA takes an abbreviated UUID where it names one
// GPU only.
func (l *gpuLookup) ByUUID(uuid string) (int, bool) {
	k := l.get()
	if g, ok := k.byUUID[uuid]; ok {
		return g, true
	}
	found, n := -1, 0
	for u, g := range k.byUUID {
		if len(uuid) > len("GPU-") && strings.HasPrefix(u, uuid) {
			found = g
			n++
		}
	}
	return found, n == 1
}

// ByMinor implements rank.GPUs.
func (l *gpuLookup) ByMinor(minor int) (int, bool) {
	g, ok := l.get().byMinor[minor]
	return g, ok
}

// NUMANode implements rank.GPUs.
func (l *gpuLookup) NUMANode(g int) (int, bool) {
	n, ok := l.get().numaNode[g]
	return n, ok
}
