// Package nvmltest builds the stand-in for libnvidia-ml.so.1 whose C sources lie
// in testdata/nvml, writes its scripts, and reads the recording that it replays.
// It is for tests only.
package nvmltest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Variant is a build of the stand-in.
type Variant string

// The variants.
const (
	Full Variant = ""               // every function that gswarm calls
	Old  Variant = "-DSTANDIN_OLD"  // without what drivers of the 450 series lack
	Bare Variant = "-DSTANDIN_BARE" // nvmlInit and nvmlShutdown only
)

// ErrNoCompiler is returned by Build where there is no C compiler.
var ErrNoCompiler = errors.New("no C compiler")

// RecordingName is the name of the recording beside the library.
const RecordingName = "h200x8.rec"

// flags are those of testdata/nvml/Makefile.
var flags = []string{
	"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden",
}

// Sources returns the directory testdata/nvml, which it looks for in the working
// directory and above it, so that it is found wherever the tree was built.
func Sources() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		src := filepath.Join(dir, "testdata", "nvml")
		if _, err := os.Stat(filepath.Join(src, RecordingName)); err == nil {
			return src, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("testdata/nvml is neither here nor above")
		}
		dir = parent
	}
}

// Build compiles a variant into dir, puts the recording beside it and returns
// the library's path. A process should load one library only: go-nvml's calls
// stay bound to the first.
func Build(dir string, v Variant) (string, error) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		return "", fmt.Errorf("building the NVML stand-in: %w: %w", ErrNoCompiler, err)
	}
	src, err := Sources()
	if err != nil {
		return "", fmt.Errorf("building the NVML stand-in: %w", err)
	}
	lib := filepath.Join(dir, "libnvidia-ml.so.1")
	args := append([]string{}, flags...)
	if v != Full {
		args = append(args, string(v))
	}
	args = append(args, "-o", lib)
	for _, f := range []string{"nvml.c", "counter.c", "gpm.c", "replay.c", "script.c"} {
		args = append(args, filepath.Join(src, f))
	}
	// The go command caches results by the files that the test itself looks
	// at; those that the compiler reads have to be among them.
	for _, f := range []string{"nvml.c", "counter.c", "gpm.c", "replay.c", "script.c", "standin.h"} {
		if _, err := os.Stat(filepath.Join(src, f)); err != nil {
			return "", fmt.Errorf("building the NVML stand-in: %w", err)
		}
	}
	args = append(args, "-ldl", "-lpthread")
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the NVML stand-in: %w\n%s", err, out)
	}
	rec, err := os.ReadFile(filepath.Join(src, RecordingName))
	if err != nil {
		return "", fmt.Errorf("building the NVML stand-in: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, RecordingName), rec, 0o644); err != nil {
		return "", fmt.Errorf("building the NVML stand-in: %w", err)
	}
	return lib, nil
}

// WriteScript puts a script of the given lines beside the library; the next
// nvmlInit reads it.
func WriteScript(lib string, lines ...string) error {
	path := filepath.Join(filepath.Dir(lib), "nvml.script")
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// Load reads the recording in the source tree.
func Load() (*Recording, error) {
	src, err := Sources()
	if err != nil {
		return nil, fmt.Errorf("loading the recording: %w", err)
	}
	b, err := os.ReadFile(filepath.Join(src, RecordingName))
	if err != nil {
		return nil, fmt.Errorf("loading the recording: %w", err)
	}
	return Unmarshal(b)
}
