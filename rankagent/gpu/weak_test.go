package gpu

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite weak.h")

// TestWeakList: weak.h names every function that go-nvml calls. One that it
// lacks would keep the program from starting where LD_BIND_NOW is set.
func TestWeakList(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Skipf("go list: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "pkg", "nvml", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of go-nvml, %v", len(files), err)
	}
	call := regexp.MustCompile(`\bC\.(nvml[A-Z]\w*)\(`)
	var want []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllStringSubmatch(string(b), -1) {
			want = append(want, m[1])
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	b, err := os.ReadFile("weak.h")
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(b), "#pragma weak")
	text := head + "#pragma weak " + strings.Join(want, "\n#pragma weak ") + "\n"
	if *update {
		if err := os.WriteFile("weak.h", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(b) != text {
		t.Error("weak.h is not what go-nvml calls; run: go test ./rankagent/gpu -run TestWeakList -update")
	}
}
