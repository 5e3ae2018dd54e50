package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestIdentityName(t *testing.T) {
	for _, c := range []struct {
		id   Identity
		want string
	}{
		{Identity{JobID: "12"}, "gswarm-12"},
		{Identity{JobID: "12", Stamp: "x", Restart: "0"}, "gswarm-12"},
		{Identity{JobID: "12", Task: "3"}, "gswarm-12_3"},
		{Identity{JobID: "12", Het: "0"}, "gswarm-12+0"},
		{Identity{JobID: "12", Restart: "2"}, "gswarm-12.r2"},
		{Identity{JobID: "12", Step: "0"}, "gswarm-12.0"},
		{Identity{JobID: "12", Task: "3", Het: "1", Restart: "4", Step: "5"}, "gswarm-12_3+1.r4.5"},
		{Identity{Stamp: "20260301T110000Z"}, "gswarm-20260301T110000Z"},
		{Identity{}, "gswarm-_"},
		{Identity{JobID: "../x", Task: "a/b", Step: "/"}, "gswarm-_../x"},
	} {
		want := strings.ReplaceAll(c.want, "_../x", "_.._x_a_b._")
		if got := c.id.Name(); got != want {
			t.Errorf("%+v: %s, want %s", c.id, got, want)
		}
	}
}

func FuzzCleanName(f *testing.F) {
	for _, s := range []string{"", ".", "..", "n1", "n1.site", "a/b", "\x00", "ü", strings.Repeat("é", 150), "-rf", "\xff\xfe", "~"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := CleanName(s)
		if c == "" || c[0] == '.' || len(c) > 201 || filepath.Base(c) != c || strings.Trim(c, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
			t.Errorf("%q became %q", s, c)
		}
		if again := CleanName(c); again != c && len(c) <= 200 {
			t.Errorf("%q became %q, then %q", s, c, again)
		}
		for _, n := range []string{c, Identity{JobID: s, Task: s, Het: s, Restart: s, Step: s}.Name()} {
			if strings.ContainsAny(n, "/\x00") {
				t.Errorf("%q", n)
			}
		}
	})
}

// TestCreateFreeRace: those that ask at once get one directory each.
func TestCreateFreeRace(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	const many = 40
	dirs := make([]Dir, many)
	var all sync.WaitGroup
	for i := range many {
		all.Add(1)
		go func() {
			defer all.Done()
			d, err := CreateFree(base, "gswarm-1")
			if err != nil {
				t.Error(err)
			}
			dirs[i] = d
		}()
	}
	all.Wait()
	slices.Sort(dirs)
	if n := len(slices.Compact(slices.Clone(dirs))); n != many {
		t.Errorf("%d directories for %d", n, many)
	}
	for _, want := range []string{"gswarm-1", "gswarm-1-2", fmt.Sprintf("gswarm-1-%d", many)} {
		st, err := os.Stat(filepath.Join(base, want))
		if err != nil || st.Mode().Perm() != DirMode {
			t.Errorf("%s: %v, %v", want, st, err)
		}
	}
}

func TestCreateFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := CreateFree(file, "x"); err == nil || d != "" {
		t.Errorf("%q, %v", d, err)
	}
	for _, path := range []string{file, filepath.Join(file, "x")} {
		if d, err := CreateAt(path, "id", false); err == nil || d != "" {
			t.Errorf("%q, %v", d, err)
		}
	}
}

func TestCreateAt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		there  func(d Dir) error
		alone  bool // may a run of one process take it
		joined bool // may a rank of run "id" join it
	}{
		{"nothing", nil, true, true},
		{"an empty directory", func(d Dir) error { return os.MkdirAll(string(d), 0o755) }, true, true},
		{"somebody's files", func(d Dir) error {
			return errors.Join(os.MkdirAll(string(d), 0o755), os.WriteFile(d.Join("notes"), nil, 0o600))
		}, true, true},
		{"this run", func(d Dir) error { return run(d, "id") }, false, true},
		{"another run", func(d Dir) error { return run(d, "id2") }, false, false},
		{"nodes without run.yaml", func(d Dir) error { return os.MkdirAll(d.Node("n1"), 0o700) }, false, true},
		{"a damaged run", func(d Dir) error {
			return errors.Join(os.MkdirAll(string(d), 0o700), os.WriteFile(d.RunFile(), []byte("{"), 0o600))
		}, false, false},
		{"an empty run.yaml", func(d Dir) error {
			return errors.Join(os.MkdirAll(string(d), 0o700), os.WriteFile(d.RunFile(), nil, 0o600))
		}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, join := range []bool{false, true} {
				d := Dir(filepath.Join(t.TempDir(), "a", "b"))
				if c.there != nil {
					if err := c.there(d); err != nil {
						t.Fatal(err)
					}
				}
				got, err := CreateAt(string(d)+"/./", "id", join)
				want := c.alone && !join || c.joined && join
				if (err == nil) != want || want && got != d {
					t.Errorf("join %v: %q, %v", join, got, err)
				}
				var other *OtherRunError
				if c.name == "another run" && (!errors.As(err, &other) || other.Identity != "id2" || !strings.Contains(err.Error(), "-o")) {
					t.Errorf("the error: %v", err)
				}
			}
		})
	}
}

func run(d Dir, identity string) error {
	return errors.Join(os.MkdirAll(string(d), 0o700), WriteRun(d, &Run{Identity: identity}))
}

// TestCreateAtRace: the ranks of a step come together.
func TestCreateAtRace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x", "gswarm-1.0")
	var all sync.WaitGroup
	for range 40 {
		all.Add(1)
		go func() {
			defer all.Done()
			if d, err := CreateAt(path, "1.0", true); err != nil || string(d) != path {
				t.Errorf("%q, %v", d, err)
			} else if err := WriteRun(d, &Run{Identity: "1.0"}); err != nil {
				t.Error(err)
			}
		}()
	}
	all.Wait()
	if left, _ := filepath.Glob(filepath.Join(path, ".*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestReadRun(t *testing.T) {
	t.Parallel()
	write := func(text string) func(d Dir) error {
		return func(d Dir) error { return os.WriteFile(d.RunFile(), []byte(text), 0o600) }
	}
	for _, c := range []struct {
		name  string
		there func(d Dir) error
		want  string // of the error, "" for none
	}{
		{"missing", func(Dir) error { return nil }, "no such file"},
		{"empty", write(""), "is empty: the program that wrote it was killed"},
		{"blank", write(" \n\n"), "is empty"},
		{"zeros", write(strings.Repeat("\x00", 4096)), "damaged"},
		{"damaged", write("format: 1\nid: [\n"), "damaged"},
		{"another type", write("format: 1\nbegin: yesterday\n"), "damaged"},
		{"not ours", write("a: 1\n"), "has no format number"},
		{"a list", write("- 1\n"), "damaged"},
		{"newer", write("format: 7\n"), "has format 7, this gswarm reads up to 1: use the gswarm that wrote it, or a newer one"},
		{"unknown keys", write("format: 1\nid: x\nlater: {a: 1}\n"), ""},
		{"a directory", func(d Dir) error { return os.Mkdir(d.RunFile(), 0o700) }, "reading run.yaml"},
		{"half written beside it", func(d Dir) error {
			return errors.Join(WriteRun(d, &Run{ID: "x"}), os.WriteFile(d.Join(".run.yaml.77.tmp"), []byte("format: 1\nid: [y"), 0o600))
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Dir(t.TempDir())
			if err := c.there(d); err != nil {
				t.Fatal(err)
			}
			r, err := ReadRun(d)
			switch {
			case c.want == "" && (err != nil || r.ID != "x"):
				t.Errorf("%+v, %v", r, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %s", err, c.want)
			}
			if errors.Is(err, fs.ErrNotExist) != (c.name == "missing") {
				t.Errorf("not there: %v", err)
			}
		})
	}
}

// TestCutRun: run.yaml cut anywhere is an error or a shorter run, never a panic.
func TestCutRun(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	code := &Exit{Code: 3, Signal: "SIGTERM"}
	if err := WriteRun(d, &Run{ID: "x", Command: []string{"a", "b: c"}, Nodes: []string{"n1"}, Exit: code, Config: map[string]string{"a": "b"}}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(d.RunFile())
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := os.WriteFile(d.RunFile(), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		ReadRun(d) // whatever it says
	}
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"one", "", "three"} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("%q, %v", b, err)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != FileMode {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := WriteFile(filepath.Join(dir, "none", "f"), nil); err == nil {
		t.Error("written into a directory that is not there")
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "d"), nil); err == nil {
		t.Error("replaced a directory")
	}
	if names, _ := os.ReadDir(dir); len(names) != 2 {
		t.Errorf("left over: %v", names)
	}
}
