package merge

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// sampler writes a node's directory with one row of each GPU and an event.
func sampler(t *testing.T, d rundir.Dir, dir string, gpus ...map[string]any) {
	t.Helper()
	if err := os.MkdirAll(d.Node(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	list := make([]any, len(gpus))
	b := table.NewBatch(table.GPU, 8)
	for i, g := range gpus {
		g["gpu"], list[i] = i, g
		r := b.Append()
		r.Read(base+int64(i), base+int64(i)+10)
		r.Int(table.GPUIndex, int64(i))
		r.String(table.GPUUUID, g["uuid"].(string))
	}
	if err := rundir.WriteNodeMeta(d, dir, &rundir.NodeMeta{Node: dir, GPUs: list}); err != nil {
		t.Fatal(err)
	}
	s, err := shard.CreateSpool(d.Spool(dir, 1), shard.SpoolMeta{Node: dir})
	if err != nil {
		t.Fatal(err)
	}
	ev := table.NewBatch(table.Event, 1)
	for _, gpu := range []int64{-1, 1} { // one of no GPU and one of the second
		r := ev.Append()
		r.Read(base, base)
		r.String(table.EventKind, "test")
		if gpu >= 0 {
			r.Int(table.Event.Index(gpuColumn), gpu)
		}
	}
	if err := s.Append(b); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(ev); err != nil {
		t.Fatal(err)
	}
	if err := s.End(clock.NodeTime(base+1e9), "job ended"); err != nil {
		t.Fatal(err)
	}
}

func gpu(uuid, pci string) map[string]any {
	return map[string]any{"uuid": uuid, "pci_bus_id": pci}
}

// TestGPUOrdinals merges a node whose samplers saw different GPUs, in an order
// that is not that of their bus ids, with instances of one GPU among them.
func TestGPUOrdinals(t *testing.T) {
	d := rundir.Dir(t.TempDir())
	sampler(t, d, "n0", gpu("B", "00000000:1B:00.0"), gpu("D", "00000000:9b:00.0"))
	sampler(t, d, "n0+x", gpu("A", "00000000:0A:00.0"), gpu("C1", "00000000:43:00.0"), gpu("C2", "00000000:43:00.0"))
	sampler(t, d, "n1", gpu("Z", "00000000:FF:00.0"), gpu("Y", "00000000:FE:00.0"))
	if err := rundir.WriteRun(d, &rundir.Run{ID: "test", Tile: testTile, Reference: &rundir.Reference{
		Node: "n0", Anchor: clock.Anchor{Raw: clock.NodeTime(base), Realtime: wall, Width: 100},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(context.Background(), string(d), Options{}); err != nil {
		t.Fatal(err)
	}
	b := timeline(t, string(d), table.GPU)
	dst := b.Table
	got := make(map[string]int64)
	for i := range b.Rows() {
		got[b.Strings(dst.Index("gpu_uuid"))[i]] = b.Ints(dst.Index(gpuColumn))[i]
		if node := b.Strings(table.TLNode)[i]; node == "n0" && !b.Valid(table.TLBound)[i] {
			t.Errorf("row %d of %s has no bound: a sampler does not share its node's clock", i, node)
		}
	}
	// A node with one sampler keeps what the sampler says.
	want := map[string]int64{"A": 0, "B": 1, "C1": 2, "C2": 3, "D": 4, "Z": 0, "Y": 1}
	for uuid, n := range want {
		if got[uuid] != n {
			t.Errorf("GPU %s has ordinal %d, want %d", uuid, got[uuid], n)
		}
	}
	ev := timeline(t, string(d), table.Event)
	at := ev.Table.Index(gpuColumn)
	count := make(map[int64]int)
	for i := range ev.Rows() {
		if !ev.Valid(at)[i] {
			count[-1]++
			continue
		}
		count[ev.Ints(at)[i]]++
	}
	// The second GPU of each sampler: D, C1 and Y.
	if count[-1] != 3 || count[4] != 1 || count[2] != 1 || count[1] != 1 {
		t.Errorf("events by GPU %v", count)
	}
}

// TestEveryTableHasAFile queries tables that the run has no rows of.
func TestEveryTableHasAFile(t *testing.T) {
	dir := testRun{nodes: 1, seconds: 2, killed: -1}.write(t)
	if _, err := Run(context.Background(), dir, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, src := range table.All() {
		parts, _ := filepath.Glob(filepath.Join(dir, "timeline", src.Name, "*.parquet"))
		if len(parts) == 0 {
			t.Errorf("%s has no file", src.Name)
			continue
		}
		if err := shard.VerifyParquet(parts[0]); err != nil {
			t.Error(err)
		}
		timeline(t, dir, src) // reads it back
	}
}
