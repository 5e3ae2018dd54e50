package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs testdata/script/*.txtar with the real binary: what a user
// types and what it prints. GSWARM_UPDATE_SCRIPTS=1 rewrites expected output.
func TestScripts(t *testing.T) {
	bin := buildBinary(t)
	testscript.Run(t, testscript.Params{
		Dir:           "../../testdata/script",
		UpdateScripts: os.Getenv("GSWARM_UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(bin)+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("TMPDIR", env.WorkDir)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			return cond == "root" && os.Getuid() == 0, nil
		},
	})
}

// buildBinary builds gswarm once for all scripts: the agent is a process of its
// own, so the test binary cannot stand in.
func buildBinary(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "gswarm")
	args := []string{"build", "-o", bin}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, ".")...).CombinedOutput()
	if err != nil {
		t.Fatalf("building gswarm: %v\n%s", err, out)
	}
	return bin
}
