package merge

import (
	"context"
	"testing"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// TestForeignStamps: the time of a row that the driver stamped is that stamp on
// the reference clock; a stamp that no bracket reaches leaves the row where it
// was read, without a bound.
func TestForeignStamps(t *testing.T) {
	dir := rundir.Dir(testRun{nodes: 1, seconds: 20, killed: -1}.write(t))
	s, err := shard.CreateSpool(dir.Spool("n0", 50), shard.SpoolMeta{Node: "n0", Tile: testTile, Created: clock.NodeTime(base)})
	if err != nil {
		t.Fatal(err)
	}
	b := table.NewBatch(table.GPUPower, 0)
	read := rawOf(0, base+5e9)
	want := []int64{}
	for i := range 50 {
		r := b.Append()
		r.Read(read, read+300e3)
		r.Int(table.PowGPU, 0)
		r.String(table.PowUUID, "GPU-0")
		stamp := (wall + 4e9 + int64(i)*20e6) / 1000
		if i == 49 {
			stamp -= 3600e6 // of an hour before the run
		} else {
			want = append(want, stamp*1000)
		}
		r.Int(table.PowStamp, stamp)
		r.Int(table.PowPower, 500e3)
	}
	if err := s.Append(b); err != nil {
		t.Fatal(err)
	}
	if err := s.End(clock.NodeTime(base+20e9), "job ended"); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(context.Background(), string(dir), Options{}); err != nil {
		t.Fatal(err)
	}
	got := timeline(t, string(dir), table.GPUPower)
	if got.Rows() != 50 {
		t.Fatalf("%d rows", got.Rows())
	}
	for i, want := range want {
		off := got.Ints(table.TLTimeNS)[i] - want
		bound := got.Ints(table.TLBound)[i]
		if off < -bound || off > bound || !got.Valid(table.TLBound)[i] || bound < 1000 || bound > 1e6 {
			t.Fatalf("sample %d: %d ns off, bound %d", i, off, bound)
		}
	}
	if got.Valid(table.TLBound)[49] {
		t.Error("a stamp of an hour before has a bound")
	}
	if off := got.Ints(table.TLTimeNS)[49] - (wall + 5e9); off < 0 || off > 1e6 {
		t.Errorf("it is laid %d ns from its read", off)
	}
}
