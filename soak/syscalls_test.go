package soak_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSystemCalls counts, with strace, the system calls by which a whole run
// asks the filesystem for names: at most 30 a tile, which is 0.1 a second at
// tiles of five minutes, beside what the begin and the end of a run cost.
func TestSystemCalls(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if os.Getenv("GSWARM_SOAK") == "" || err != nil {
		t.Skip("in the full set, where there is strace")
	}
	flags := replay(t)
	count := func(seconds string) (calls map[string]int, sum int) {
		w := &wrapped{t: t, cwd: t.TempDir()}
		out := filepath.Join(t.TempDir(), "strace")
		args := append([]string{"-f", "-qq", "-o", out, "-e", "trace=%file", binary, "wrap", "-q", "-o", "run", "--tile", "4s"}, flags...)
		cmd := exec.Command(strace, append(args, "--", "sleep", seconds)...)
		cmd.Dir = w.cwd
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		w.gone()
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		calls = map[string]int{}
		name := regexp.MustCompile(`^\d+ +(\w+)\(`)
		for line := range strings.Lines(string(b)) {
			if m := name.FindStringSubmatch(line); m != nil && strings.Contains(line, `"run/nodes`) || m != nil && strings.Contains(line, w.run()+"/nodes") {
				calls[m[1]]++
				sum++
			}
		}
		return calls, sum
	}
	short, few := count("6")
	long, many := count("26")
	t.Logf("6 s: %d %v", few, short)
	t.Logf("26 s, five tiles more: %d %v", many, long)
	if perTile := float64(many-few) / 5; perTile > 30 {
		t.Errorf("%.1f requests a tile", perTile)
	} else {
		t.Logf("%.1f requests a tile, %.3f a second at tiles of five minutes", perTile, perTile/300)
	}
}
