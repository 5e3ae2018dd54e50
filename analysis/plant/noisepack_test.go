package plant

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

var packHost = flag.String("pack-host", "", "make testdata/host/growth.gz of the run in `DIR`, which was merged")

// TestPackHost writes the file anew where it was told to, and shows that what
// lies there is read back whole, and not where it was cut.
func TestPackHost(t *testing.T) {
	h, err := loadHostNoise()
	if *packHost != "" {
		h, err = hostFrom(*packHost)
	}
	if err != nil {
		t.Fatal(err)
	}
	packed := h.pack()
	again := &hostNoise{}
	if err := again.unpack(packed); err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(h.series, again.series, func(a, b [][]int64) bool { return slices.EqualFunc(a, b, slices.Equal[[]int64]) }) {
		t.Fatal("what was packed is not read back")
	}
	for _, n := range []int{0, 1, len(packed) / 2, len(packed) - 1} {
		if err := again.unpack(packed[:n]); err == nil {
			t.Errorf("the first %d bytes of %d are taken for the whole", n, len(packed))
		}
	}
	if *packHost == "" {
		return
	}
	var z bytes.Buffer
	w, _ := gzip.NewWriterLevel(&z, gzip.BestCompression)
	if _, err := w.Write(packed); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path, err := testdata("host", "growth.gz")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, z.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (h *hostNoise) pack() []byte {
	var b []byte
	for _, kind := range h.series {
		b = binary.AppendVarint(b, int64(len(kind)))
		for _, s := range kind {
			b = binary.AppendVarint(b, int64(len(s)))
			for _, v := range s {
				b = binary.AppendVarint(b, v)
			}
		}
	}
	return b
}

// hostFrom takes the growth of counters from a run's timeline.
func hostFrom(run string) (*hostNoise, error) {
	h := &hostNoise{series: make([][][]int64, noiseKinds)}
	type key struct {
		kind int
		pid  int64
	}
	last := map[key]int64{}
	grown := map[key][]int64{}
	var order []key
	note := func(kind int, pid, v int64) {
		k := key{kind, pid}
		if before, ok := last[k]; ok {
			grown[k] = append(grown[k], max(0, v-before))
		} else {
			order = append(order, k)
		}
		last[k] = v
	}
	rank, host := table.Timeline(table.Rank), table.Timeline(table.Host)
	err := shard.ReadParquet(filepath.Join(run, "timeline", "rank", "part-0000.parquet"), rank, func(b *table.Batch) error {
		v := func(c, i int) int64 { return b.Ints(own(c))[i] }
		for i := range b.Rows() {
			pid := v(table.RankPID, i)
			switch b.Strings(own(table.RankRole))[i] {
			case "rank":
				note(noiseRankCPU, pid, (v(table.RankCPUUser, i)+v(table.RankCPUSystem, i))/1e6)
				note(noiseRankDelay, pid, v(table.RankRunDelay, i)/1e4)
				note(noiseRankVoluntary, pid, v(table.RankVoluntary, i))
				note(noiseRankInvoluntary, pid, v(table.RankInvoluntary, i))
				note(noiseRankFaults, pid, v(table.RankFaultsMinor, i))
			case "worker":
				note(noiseWorkerCPU, pid, (v(table.RankCPUUser, i)+v(table.RankCPUSystem, i))/1e6)
				note(noiseWorkerRead, pid, v(table.RankReadCallBytes, i)>>10)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = shard.ReadParquet(filepath.Join(run, "timeline", "host", "part-0000.parquet"), host, func(b *table.Batch) error {
		v := func(c, i int) int64 { return b.Ints(own(c))[i] }
		for i := range b.Rows() {
			note(noiseNodeSwitches, 0, v(table.HostContextSwitches, i))
			note(noiseNodeInterrupts, 0, v(table.HostInterrupts, i))
			note(noiseNodeCPU, 0, (v(table.HostCPUUser, i)+v(table.HostCPUSystem, i))/1e6)
			note(noiseNodeSegments, 0, v(table.HostTCPOutSegs, i))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, k := range order {
		if len(grown[k]) > 100 {
			h.series[k.kind] = append(h.series[k.kind], grown[k])
		}
	}
	return h, nil
}
