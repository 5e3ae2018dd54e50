package rundir

import (
	"os"
	"testing"
	"time"
)

// FuzzYAML reads any bytes as the run's and a node's YAML files. What it takes
// must be of a format that it knows, and must survive being written again.
func FuzzYAML(f *testing.F) {
	d := Dir(f.TempDir())
	if err := os.MkdirAll(d.Node("n"), DirMode); err != nil {
		f.Fatal(err)
	}
	now := time.Unix(1.7e9, 0)
	if err := WriteRun(d, &Run{ID: "x", Command: []string{"a", "b"}, Nodes: []string{"n"}, Begin: now, End: &now, Ranks: []Rank{{Rank: 1, Exit: &Exit{Signal: "KILL"}}}}); err != nil {
		f.Fatal(err)
	}
	if err := WriteNodeMeta(d, "n", &NodeMeta{Node: "n", Begin: now, End: &NodeEnd{Time: now, Reason: "x"}}); err != nil {
		f.Fatal(err)
	}
	for _, path := range []string{d.RunFile(), d.MetaFile("n")} {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Add(make([]byte, 300))
	f.Add([]byte("a: &a [*a, *a]\nformat: 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, path := range []string{d.RunFile(), d.MetaFile("n")} {
			if err := os.WriteFile(path, b, FileMode); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := ReadRun(d); err == nil {
			if r.Format != Format {
				t.Errorf("format %d was taken", r.Format)
			}
			if err := WriteRun(d, r); err != nil {
				t.Error(err)
			} else if _, err := ReadRun(d); err != nil {
				t.Errorf("what was read and written cannot be read: %v", err)
			}
		}
		if m, err := ReadNodeMeta(d, "n"); err == nil && m.Format != Format {
			t.Errorf("format %d was taken", m.Format)
		}
	})
}
