package rundir

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const roleVar = "GSWARM_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) == "lock" { // an agent as far as locks show
		f, err := os.OpenFile(os.Args[1], os.O_RDWR, 0)
		if err == nil {
			err = LockSpool(f)
		}
		fmt.Println(err)
		os.Stdin.Read(make([]byte, 1)) // until killed
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestAlive(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	add := func(node, host string, ended bool) string {
		t.Helper()
		path := d.Spool(node, 1)
		m := &NodeMeta{Node: node, Host: host}
		if ended {
			m.End = &NodeEnd{Time: time.Now(), Reason: "ranks gone"}
		}
		err := errors.Join(os.MkdirAll(d.Node(node), 0o700), os.WriteFile(path, nil, 0o600), WriteNodeMeta(d, node, m))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	if alive, err := d.Alive(time.Now()); err != nil || len(alive) != 0 {
		t.Errorf("no nodes: %v, %v", alive, err)
	}
	running := add("running", host, false)
	add("killed", host, false)
	lock(t, add("ended, but somebody reads", host, true))
	unwritten := add("before meta.yaml", host, false)
	os.Remove(d.MetaFile("before meta.yaml"))
	lock(t, unwritten)
	damaged := add("damaged meta.yaml", host, false)
	if err := os.WriteFile(d.MetaFile("damaged meta.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lock(t, damaged)
	if err := os.MkdirAll(d.Node("empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	// On a local filesystem the lock alone counts, wherever it was written.
	if _, shared := Filesystem(string(d)); !shared {
		add("copied from elsewhere", "elsewhere", false)
	}
	agent := lock(t, running)

	want := []string{"before meta.yaml", "damaged meta.yaml", "running"}
	if alive, err := d.Alive(time.Now()); err != nil || !slices.Equal(alive, want) {
		t.Errorf("%q, %v, want %q", alive, err, want)
	}
	f, err := os.OpenFile(running, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := LockSpool(f); err == nil {
		t.Error("locked twice")
	}
	agent.Kill()
	agent.Wait()
	if err := LockSpool(f); err != nil {
		t.Errorf("the lock outlived its holder: %v", err)
	}
	f.Close()
	if alive, err := d.Alive(time.Now()); err != nil || !slices.Equal(alive, want[:2]) {
		t.Errorf("%q, %v, want %q", alive, err, want[:2])
	}
}

// lock has another process lock a file until it is killed.
func lock(t *testing.T, path string) *os.Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, path)
	cmd.Env = append(os.Environ(), roleVar+"=lock")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "<nil>\n" {
		t.Fatalf("locking %s: %s, %v", path, line, err)
	}
	return cmd.Process
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if d, err := Find(""); !errors.Is(err, ErrNoRun) {
		t.Errorf("%q, %v", d, err)
	}
	begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i, name := range []string{"gswarm-10", "gswarm-9", "gswarm-8", "gswarm-damaged", "gswarm-none"} {
		d := Dir(name)
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		switch {
		case i < 3:
			when := begin.Add(time.Duration((i+2)%3) * time.Hour) // 9 is the first, 8 the second
			if err := WriteRun(d, &Run{Begin: when}); err != nil {
				t.Fatal(err)
			}
		case i == 3:
			os.WriteFile(d.RunFile(), []byte("{"), 0o600)
		}
	}
	if d, err := Find(""); err != nil || d != "gswarm-10" {
		t.Errorf("%q, %v", d, err)
	}
	if d, err := Find("gswarm-9/"); err != nil || d != "gswarm-9" {
		t.Errorf("%q, %v", d, err)
	}
	for _, bad := range []string{"none", "gswarm-none", filepath.Join("gswarm-9", "run.yaml")} {
		if d, err := Find(bad); err == nil {
			t.Errorf("%s: %q", bad, d)
		}
	}
}
