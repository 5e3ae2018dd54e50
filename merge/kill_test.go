package merge

import (
	"context"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const killEnv = "GSWARM_X_TEST_MERGE"

// TestMain merges instead of testing where the environment says so: a process
// that the test below can kill.
func TestMain(m *testing.M) {
	if dir := os.Getenv(killEnv); dir != "" {
		opts := Options{Sort: os.Getenv(killEnv+"_SORT") != ""}
		if os.Getenv(killEnv+"_TASK") != "" {
			opts.Tasks = 2
			if os.Getenv(killEnv+"_TASK") == "1" {
				opts.Task = 1
			}
		}
		if _, err := Run(context.Background(), dir, opts); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestKilledAtAnyInstant kills merges and runs them again: readers see the
// timeline of before, none, or the whole one, and the last is as if nothing had
// happened.
func TestKilledAtAnyInstant(t *testing.T) {
	dir := testRun{nodes: 2, seconds: 35, seal: true, killed: -1}.write(t)
	rng := rand.New(rand.NewSource(1))
	for _, env := range [][]string{{}, {killEnv + "_SORT=1"}, {killEnv + "_TASK=0"}} {
		os.RemoveAll(filepath.Join(dir, "timeline"))
		begin := time.Now()
		want := whole(t, dir, Options{Sort: len(env) > 0 && env[0] == killEnv+"_SORT=1"})
		took := 2 * time.Since(begin)
		for range 6 {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(append(os.Environ(), killEnv+"="+dir), env...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rng.Int63n(int64(took))))
			cmd.Process.Kill()
			cmd.Wait()
			if _, err := os.Stat(filepath.Join(dir, "timeline")); err == nil {
				sameTree(t, want, tree(t, dir))
			}
		}
		if len(env) > 0 && env[0] == killEnv+"_TASK=0" {
			for i := range 2 {
				if _, err := Run(context.Background(), dir, Options{Task: i, Tasks: 2}); err != nil {
					t.Fatal(err)
				}
			}
			sameTree(t, want, tree(t, dir))
		} else {
			sameTree(t, want, whole(t, dir, Options{Sort: len(env) > 0}))
		}
		noLeftovers(t, dir)
	}
}
