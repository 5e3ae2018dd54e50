package export_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/gswarm/gswarm/export"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// run is a run of one node with a sealed spool and one that is still open.
func run(t *testing.T) rundir.Dir {
	t.Helper()
	d := rundir.Dir(t.TempDir())
	must(t, os.MkdirAll(d.Node("n0"), 0o700))
	must(t, rundir.WriteRun(d, &rundir.Run{ID: "x", Nodes: []string{"n0"}}))
	for n := range 2 {
		s, err := shard.CreateSpool(d.Spool("n0", n), shard.SpoolMeta{Node: "n0"})
		must(t, err)
		b := table.NewBatch(table.Event, 10)
		for i := range 10 {
			r := b.Append()
			r.Read(int64(n*10+i)*1e9, int64(n*10+i)*1e9)
			r.String(table.EventKind, "x")
		}
		must(t, s.Write(b))
		if n == 1 {
			must(t, s.Close())
			continue
		}
		must(t, s.End(10e9, shard.EndTile))
		_, err = shard.Seal(s.Path())
		must(t, err)
	}
	return d
}

func TestRecordedSealedAndNot(t *testing.T) {
	d := run(t)
	src := export.Recorded(d)
	out := t.TempDir()
	rows, err := src.ArrowFiles(context.Background(), out)
	must(t, err)
	if len(rows) != 1 || rows["event"] != 20 || len(src.Losses) != 0 {
		t.Errorf("rows %v, losses %v", rows, src.Losses)
	}
	files, err := os.ReadDir(out)
	must(t, err)
	if len(files) != 1 || files[0].Name() != "event.arrows" {
		t.Errorf("files %v", files)
	}
	// What cannot be read is said.
	must(t, os.Truncate(filepath.Join(d.Node("n0"), "spool-1"), 150))
	src = export.Recorded(d)
	rows, err = src.ArrowFiles(context.Background(), out)
	must(t, err)
	if rows["event"] != 10 || len(src.Losses) != 1 {
		t.Errorf("rows %v, losses %v", rows, src.Losses)
	}
}

func TestTimeline(t *testing.T) {
	d := run(t)
	src := merged(t, d)
	rows, err := src.ArrowFiles(context.Background(), t.TempDir())
	must(t, err)
	// The agent was killed, which the timeline knows.
	if rows["event"] != 20 || len(src.Losses) == 0 {
		t.Errorf("rows %v, losses %v", rows, src.Losses)
	}
}
