package export_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/export"
	"github.com/gswarm/gswarm/table"
)

// The run's directory has another name each time.
func runName(b []byte) []byte {
	_, rest, _ := bytes.Cut(b, []byte(`","interval_s"`))
	return append([]byte(`{"run":"NAME","interval_s"`), rest...)
}

func TestJSON(t *testing.T) {
	src := fixture(t)
	for _, every := range []time.Duration{time.Second, 400 * time.Millisecond, time.Hour} {
		var b bytes.Buffer
		sum, err := src.JSON(context.Background(), &b, every)
		must(t, err)
		if sum.GPUs != 4 || len(sum.Notes) != 0 || !json.Valid(b.Bytes()) {
			t.Errorf("%s: summary %+v, valid %v", every, sum, json.Valid(b.Bytes()))
		}
		golden(t, fmt.Sprintf("frames-%s.json", every), runName(b.Bytes()))
	}
}

// What is not known is null and said: a node that left no meta.yaml and nothing
// that ties its clock to the others.
func TestJSONUnknown(t *testing.T) {
	d := unmerged(t)
	must(t, os.Remove(d.MetaFile("n1")))
	must(t, os.Remove(d.Join("nodes", "n1", "clock_exchange-0.parquet")))
	src := merged(t, d)
	if !slices.ContainsFunc(src.Losses, func(l string) bool { return strings.Contains(l, "no_clock") }) {
		t.Errorf("losses %v", src.Losses)
	}
	var b bytes.Buffer
	sum, err := src.JSON(context.Background(), &b, time.Second)
	must(t, err)
	if len(sum.Notes) != 2 || !strings.Contains(sum.Notes[1], "dram_bandwidth is null for 2 of 4 GPUs") {
		t.Errorf("notes %q", sum.Notes)
	}
	var got struct {
		GPUs []struct {
			ID   string  `json:"gpu_id"`
			Name *string `json:"name"`
		}
		Frames []struct {
			Bound *int64     `json:"time_bound_ns"`
			Util  []*float64 `json:"gpu_util"`
			DRAM  []*float64 `json:"dram_bandwidth"`
		}
	}
	must(t, json.Unmarshal(b.Bytes(), &got))
	if got.GPUs[2].ID != "n1:0" || got.GPUs[2].Name != nil {
		t.Errorf("GPUs %+v", got.GPUs)
	}
	for i, f := range got.Frames {
		if f.Bound != nil && f.Util[2] != nil {
			t.Errorf("frame %d has the bound %d", i, *f.Bound)
		}
		if f.DRAM[2] != nil || i == 0 && (f.DRAM[0] == nil || f.Util[2] == nil) {
			t.Errorf("frame %d: %+v", i, f)
		}
	}
}

// A selection has the whole's frames.
func TestFramesSelected(t *testing.T) {
	src := fixture(t)
	lines := func() []string {
		var b bytes.Buffer
		_, _, err := src.CSV(context.Background(), &b, 250*time.Millisecond)
		must(t, err)
		return strings.SplitAfter(b.String(), "\n")[1:]
	}
	want := slices.DeleteFunc(lines(), func(l string) bool {
		return !strings.Contains(l, ",n1,") || !strings.HasPrefix(l, "2025-11-20T12:00:01")
	})
	must(t, src.Select([]string{"n1"}, time.Second, 2*time.Second))
	have := lines()
	if !slices.Equal(have[:len(have)-1], want) || len(want) != 4 {
		t.Errorf("%q\nwant %q", have, want)
	}
	if err := src.Select([]string{"n2"}, 0, 0); err == nil || !strings.Contains(err.Error(), "n0, n1") {
		t.Error(err)
	}
}

// GPUs of one ordinal in a node are told apart.
func TestOrdinals(t *testing.T) {
	got := export.Ordinals([]dataset.GPU{{Node: "a", UUID: "GPU-1"}, {Node: "b", UUID: "GPU-1"}, {Node: "b", UUID: "GPU-2"}, {Node: "b", Index: 1}})
	if want := []string{"0", "0-GPU-1", "0-GPU-2", "1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// However few frames are filled at a time, they are the same.
func TestFramesByChunks(t *testing.T) {
	src := fixture(t)
	var whole, pieces bytes.Buffer
	_, err := src.JSON(context.Background(), &whole, 70*time.Millisecond)
	must(t, err)
	for _, cells := range []int{1, 100, 500} {
		src.LimitCells(cells)
		pieces.Reset()
		_, err = src.JSON(context.Background(), &pieces, 70*time.Millisecond)
		must(t, err)
		if !bytes.Equal(whole.Bytes(), pieces.Bytes()) {
			t.Errorf("%d cells: %s", cells, head(pieces.Bytes(), whole.Bytes()))
		}
	}
}

// tree is all files below a directory in one text.
func tree(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		must(t, err)
		content, err := os.ReadFile(path)
		must(t, err)
		fmt.Fprintf(&b, "== %s\n%s", rel, content)
		if strings.HasSuffix(path, ".json") && !json.Valid(content) {
			t.Errorf("%s is no JSON", rel)
		}
		return nil
	}))
	return b.Bytes()
}

func TestGPUTop(t *testing.T) {
	src, dir := fixture(t), t.TempDir()
	sum, err := src.GPUTop(context.Background(), dir, time.Second)
	must(t, err)
	if sum.GPUs != 4 || sum.Frames != 3 {
		t.Errorf("summary %+v", sum)
	}
	golden(t, "gputop.txt", tree(t, dir))
}

func TestCSV(t *testing.T) {
	src := fixture(t)
	var b bytes.Buffer
	lines, gpus, err := src.CSV(context.Background(), &b, time.Second)
	must(t, err)
	golden(t, "temperatures.csv", b.Bytes())
	if n := bytes.Count(b.Bytes(), []byte("\n")); int64(n) != lines+1 {
		t.Errorf("%d lines, said %d", n, lines)
	}
	first := gpus[0]
	// Temperatures 40, 41, 42 in turn over twelve readings.
	if s := first.Temperature; s.N != 12 || s.Min != 40 || s.Max != 42 || math.Abs(s.Mean-41) > 1e-9 || math.Abs(s.SD()-math.Sqrt(2.0/3)) > 1e-9 {
		t.Errorf("temperature %+v", s)
	}
	if s := gpus[3].Power; s.N != 0 {
		t.Errorf("power of a GPU without any: %+v", s)
	}
}

func TestTableCSV(t *testing.T) {
	src := fixture(t)
	var b bytes.Buffer
	rows, err := src.TableCSV(context.Background(), &b, table.Event)
	must(t, err)
	if rows != 6 {
		t.Errorf("%d rows", rows)
	}
	golden(t, "event.csv", b.Bytes())
}

// records takes a file of TFRecords apart, its sums compared.
func records(t *testing.T, b []byte) (all [][]byte) {
	t.Helper()
	masked := func(b []byte) uint32 {
		sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return (sum>>15 | sum<<17) + 0xa282ead8
	}
	for len(b) > 0 {
		n := binary.LittleEndian.Uint64(b)
		data := b[12 : 12+n]
		if binary.LittleEndian.Uint32(b[8:]) != masked(b[:8]) || binary.LittleEndian.Uint32(b[12+n:]) != masked(data) {
			t.Fatal("a wrong sum")
		}
		all, b = append(all, data), b[16+n:]
	}
	return all
}

func TestTFEvents(t *testing.T) {
	src, dir := fixture(t), t.TempDir()
	sum, err := src.TFEvents(context.Background(), dir, time.Second)
	must(t, err)
	if sum.GPUs != 4 {
		t.Errorf("summary %+v", sum)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "events.out.tfevents.*"))
	must(t, err)
	var said strings.Builder
	for _, path := range files {
		rel, err := filepath.Rel(dir, path)
		must(t, err)
		fmt.Fprintf(&said, "== %s\n", rel)
		b, err := os.ReadFile(path)
		must(t, err)
		for _, r := range records(t, b) {
			e := fields(t, r)
			fmt.Fprintf(&said, "%.6f step %d %s", math.Float64frombits(get(e, 1).value)-float64(fixtureWall)/1e9, get(e, 2).value, get(e, 3).bytes)
			for _, v := range fields(t, get(e, 5).bytes) {
				value := fields(t, v.bytes)
				fmt.Fprintf(&said, " %s=%g", get(value, 1).bytes, math.Float32frombits(uint32(get(value, 2).value)))
			}
			said.WriteByte('\n')
		}
	}
	golden(t, "tfevents.txt", []byte(said.String()))
}

// A run without GPUs is exported too.
func TestWithoutGPUs(t *testing.T) {
	d := run(t)
	src := merged(t, d)
	var b bytes.Buffer
	sum, err := src.JSON(context.Background(), &b, time.Second)
	must(t, err)
	if sum.Frames != 0 || !json.Valid(b.Bytes()) {
		t.Errorf("%+v\n%s", sum, b.Bytes())
	}
	for _, write := range []func(context.Context, string, time.Duration) (export.FramesSummary, error){src.GPUTop, src.TFEvents} {
		dir := t.TempDir()
		_, err := write(context.Background(), dir, time.Second)
		must(t, err)
		if len(tree(t, dir)) != 0 {
			t.Errorf("files of no GPU: %s", tree(t, dir))
		}
	}
	_, gpus, err := src.CSV(context.Background(), &b, time.Second)
	must(t, err)
	if len(gpus) != 0 {
		t.Error(gpus)
	}
	_, err = src.Perfetto(context.Background(), &b, export.PerfettoOptions{})
	must(t, err)
}

func TestInterrupted(t *testing.T) {
	src := fixture(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var b bytes.Buffer
	if _, err := src.JSON(ctx, &b, time.Second); err == nil {
		t.Error("JSON went on")
	}
	if _, err := src.Perfetto(ctx, &b, export.PerfettoOptions{}); err == nil {
		t.Error("Perfetto went on")
	}
}
