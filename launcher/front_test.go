package launcher_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/rundir"
)

// inJob makes a command one of a Slurm job's batch script on this node, with a
// srun of our own: what matters of the real one is that it runs a command with
// its stdin.
func inJob(t *testing.T, cmd *exec.Cmd, dir, srun string) {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "SLURM_JOB_ID=77", "SLURM_JOB_NODELIST="+host, "SLURM_NTASKS=9", "LOGS="+dir)
	if srun == "" {
		return
	}
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	if err := os.WriteFile(filepath.Join(bin, "srun"), []byte("#!/bin/sh\n"+srun), 0o700); err != nil {
		t.Fatal(err)
	}
}

// goodSrun notes how it was called and runs the command behind its flags.
const goodSrun = `echo "$@" >$LOGS/argv; env >$LOGS/env
while [ "${1#--}" != "$1" ]; do shift; done
tee $LOGS/stdin | "$@"
`

func TestFront(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, srun, job string
		status          syscall.WaitStatus
		said            string
	}{
		{"sampled", goodSrun, "sleep 0.5; exit 3", 3 << 8, "1 node sampled for "},
		{"short", goodSrun, "exit 4", 4 << 8, "1 node sampled for "},
		{"killed", goodSrun, "kill -TERM $$", 15, "1 node sampled for "},
		{"srun refuses", "echo 'srun: error: Unable to create step: no' >&2; exit 1", "exit 5", 5 << 8, ": srun: error: Unable to create step: no\n"},
		{"agent dies", "kill -9 $$", "exit 6", 6 << 8, "no agent on "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			cmd := exec.Command(program(t), "wrap", "--", "sh", "-c", "echo out; "+c.job)
			cmd.Dir = dir
			inJob(t, cmd, dir, c.srun)
			o := finish(t, cmd)
			if o.status != c.status || o.stdout != "out\n" || !strings.Contains(o.stderr, c.said) {
				t.Errorf("%v", o)
			}
			r, err := rundir.ReadRun(rundir.Dir(filepath.Join(dir, "gswarm-77")))
			if err != nil {
				t.Fatal(err)
			}
			if r.End == nil || r.Exit == nil || r.Scheduler.JobID != "77" || r.Scheduler.Position != "front" || len(r.Nodes) != 1 {
				t.Errorf("run.yaml: %+v", r)
			}
			if c.srun == goodSrun {
				checkKey(t, dir)
			}
		})
	}
}

// checkKey looks where the key must not be, after it was handed over on stdin.
func checkKey(t *testing.T, dir string) {
	t.Helper()
	stdin, err := os.ReadFile(filepath.Join(dir, "stdin"))
	if err != nil {
		t.Fatal(err)
	}
	_, key, found := bytes.Cut(stdin, []byte(`"key":"`))
	key, _, _ = bytes.Cut(key, []byte(`"`))
	if !found || len(key) != 43 {
		t.Fatalf("no key on the agents' stdin: %s", stdin)
	}
	os.Remove(filepath.Join(dir, "stdin"))
	if found := holds(t, dir, string(key)); len(found) > 0 {
		t.Errorf("the key is in %v", found)
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil || bytes.Contains(env, []byte("SLURM_NTASKS")) {
		t.Errorf("the agents' srun inherits the job's settings: %v", err)
	}
}

func TestFrontWithoutSrun(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	cmd := exec.Command(program(t), "wrap", "--", "/bin/sh", "-c", "exit 5")
	cmd.Dir = dir
	inJob(t, cmd, dir, "")
	cmd.Env = append(cmd.Env, "PATH=/none")
	if o := finish(t, cmd); o.status != 5<<8 || !strings.Contains(o.stderr, "no node is sampled: starting the agents: ") {
		t.Errorf("%v", o)
	}
}

func TestFrontCommandThatDoesNotStart(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	cmd := exec.Command(program(t), "wrap", "--", "./none")
	cmd.Dir = dir
	inJob(t, cmd, dir, goodSrun)
	if o := finish(t, cmd); o.status != 127<<8 {
		t.Errorf("%v", o)
	}
	if found := glob(dir, "gswarm*"); len(found) != 0 {
		t.Errorf("it left %v", found)
	}
}

// TestFrontInterrupted: who asks wrap to end when the job is over and agents
// hang gets what the job's end was.
func TestFrontInterrupted(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	cmd := exec.Command(program(t), "wrap", "-q", "--", "sh", "-c", "echo $$ >pid; exit 3")
	cmd.Dir = dir
	inJob(t, cmd, dir, fmt.Sprintf("echo $$ >%s/srun; exec sleep 60", dir))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the job's end", func() bool {
		return len(glob(dir, "pid")) == 1 && len(glob(dir, "srun")) == 1 && len(children(cmd.Process.Pid, "sh")) == 0
	})
	unix.Kill(cmd.Process.Pid, unix.SIGINT)
	cmd.Wait() // the status is looked at
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws != 3<<8 {
		t.Errorf("ended with %#x", uint32(ws))
	}
	b, _ := os.ReadFile(filepath.Join(dir, "srun"))
	var pid int
	if _, err := fmt.Sscan(string(b), &pid); err == nil {
		unix.Kill(pid, unix.SIGKILL)
	}
}
