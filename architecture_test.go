// Package gswarm_test holds the tests of the module as a whole.
package gswarm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gswarm/gswarm"

// pkg is what go list tells of a package.
type pkg struct {
	ImportPath        string
	Doc               string
	GoFiles, CgoFiles []string
	Imports, Deps     []string
}

// name is the package's path in the module.
func (p pkg) name() string { return short(p.ImportPath) }

// short returns the path in the module of one of its packages, and any other
// path as it is.
func short(path string) string { return strings.TrimPrefix(path, module+"/") }

// packages lists the module's packages that have code besides tests.
func packages(t *testing.T, cgo string) []pkg {
	t.Helper()
	touchSources(t)
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,GoFiles,CgoFiles,Imports,Deps", "./...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles)+len(p.CgoFiles) > 0 {
			all = append(all, p)
		}
	}
}

// touchSources looks at every source file, so that go test knows what the
// result rests on and does not take a cached one for it.
func touchSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// tableAfter returns the rows of the table that follows a marker in
// ARCHITECTURE.md, without its heading; the quoted words of a cell are what
// counts.
func tableAfter(t *testing.T, marker string) [][]string {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "<!-- "+marker+":")
	if !ok {
		t.Fatalf("ARCHITECTURE.md has no marker %q", marker)
	}
	var rows [][]string
	for l := range strings.Lines(rest) {
		switch {
		case strings.HasPrefix(l, "|"):
			rows = append(rows, strings.Split(strings.Trim(strings.TrimSpace(l), "|"), "|"))
		case len(rows) > 0:
			return rows[2:]
		}
	}
	t.Fatalf("ARCHITECTURE.md has no table after marker %q", marker)
	return nil
}

// words returns the words of a cell that stand in back quotes.
func words(cell string) []string {
	var ws []string
	for i, w := range strings.Split(cell, "`") {
		if i%2 == 1 {
			ws = append(ws, w)
		}
	}
	return ws
}

// under reports whether path is prefix or below it.
func under(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// standard reports whether a path is the standard library's.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// problems says where packages break the tables.
func problems(all []pkg, allowed, never [][]string) []string {
	var wrong []string
	may := map[string][][]string{}
	for _, row := range allowed {
		names := words(row[0])
		if len(row) != 3 || len(names) != 1 || may[names[0]] != nil {
			wrong = append(wrong, "ARCHITECTURE.md: not a row of three cells for a package of its own: "+strings.Join(row, "|"))
			continue
		}
		may[names[0]] = [][]string{words(row[1]), words(row[2])}
	}
	for _, p := range all {
		if p.Doc == "" {
			wrong = append(wrong, p.name()+" has no package comment")
		}
		ok := may[p.name()]
		if ok == nil {
			wrong = append(wrong, p.name()+" is not in the table of imports")
			continue
		}
		for _, i := range p.Imports {
			switch {
			case under(i, module):
				if !slices.Contains(ok[0], short(i)) {
					wrong = append(wrong, p.name()+" imports "+short(i))
				}
			case standard(i):
			case !slices.ContainsFunc(ok[1], func(prefix string) bool { return under(i, prefix) }):
				wrong = append(wrong, p.name()+" imports "+i)
			}
		}
		for _, row := range never {
			if !slices.Equal(words(row[0]), []string{p.name()}) {
				continue
			}
			for _, forbidden := range words(row[1]) {
				for _, d := range p.Deps {
					// A package of the module is meant alone: rankagent may
					// not know its sources, but it is one of their parents.
					if d == module+"/"+forbidden || !standard(forbidden) && under(d, forbidden) {
						wrong = append(wrong, p.name()+" reaches "+short(d)+": "+strings.TrimSpace(row[2]))
					}
				}
			}
		}
	}
	return wrong
}

// TestImports holds the code against the tables of ARCHITECTURE.md, with and
// without cgo.
func TestImports(t *testing.T) {
	allowed, never := tableAfter(t, "imports"), tableAfter(t, "never")
	for _, cgo := range []string{"0", "1"} {
		all := packages(t, cgo)
		if len(all) < 10 {
			t.Fatalf("go list finds %d packages", len(all))
		}
		for _, p := range problems(all, allowed, never) {
			t.Errorf("CGO_ENABLED=%s: %s", cgo, p)
		}
	}
	for _, row := range never {
		if len(words(row[0])) != 1 || len(words(row[1])) == 0 {
			t.Errorf("ARCHITECTURE.md: no package or nothing that it never reaches: %v", row)
		}
	}
}

// TestImportsCanFail shows each problem that TestImports looks for.
func TestImportsCanFail(t *testing.T) {
	allowed := [][]string{
		{" `a` ", " `b` ", " `github.com/x/y` "},
		{" `b` ", " ", " "},
		{" `c` ", " `a`, `d` ", " "},
		{" `d` ", " ", " `golang.org/x/sys` "},
	}
	never := [][]string{{" `c` ", " `b`, `github.com/x` ", " so it is "}}
	in := func(name string) string { return module + "/" + name }
	all := []pkg{
		{ImportPath: in("a"), Doc: "x", Imports: []string{"fmt", "C", in("b"), in("c"), "github.com/x/y/z", "github.com/x/yy"}},
		{ImportPath: in("b"), Imports: []string{"os"}},
		{ImportPath: in("c"), Doc: "x", Imports: []string{in("a")}, Deps: []string{in("a"), in("b"), "github.com/x/y/z"}},
		{ImportPath: in("d"), Doc: "x", Imports: []string{"golang.org/x/sys/unix", "golang.org/x/text"}},
		{ImportPath: in("e"), Doc: "x"},
	}
	want := []string{
		"a imports c",
		"a imports github.com/x/yy",
		"b has no package comment",
		"c reaches b: so it is",
		"c reaches github.com/x/y/z: so it is",
		"d imports golang.org/x/text",
		"e is not in the table of imports",
	}
	if got := problems(all, allowed, never); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
