//go:build cgo && linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/control"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/rankagent/gpu"
	"github.com/gswarm/gswarm/rankagent/gpu/nvmltest"
	"github.com/gswarm/gswarm/rankagent/rank"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

// rowsOut keeps the rows that sources deliver.
type rowsOut map[*table.Table]*table.Batch

func (o rowsOut) Now() clock.NodeTime { return clock.System{}.Now() }
func (o rowsOut) Batch(t *table.Table) *table.Batch {
	if o[t] == nil {
		o[t] = table.NewBatch(t, 16)
	}
	return o[t]
}
func (rowsOut) Absent(*table.Table, string, string, rankagent.Reason, string) {}
func (rowsOut) Present(*table.Table, string, string)                          {}
func (rowsOut) Event(clock.NodeTime, string, int, int, any)                   {}

// holdGPU is a program that makes a CUDA context on the GPU that is given to it,
// says so, and keeps it until its standard input ends. Without a CUDA library,
// as with the stand-in, it only waits.
const holdGPU = `
import ctypes, sys
if sys.argv[1] != "-":
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    for r in (cuda.cuInit(0), cuda.cuDeviceGetByPCIBusId(ctypes.byref(device), sys.argv[1].encode()), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device)):
        if r: sys.exit("CUDA error %d" % r)
print("ready", flush=True)
sys.stdin.read()
`

// startHolder starts a rank that holds a GPU and returns its process id.
func startHolder(t *testing.T, run string, r, local, size int, busID string) int {
	t.Helper()
	cmd := exec.Command("python3", "-c", holdGPU, busID)
	cmd.Env = append(os.Environ(), "GSWARM_X_RUN=:"+run,
		fmt.Sprint("OMPI_COMM_WORLD_RANK=", r), fmt.Sprint("OMPI_COMM_WORLD_LOCAL_RANK=", local), fmt.Sprint("OMPI_COMM_WORLD_SIZE=", size))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	if l, err := bufio.NewReader(out).ReadString('\n'); l != "ready\n" {
		t.Fatalf("rank %d: %q, %v", r, l, err)
	}
	return cmd.Process.Pid
}

// TestAnyGPURanks: the GPU that the driver says a process holds is the one that
// the process's row has, whatever its local rank would suggest, and the
// driver's process has the rank that the process says it is. On the stand-in, or on
// the library that GSWARM_TEST_NVML names ("default": the system's), where each
// rank makes a CUDA context.
func TestAnyGPURanks(t *testing.T) {
	run := t.TempDir()
	cfg := control.AgentConfig{NVML: os.Getenv("GSWARM_TEST_NVML")}
	standin := cfg.NVML == ""
	if cfg.NVML == "default" {
		cfg.NVML = ""
	}
	if standin {
		lib, err := nvmltest.Build(t.TempDir(), nvmltest.Full)
		if err != nil {
			t.Fatal(err)
		}
		cfg.NVML = lib
	}
	tracker, err := rank.Open(rank.Options{UID: os.Geteuid(), Run: run, GPUs: func() rank.GPUs { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer tracker.Close()
	seen := &gpuLookup{}
	// The driver is opened twice: who holds what is told to the stand-in by
	// process ids, and to the real one by doing it.
	busIDs := openDriver(t, cfg, tracker, seen, nil)
	n := min(len(busIDs), 4)
	var pids []int
	var script []string
	for r := range n {
		bus, held := busIDs[n-1-r], n-1-r
		if standin {
			bus = "-"
		}
		pids = append(pids, startHolder(t, run, 10+r, r, 10+n, bus))
		script = append(script, fmt.Sprintf("process %d %d %d", held, pids[r], 1<<30))
	}
	if standin {
		if err := nvmltest.WriteScript(cfg.NVML, script...); err != nil {
			t.Fatal(err)
		}
	}
	tracker, err = rank.Open(rank.Options{UID: os.Geteuid(), Run: run, GPUs: func() rank.GPUs { return seen }})
	if err != nil {
		t.Fatal(err)
	}
	defer tracker.Close()
	out := rowsOut{}
	openDriver(t, cfg, tracker, seen, out)
	if err := tracker.Read(out); err != nil {
		t.Fatal(err)
	}

	holders := out.Batch(table.GPUProcess)
	if holders.Rows() < n {
		t.Fatalf("the driver names %d processes", holders.Rows())
	}
	found := 0
	for i, pid := range holders.Ints(table.ProcPID) {
		r := slices.Index(pids, int(pid))
		if r < 0 {
			t.Logf("the driver names process %d, which is not the test's", pid)
			continue
		}
		found++
		if got, gpu := holders.Ints(table.ProcRank)[i], holders.Ints(table.ProcGPU)[i]; got != int64(10+r) || gpu != int64(n-1-r) || !holders.Valid(table.ProcRank)[i] {
			t.Errorf("gpu_process: process %d has rank %d on GPU %d, want %d on %d", pid, got, gpu, 10+r, n-1-r)
		}
	}
	if found == 0 {
		t.Fatal("the driver names none of the ranks: it counts processes in another PID namespace")
	}
	ranks := out.Batch(table.Rank)
	for i, pid := range ranks.Ints(table.RankPID) {
		r := slices.Index(pids, int(pid))
		if r < 0 {
			continue
		}
		found--
		gpu, source := ranks.Ints(table.RankGPU)[i], ranks.Strings(table.RankGPUSource)[i]
		t.Logf("rank %d, process %d: GPU %d by %s", ranks.Ints(table.RankRank)[i], pid, gpu, source)
		if gpu != int64(n-1-r) || source != "nvml" || ranks.Ints(table.RankRank)[i] != int64(10+r) {
			t.Errorf("rank: process %d has rank %d on GPU %d by %q, want %d on %d by nvml", pid, ranks.Ints(table.RankRank)[i], gpu, source, 10+r, n-1-r)
		}
	}
	if found != 0 {
		t.Errorf("%d ranks that hold a GPU have no row", found)
	}
}

// openDriver opens the driver as the agent does, lets it list the processes of
// each GPU into out unless that is nil, and closes it again. It returns the
// GPUs' bus ids.
func openDriver(t *testing.T, cfg control.AgentConfig, tracker *rank.Tracker, seen *gpuLookup, out rowsOut) []string {
	t.Helper()
	opened, err := gpuOpener(cfg, clock.System{}, tracker.RankOf, seen).Open(out)
	if err != nil {
		t.Fatal(err)
	}
	if opened.Close == nil {
		t.Fatal("no driver")
	}
	for _, s := range opened.Sources {
		if out != nil && strings.HasPrefix(s.Name(), "processes ") {
			if err := s.Read(out); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	var meta rundir.NodeMeta
	opened.Describe(&meta)
	infos, ok := meta.GPUs.([]gpu.Info)
	if !ok {
		t.Fatalf("meta.yaml has %T", meta.GPUs)
	}
	var busIDs []string
	for _, info := range infos {
		busIDs = append(busIDs, info.PCIBusID)
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
	return busIDs
}
