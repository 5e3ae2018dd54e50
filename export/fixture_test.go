package export_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/rows"
	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/export"
	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// golden compares with a file below testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, got, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; -update rewrites it. Got:\n%s", path, head(got, want))
	}
}

// head is the first line in which two texts differ, and its neighbours.
func head(got, want []byte) string {
	g, w := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range g {
		if i >= len(w) || !bytes.Equal(g[i], w[i]) {
			var wanted []byte
			if i < len(w) {
				wanted = w[i]
			}
			return fmt.Sprintf("line %d:\n got %s\nwant %s", i+1, g[i], wanted)
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// The fixture: three seconds of two nodes with two GPUs each, of which the
// second node's second is lost after a second and has no power reading.
const (
	fixtureWall = int64(1_763_640_000e9)
	fixtureRaw  = int64(5e12) // the reference's raw clock at that instant
	fixtureSkew = int64(7e12) // by how much the second node's is ahead
	fixtureTick = int64(250e6)
	fixtureLen  = int64(3e9)
)

// fixture makes the run and merges it.
func fixture(t testing.TB) *export.Source {
	t.Helper()
	return merged(t, unmerged(t))
}

// merged is the timeline of a run.
func merged(t testing.TB, d rundir.Dir) *export.Source {
	t.Helper()
	_, err := merge.Run(context.Background(), string(d), merge.Options{})
	must(t, err)
	tl, err := dataset.Open(d)
	must(t, err)
	return export.Timeline(tl)
}

func unmerged(t testing.TB) rundir.Dir {
	t.Helper()
	d := rundir.Dir(t.TempDir())
	end := fixtureTime(fixtureLen)
	must(t, os.MkdirAll(d.Nodes(), 0o700))
	must(t, rundir.WriteRun(d, &rundir.Run{
		ID: "fixture", Nodes: []string{"n0", "n1"}, Begin: fixtureTime(0), End: &end, Tile: 1e9, Interval: 250e6,
		Reference: &rundir.Reference{Node: "n0", Anchor: clock.Anchor{Raw: clock.NodeTime(fixtureRaw), Realtime: fixtureWall, Width: 100}},
	}))
	for n := range 2 {
		name := fmt.Sprintf("n%d", n)
		must(t, os.MkdirAll(d.Node(name), 0o700))
		var gpus []map[string]any
		for g := range 2 {
			gpus = append(gpus, map[string]any{
				"gpu": g, "uuid": fmt.Sprintf("GPU-%d%d", n, g), "pci_bus_id": fmt.Sprintf("00000000:%02d:00.0", g),
				"name": "NVIDIA H200", "memory_bytes": int64(140) << 30, "memory_bus_bits": 6016, "memory_clock_max_mhz": 3201,
			})
		}
		must(t, rundir.WriteNodeMeta(d, name, &rundir.NodeMeta{Node: name, GPUs: gpus, End: &rundir.NodeEnd{Reason: "job ended"}}))
		spool(t, d, n)
	}
	return d
}

// spool writes and seals the rows of a node.
func spool(t testing.TB, d rundir.Dir, n int) {
	t.Helper()
	name := fmt.Sprintf("n%d", n)
	s, err := shard.CreateSpool(d.Spool(name, 0), shard.SpoolMeta{Node: name, Tile: 1e9})
	must(t, err)
	for _, b := range fixtureRows(n) {
		must(t, s.Write(b))
	}
	must(t, s.End(clock.NodeTime(fixtureRaw+int64(n)*fixtureSkew+fixtureLen), "job ended"))
	_, err = shard.Seal(s.Path())
	must(t, err)
}

func fixtureRows(n int) []*table.Batch {
	at := func(ns int64) int64 { return fixtureRaw + int64(n)*fixtureSkew + ns }
	gpu, act, pow := table.NewBatch(table.GPU, 0), table.NewBatch(table.GPUActivity, 0), table.NewBatch(table.GPUPower, 0)
	host, rank := table.NewBatch(table.Host, 0), table.NewBatch(table.Rank, 0)
	for tick := int64(0); tick*fixtureTick < fixtureLen; tick++ {
		for g := range int64(2) {
			t := at(tick*fixtureTick + g*20e6 + int64(n)*5e6)
			if n == 1 && g == 1 && tick >= 4 {
				continue
			}
			uuid := fmt.Sprintf("GPU-%d%d", n, g)
			r := gpu.Append()
			r.Read(t, t+20e3)
			r.Int(table.GPUIndex, g)
			r.String(table.GPUUUID, uuid)
			r.Int(table.GPUUtil, 50+10*g+tick)
			r.Int(table.GPUMemUsed, (70+tick)<<30)
			r.Int(table.GPUTemp, 40+tick%3)
			r.Int(table.GPUClockSM, 1980-15*g)
			r.Int(table.GPUClockMem, 3201)
			if n == 0 || g == 0 {
				r.Int(table.GPUPowerAvg, 400e3+tick*1e3)
				p := pow.Append()
				p.Read(t, t+20e3)
				p.Int(table.PowGPU, g)
				p.String(table.PowUUID, uuid)
				p.Int(table.PowStamp, (fixtureWall+tick*fixtureTick)/1000)
				p.Int(table.PowPower, 410e3+tick*1e3)
			}
			a := act.Append()
			a.Window(t, t+fixtureTick, t+fixtureTick)
			a.Int(table.ActGPU, g)
			a.String(table.ActUUID, uuid)
			a.Float(table.ActSMUtil, 90)
			a.Float(table.ActTensor, float64(tick))
			a.Float(table.ActDRAM, 25)
			a.Float(table.ActPCIeTx, 1000)
			a.Float(table.ActPCIeRx, 500)
			a.Float(table.ActNVLinkTx, 100e3)
			a.Float(table.ActNVLinkRx, 50e3)
		}
	}
	for sec := range fixtureLen/1e9 + 1 {
		t := at(sec * 1e9)
		r := host.Append()
		r.Read(t, t+1000)
		for _, c := range []int{table.HostCPUUser, table.HostCPUNice, table.HostCPUSystem, table.HostCPUIRQ, table.HostCPUSoftIRQ, table.HostCPUSteal} {
			r.Int(c, 1e15+sec*5e8)
		}
		r.Int(table.HostMemAvailable, 100<<30)
		p := rank.Append()
		p.Read(t, t+1000)
		p.Int(table.RankRank, int64(n))
		p.Int(table.RankPID, 1000)
		p.String(table.RankRole, "rank")
		p.Int(table.RankCPUUser, sec*2e9)
		p.Int(table.RankCPUSystem, sec*1e9)
		p.Int(table.RankRSS, 3<<30)
	}
	all := []*table.Batch{gpu, act, pow, host, rank, fixtureEvents(n, at), fixtureBrackets(at)}
	if n == 1 {
		lost := table.NewBatch(table.Absence, 0)
		r := lost.Append()
		r.Window(at(1e9), at(fixtureLen), at(fixtureLen))
		r.String(table.AbsTable, "gpu")
		r.String(table.AbsKey, "1")
		r.String(table.AbsReason, "device_lost")
		all = append(all, lost, fixtureExchanges())
	}
	return all
}

func fixtureEvents(n int, at func(int64) int64) *table.Batch {
	b := table.NewBatch(table.Event, 0)
	event := func(ns int64, kind string, gpu, rank int64, detail string) {
		r := b.Append()
		r.Read(at(ns), at(ns)+1000)
		r.String(table.EventKind, kind)
		if gpu >= 0 {
			r.Int(table.EventGPU, gpu)
		}
		if rank >= 0 {
			r.Int(table.EventRank, rank)
		}
		if detail != "" {
			r.String(table.EventDetail, detail)
		}
	}
	event(1e6, "process_start", -1, int64(n), `{"pid":1000,"role":"rank","name":"python","affinity":["0-7"]}`)
	event(5e8, "mark", -1, int64(n), `{"text":"epoch 1 → größer","pid":1000}`)
	if n == 0 {
		event(2e9, "process_exit", -1, 0, `{"pid":1000,"role":"rank"}`)
	} else {
		event(1e9, "gpu_lost", 1, -1, `{"gpu_uuid":"GPU-11","error":"GPU is lost"}`)
	}
	return b
}

// fixtureBrackets are the node's clocks read together, without which the
// driver's stamps cannot be placed.
func fixtureBrackets(at func(int64) int64) *table.Batch {
	b := table.NewBatch(table.ClockBracket, 0)
	for sec := range fixtureLen/1e9 + 1 {
		t := at(sec * 1e9)
		r := b.Append()
		r.Read(t, t+200)
		r.Int(table.BrRaw0, t)
		r.Int(table.BrRaw1, t+200)
		r.Int(table.BrRealtime, fixtureWall+sec*1e9+100)
		r.Int(table.BrMonotonic, t+100)
		r.Int(table.BrBoottime, t+100)
	}
	return b
}

// fixtureExchanges tie the second node's clock to the first's.
func fixtureExchanges() *table.Batch {
	b := table.NewBatch(table.ClockExchange, 0)
	for sec := range fixtureLen/1e9 + 1 {
		for q := range int64(8) {
			t := fixtureRaw + sec*1e9 + q*1e6
			rows.AppendExchange(b, clock.Exchange{
				Peer: "n0", Burst: sec, Seq: int32(q), T1: clock.NodeTime(t + fixtureSkew),
				T2: clock.NodeTime(t + 20e3), T3: clock.NodeTime(t + 25e3), T4: clock.NodeTime(t + fixtureSkew + 45e3),
			})
		}
	}
	return b
}

func fixtureTime(ns int64) time.Time { return time.Unix(0, fixtureWall+ns).UTC() }
