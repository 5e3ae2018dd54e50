package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gswarm/gswarm/rankagent/gpu"
)

func TestGPULookup(t *testing.T) {
	proc := t.TempDir()
	for bus, minor := range map[string]string{"0000:18:00.0": "1", "0000:2a:00.0": "0"} {
		if err := os.Mkdir(filepath.Join(proc, bus), 0o700); err != nil {
			t.Fatal(err)
		}
		text := "Model: \t\t NVIDIA H200\nDevice Minor: \t " + minor + "\nGPU Excluded:\t No\n"
		if err := os.WriteFile(filepath.Join(proc, bus, "information"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one := 1
	l := &gpuLookup{}
	if _, ok := l.ByUUID("GPU-aa"); ok || l.Count() != 0 {
		t.Error("knows GPUs that nobody told it of")
	}
	l.known.Store(lookupOf([]gpu.Info{
		{Index: 0, UUID: "GPU-aa11", PCIBusID: "00000000:18:00.0"},
		{Index: 1, UUID: "GPU-aa22", PCIBusID: "00000000:2A:00.0", NUMANode: &one},
		{Index: 2},
	}, proc))
	check := func(what string, got int, ok bool, want int) {
		t.Helper()
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: %d %v, want %d", what, got, ok, want)
		}
	}
	g, ok := l.ByUUID("GPU-aa22")
	check("uuid", g, ok, 1)
	g, ok = l.ByUUID("GPU-aa1")
	check("short uuid", g, ok, 0)
	g, ok = l.ByUUID("GPU-aa")
	check("ambiguous uuid", g, ok, -1)
	g, ok = l.ByMinor(0)
	check("minor", g, ok, 1)
	g, ok = l.ByMinor(7)
	check("no such minor", g, ok, -1)
	g, ok = l.NUMANode(1)
	check("node", g, ok, 1)
	if gpus, ok := l.OfPID(7); ok || len(gpus) > 0 {
		t.Error("knows holders that nobody told it of")
	}
	l.held(1, []int{7, 8})
	l.held(0, []int{7})
	if gpus, ok := l.OfPID(7); !ok || !slices.Equal(gpus, []int{0, 1}) {
		t.Errorf("process 7 holds %v", gpus)
	}
	g, ok = l.NUMANode(0)
	check("no node", g, ok, -1)
}
