package rankagent

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// requestsPerTile is what 0.1 metadata operations a second allow in a tile of
// five minutes.
const requestsPerTile = 30

// TestMetadataRequests counts what a node asks of its filesystem's metadata in
// one tile in which every table has rows: the kernel's own notification tells
// of each open, creation, renaming and removal. It also looks at how many files
// are open meanwhile.
func TestMetadataRequests(t *testing.T) {
	w := newTroubled(t)
	w.create = shard.CreateSpool
	// Real files from here on.
	w.rotate()
	w.flushed()
	dir := w.dir.Node("n1")
	seals(t, dir, 1)
	tile := func() {
		for _, tb := range table.All() {
			w.c.add(someRow(tb, w.clk.now.Add(1e8)), 1)
		}
		w.flushed()
		w.rotate()
		w.flushed()
	}

	requests := watch(t, dir)
	most := make(chan int)
	stop := make(chan struct{})
	go func() { most <- openFiles(string(w.dir), stop) }()
	tile()
	seals(t, dir, 2)
	n := requests()
	close(stop)
	if n > requestsPerTile {
		t.Errorf("%d requests a tile; %d are allowed", n, requestsPerTile)
	}
	t.Logf("%d requests a tile, with %d tables", n, len(table.All()))
	if open := <-most; open > 2 {
		t.Errorf("%d files were open at once", open)
	}
	if err := w.end("done", nothing); err != nil {
		t.Fatal(err)
	}
}

// someRow is a row of a table, whatever it means.
func someRow(tb *table.Table, at int64) *table.Batch {
	b := table.NewBatch(tb, 1)
	r := b.Append()
	for i, c := range tb.Columns {
		switch c.Type {
		case table.String:
			r.String(i, "x")
		case table.Float32, table.Float64:
			r.Float(i, 1)
		default:
			r.Int(i, 1)
		}
	}
	r.Read(at, at+10)
	return b
}

// seals waits until the n-th spool has been sealed.
func seals(t *testing.T, dir string, n int) {
	t.Helper()
	for range 1000 {
		if m, _ := filepath.Glob(filepath.Join(dir, "spool-*")); len(m) == 1 && strings.HasSuffix(m[0], "-"+string(rune('0'+n))) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the spool is not sealed")
}

// watch counts the requests in a directory until the returned function is
// called.
func watch(t *testing.T, dir string) func() int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	// Opening includes creating.
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN|unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	return func() (n int) {
		defer unix.Close(fd)
		buf := make([]byte, 1<<16)
		for {
			got, err := unix.Read(fd, buf)
			if err != nil || got <= 0 {
				return n
			}
			for at := 0; at+unix.SizeofInotifyEvent <= got; {
				name := string(buf[at+unix.SizeofInotifyEvent : at+unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(buf[at+12:]))])
				at += unix.SizeofInotifyEvent + len(name)
				// The test itself opens the directory to look.
				if strings.Trim(name, "\x00") != "" {
					n++
				}
			}
		}
	}
}

// openFiles returns how many files below dir were open at most.
func openFiles(dir string, stop chan struct{}) (most int) {
	look := func() map[string]string {
		open := map[string]string{}
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			to, err := os.Readlink("/proc/self/fd/" + e.Name())
			if err == nil && strings.HasPrefix(to, dir+"/") && filepath.Dir(to) != dir+"/nodes" {
				open[e.Name()] = to
			}
		}
		return open
	}
	before := look()
	for {
		select {
		case <-stop:
			return most
		default:
		}
		// A look takes time, in which one file may be closed and another
		// opened. What two looks in a row have seen was open in between.
		now, n := look(), 0
		for fd, to := range now {
			if before[fd] == to {
				n++
			}
		}
		most, before = max(most, n), now
	}
}
