//go:build cgo && linux

package main

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gswarm/gswarm/rankagent/gpu/nvmltest"
	"github.com/gswarm/gswarm/rundir"
)

// TestBindNow takes the program as make builds it through an environment that
// asks for all symbols to be bound at the start: it starts, wraps, and its agent
// reads GPUs through a library that was not there at the start.
func TestBindNow(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program")
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "gswarm")
	if out, err := exec.Command("make", "-s", "-C", "../..", "BIN="+dir, "VERSION=test", "build").CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, tag := range []elf.DynTag{elf.DT_BIND_NOW, elf.DT_FLAGS, elf.DT_FLAGS_1} {
		values, err := f.DynValue(tag)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if tag == elf.DT_BIND_NOW || tag == elf.DT_FLAGS && v&uint64(elf.DF_BIND_NOW) != 0 || tag == elf.DT_FLAGS_1 && v&uint64(elf.DF_1_NOW) != 0 {
				t.Errorf("%v %#x: the program is bound at its start", tag, v)
			}
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	weak := 0
	for _, s := range symbols {
		if !strings.HasPrefix(s.Name, "nvml") || s.Section != elf.SHN_UNDEF {
			continue
		}
		weak++
		if elf.ST_BIND(s.Info) != elf.STB_WEAK {
			t.Errorf("%s is not weak", s.Name)
		}
	}
	if weak < 100 {
		t.Errorf("only %d functions of NVML are looked up at run time", weak)
	}

	lib, err := nvmltest.Build(dir, nvmltest.Full)
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(dir, "run")
	cmd := exec.Command(bin, "wrap", "--strict", "-o", run, "--x-nvml", lib, "--", "/bin/sh", "-c", `echo "$LD_BIND_NOW"; sleep 1; exit 7`)
	cmd.Env = append(os.Environ(), "LD_BIND_NOW=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 7 || stdout.String() != "1\n" {
		t.Fatalf("the job ended with %d (%v), said %q\n%s", code, err, stdout.String(), stderr.String())
	}
	metas, err := filepath.Glob(filepath.Join(string(rundir.Dir(run)), "nodes", "*", "meta.yaml"))
	if err != nil || len(metas) != 1 {
		t.Fatalf("%d nodes, %v", len(metas), err)
	}
	if b, err := os.ReadFile(metas[0]); err != nil || !strings.Contains(string(b), "gpu_driver: ok") {
		t.Errorf("the agent found no GPUs, %v:\n%s", err, b)
	}
	// An agent that is handed the variable drops it itself.
	cmd = exec.Command(bin, "agent")
	cmd.Env = append(os.Environ(), "LD_BIND_NOW=1")
	cmd.Stdin = strings.NewReader("no configuration")
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("the agent ended with %d: %s", cmd.ProcessState.ExitCode(), out)
	}
}
