package rank

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gswarm/gswarm/table"
)

// FuzzParse gives one text to every parser: none panics, and no number is
// negative.
func FuzzParse(f *testing.F) {
	trees, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range trees {
		a, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range a.Files {
			f.Add(string(file.Data))
		}
	}
	f.Add("1 (a) b) R 1 2 3\n")
	f.Add("0-3,5,7-6,99999999999")
	f.Fuzz(func(t *testing.T, text string) {
		ok := func(what string, n int64) {
			if n < 0 && n != absent {
				t.Errorf("%s: %d", what, n)
			}
		}
		if s, good := parseStat([]byte(text)); good {
			for _, n := range []int64{s.pid, s.ppid, s.minor, s.major, s.user, s.system, s.threads, s.start, s.rss, s.stack, s.cpu, s.blockDelay} {
				ok("stat", n)
			}
		}
		io := parseIO([]byte(text))
		for _, n := range []int64{io.read, io.write, io.readCall, io.writeCall, io.readCalls, io.writeCalls} {
			ok("io", n)
		}
		ok("lookup", lookup([]byte(text), "nr_throttled"))
		ok("stalled", stalled([]byte(text), "some"))
		ok("innermost", innermost([]byte(text)))
		if set, good := parseList(text); good {
			again, good := parseList(set.text())
			if !good || again.text() != set.text() || again.count() != set.count() {
				t.Errorf("%q: list %q", text, set.text())
			}
		}
		c := &cgroup{g: &groups{v1: map[string]*mount{}}, paths: parseCgroup(text)}
		c.slurmStep()
		c.name()
		for _, p := range c.paths {
			for _, m := range []mount{{"/", "/sys"}, {"/docker", "/sys"}} {
				for _, d := range m.at(p) {
					if len(d) < 4 || d[:4] != "/sys" {
						t.Errorf("%q leads to %q", p, d)
					}
				}
			}
		}
		env := environ(text)
		Identify(env.get)
		environment(env)
		visibleGPUs(env)
		appendEntries(nil, []byte(text))
		if s := clean(text, 16); len(s) > 3*16 {
			t.Errorf("%q is %q", text, s)
		}
	})
}

// FuzzRead puts one text in the place of each of a process's files: no text
// makes a reading panic or gives a value that cannot be.
func FuzzRead(f *testing.F) {
	f.Add("11 (app) S 10 11 11 0 -1 4194304 5000 0 3 0 100 20 0 0 20 0 1 0 110 100000000 1000\n", "rchar: 1\n", "1 2 3\n")
	f.Add("", "", "")
	root := unpack(f, "openmpi-bare")
	at := func(name string) string { return filepath.Join(root, "proc/11", name) }
	f.Fuzz(func(t *testing.T, stat, io, sched string) {
		put(t, at("stat"), stat)
		put(t, at("io"), io)
		put(t, at("schedstat"), sched)
		put(t, at("cgroup"), sched)
		o := options(root)
		o.Run = "/r"
		tr, out := open(t, o), newFakeOut()
		for range 2 {
			if err := tr.Read(out); err != nil {
				t.Fatal(err)
			}
		}
		b := out.batch
		for row := range b.Rows() {
			for i, c := range table.Rank.Columns {
				if c.Type != table.String && b.Valid(i)[row] && (b.Ints(i)[row] < 0 || c.Type == table.Int32 && b.Ints(i)[row] > 1<<31-1) {
					t.Errorf("%s = %d", c.Name, b.Ints(i)[row])
				}
			}
		}
	})
}
