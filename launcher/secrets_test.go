package launcher_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/rundir"
)

// holds lists the files below dir in which text occurs.
func holds(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestSecretsAreNotRecorded plants secrets where jobs have them.
func TestSecretsAreNotRecorded(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	n := 0
	secret := func() string { n++; return fmt.Sprintf("planted%dsecret", n) }
	env := append(os.Environ(),
		"WANDB_API_KEY="+secret(), "HF_TOKEN="+secret(), "AWS_SECRET_ACCESS_KEY="+secret(), "DB_PASSWORD="+secret(),
		"NCCL_AUTH_TOKEN="+secret(), "CUDA_LICENSE_KEY="+secret(), "OMP_PASS="+secret(), "NCCL_DEBUG=INFO",
		"GSWARM_TOKEN="+secret(), "SLURM_JWT="+secret(), "RANDOM_NAME="+secret(),
		"NCCL_NET_PLUGIN=https://user:"+secret()+"@host/x")
	job := []string{
		"sh", "-c", "sleep 1.2; exit 2", "--token=" + secret(), "--api-key", secret(), "-password=" + secret(),
		"DB_PASSWORD=" + secret(), "https://user:" + secret() + "@host/x", `{"secret": "` + secret() + `"}`,
	}
	if err := os.WriteFile(filepath.Join(dir, "gswarm.yaml"), []byte("# token: "+secret()+"\ninterval: 100ms\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program(t), append([]string{"wrap", "-o", "run", "--"}, job...)...)
	cmd.Dir, cmd.Env = dir, env
	o := finish(t, cmd)
	if o.status != 2<<8 {
		t.Fatalf("%v", o)
	}
	if !strings.Contains(o.stderr, "GSWARM_TOKEN") {
		t.Errorf("the unknown variable is not noted: %s", o.stderr)
	}
	run := filepath.Join(dir, "run")
	if len(holds(t, run, "[redacted]")) == 0 || len(holds(t, run, "NCCL_DEBUG")) == 0 {
		t.Error("the run records neither the command nor the environment: this test looks at the wrong place")
	}
	if found := holds(t, run, "planted"); len(found) > 0 || strings.Contains(o.stderr, "planted") {
		for _, f := range found {
			b, _ := os.ReadFile(f)
			i := bytes.Index(b, []byte("planted"))
			t.Errorf("%s: …%q", f, b[max(0, i-40):min(len(b), i+40)])
		}
		t.Errorf("stderr: %s", o.stderr)
	}
}

// TestKeyStaysHidden: behind a launcher that spans nodes the head publishes a
// key. While the run goes on it stands in one 0600 file, in no command line and
// no environment; when the run is over it stands nowhere.
func TestKeyStaysHidden(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	log := filepath.Join(dir, "log")
	c := &child{t: t, log: log, done: make(chan outcome, 1)}
	// As Open MPI starts rank 0 of a job of two nodes, of which the other
	// does not come.
	ompi := []string{"/usr/bin/env", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
		"OMPI_COMM_WORLD_LOCAL_SIZE=1", "PMIX_NAMESPACE=" + fmt.Sprint(os.Getpid())}
	c.start(append(ompi, wrapped(t, dir, self("wait", log)...)...), dir)
	d := rundir.Dir(filepath.Join(dir, "run"))
	until(t, "the head's address", func() bool { _, err := os.Stat(d.HeadFile()); return err == nil })
	if st, err := os.Stat(d.HeadFile()); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	text, err := os.ReadFile(d.HeadFile())
	if err != nil {
		t.Fatal(err)
	}
	_, key, _ := strings.Cut(string(text), "key: ")
	key, _, _ = strings.Cut(key, "\n")
	raw, err := base64.RawStdEncoding.DecodeString(key)
	if err != nil || len(raw) != 32 {
		t.Fatalf("the key is not in %s", text)
	}
	agent := waitAgent(t, dir, 0)
	pids := append(children(c.pid(), ""), c.pid(), agent)
	for _, pid := range pids {
		for _, file := range []string{"cmdline", "environ"} {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err != nil {
				t.Error(err)
			}
			if bytes.Contains(b, []byte(key)) || bytes.Contains(b, raw) {
				t.Errorf("the key is in %s of %s", file, statusField(pid, "Name"))
			}
		}
	}
	c.stdin.Close()
	if o := c.end(); o.status != 5<<8 {
		t.Errorf("ended with %v", o)
	}
	until(t, "the agent's end", func() bool { return unix.Kill(agent, 0) != nil })
	if found := append(holds(t, dir, key), holds(t, dir, string(raw))...); len(found) > 0 {
		t.Errorf("the key is still in %v", found)
	}
}

// TestModes: what a run writes is its user's business alone.
func TestModes(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	cmd := exec.Command("sh", append([]string{"-c", `umask 0; "$@"`, "sh"}, wrapped(t, dir, "true")...)...)
	if o := finish(t, cmd); o.status != 0 {
		t.Fatalf("%v", o)
	}
	err := filepath.WalkDir(filepath.Join(dir, "run"), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
