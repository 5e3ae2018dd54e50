package rank

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/table"
)

// TestCgroup2 reads the groups of a real cgroup v2 mount, which is all that the
// agent's side sees: where the controllers are bound to v1, pressure only, else
// limits that a process runs into as well.
func TestCgroup2(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	agent := exec.Command(os.Args[0])
	agent.Env = append(os.Environ(), being("cgroup2", t.TempDir()), runVar+"=:"+t.Name())
	agent.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	b, err := agent.CombinedOutput()
	t.Logf("%s", b)
	if err != nil {
		t.Error(err)
	}
}

const (
	cgroupRoot  = "/sys/fs/cgroup"
	memoryLimit = 64 << 20
)

// underCgroup2 is the agent's side, in a mount namespace of its own.
func underCgroup2(dir string) (err error) {
	if err := errors.Join(unix.Unmount(cgroupRoot, unix.MNT_DETACH), unix.Mount("cgroup2", cgroupRoot, "cgroup2", 0, "")); err != nil {
		return fmt.Errorf("mounting cgroup2: %w", err)
	}
	outer := filepath.Join(cgroupRoot, "gswarm-test-"+strconv.Itoa(os.Getpid()))
	inner := filepath.Join(outer, "step")
	var limited []string
	have, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range []string{"cpu", "memory"} {
		if slices.Contains(strings.Fields(string(have)), c) {
			limited = append(limited, c)
		}
	}
	fmt.Println("controllers of v2 with limits:", limited)
	write := func(dir, name, text string) {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for _, c := range limited {
		write(cgroupRoot, "cgroup.subtree_control", "+"+c)
	}
	err = errors.Join(err, os.Mkdir(outer, 0o755), os.Mkdir(inner, 0o755))
	defer func() {
		for range 500 { // a group is busy until its processes are reaped
			if os.Remove(inner); os.Remove(outer) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		err = errors.Join(err, errors.New("the group could not be removed"))
	}()
	// The limits are the outer group's, as Slurm sets a job's above its step.
	for _, c := range limited {
		switch c {
		case "cpu":
			write(outer, "cpu.max", "10000 100000")
		case "memory":
			write(outer, "memory.max", strconv.Itoa(memoryLimit))
		}
	}
	if err != nil {
		return err
	}

	large := ""
	if slices.Contains(limited, "memory") {
		large = filepath.Join(dir, "large")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{being("hungry", large), runVar + "=:" + ownRun(), "PMI_RANK=0"}
	group, err := os.Open(inner)
	if err != nil {
		return err
	}
	defer group.Close()
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd()), Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	return readCgroup2(inner, limited)
}

// readCgroup2 reads until the group's limits have been run into.
func readCgroup2(inner string, limited []string) error {
	tr, err := Open(Options{UID: 0, Run: ownRun()})
	if err != nil {
		return err
	}
	defer tr.Close()
	out := newFakeOut()
	cpu, memory := slices.Contains(limited, "cpu"), slices.Contains(limited, "memory")
	var wrong error
	for range 1000 {
		out.batch.Reset()
		if err := tr.Read(out); err != nil {
			return err
		}
		if out.batch.Rows() != 1 {
			wrong = fmt.Errorf("%d rows", out.batch.Rows())
		} else if c := tr.inOrder()[0].cgroup; c.own != inner || c.pressure != inner {
			wrong = fmt.Errorf("its group is %q and %q, want %q", c.own, c.pressure, inner)
		} else if wrong = asCgroup2Is(out, inner, cpu, memory); wrong == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%w\n%s", wrong, out.dump())
}

// asCgroup2Is compares a row with what is known of the group: what it has not is
// null with a reason, and what it has is not.
func asCgroup2Is(out *fakeOut, inner string, cpu, memory bool) error {
	b := out.batch
	pressure, err := os.ReadFile(filepath.Join(inner, "memory.pressure"))
	psi := err == nil && len(pressure) > 0
	for _, c := range []struct {
		col   int
		there bool
		least int64
	}{
		{table.RankPeriods, cpu, 1},
		{table.RankThrottled, cpu, 1},
		{table.RankThrottledTime, cpu, 1},
		{table.RankMemory, memory, 1},
		{table.RankMemoryLimit, memory, memoryLimit},
		{table.RankMemoryHits, memory, 1},
		{table.RankOOMKills, memory, 0},
		{table.RankPSICPUSome, psi, 0},
		{table.RankPSIMemSome, psi, 0},
		{table.RankPSIMemFull, psi, 0},
		{table.RankPSIIOSome, psi, 0},
		{table.RankPSIIOFull, psi, 0},
	} {
		name := table.Rank.Columns[c.col].Name
		if valid := b.Valid(c.col)[0]; valid != c.there {
			return fmt.Errorf("%s is there: %v, want %v", name, valid, c.there)
		} else if !valid {
			if said := out.absent[name+"[]"] + out.absent[fmt.Sprintf("%s[%d]", name, b.Ints(table.RankPID)[0])]; said == "" {
				return fmt.Errorf("%s is null without a reason", name)
			}
		} else if n := b.Ints(c.col)[0]; n < c.least {
			return fmt.Errorf("%s is %d, want at least %d", name, n, c.least)
		}
	}
	if memory && b.Ints(table.RankMemoryLimit)[0] != memoryLimit {
		return fmt.Errorf("the limit is %d", b.Ints(table.RankMemoryLimit)[0])
	}
	return nil
}

// beHungry uses a CPU, and the page cache by writing a file where one is named,
// until it is killed.
func beHungry(path string) {
	block := make([]byte, 1<<20)
	for path != "" {
		f, err := os.Create(path)
		if err != nil {
			return
		}
		for range 2 * memoryLimit / len(block) {
			f.Write(block)
		}
		f.Close()
	}
	for {
		runtime.Gosched()
	}
}
