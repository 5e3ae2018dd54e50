package export_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/gswarm/gswarm/export"
)

// field is a field of a protobuf message.
type field struct {
	number uint64
	value  uint64 // of a number
	bytes  []byte // of a message or a text
}

// fields takes a message apart.
func fields(t testing.TB, b []byte) (all []field) {
	t.Helper()
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		b = b[max(n, 0):]
		f := field{number: key >> 3}
		switch key & 7 {
		case 0:
			f.value, n = binary.Uvarint(b)
			b = b[max(n, 0):]
		case 1:
			f.value, b = binary.LittleEndian.Uint64(b), b[8:]
		case 5:
			f.value, b = uint64(binary.LittleEndian.Uint32(b)), b[4:]
		case 2:
			size, k := binary.Uvarint(b)
			n = k
			f.bytes, b = b[k:k+int(size)], b[k+int(size):]
		default:
			t.Fatalf("wire type %d", key&7)
		}
		if n <= 0 {
			t.Fatal("a varint is cut")
		}
		all = append(all, f)
	}
	return all
}

func get(all []field, number uint64) (f field) {
	if i := slices.IndexFunc(all, func(f field) bool { return f.number == number }); i >= 0 {
		f = all[i]
	}
	return f
}

// dump is a trace in words, in order of time, the tracks first. The numbers are
// those of Perfetto's published schema.
func dump(t testing.TB, trace []byte) string {
	t.Helper()
	tracks, names := map[uint64]string{}, map[uint64]string{}
	type line struct {
		at   uint64
		text string
	}
	var described []string
	var lines []line
	for _, whole := range fields(t, trace) {
		packed := get(fields(t, whole.bytes), 50).bytes
		r, err := zlib.NewReader(bytes.NewReader(packed))
		must(t, err)
		block, err := io.ReadAll(r)
		must(t, err)
		for _, packet := range fields(t, block) {
			p := fields(t, packet.bytes)
			if get(p, 10).value != 1 {
				t.Fatal("a packet of no sequence")
			}
			for _, interned := range fields(t, get(p, 12).bytes) {
				entry := fields(t, interned.bytes)
				names[get(entry, 1).value] = string(get(entry, 2).bytes)
			}
			if d := fields(t, get(p, 60).bytes); d != nil {
				name := string(get(d, 2).bytes)
				if parent := get(d, 5).value; parent != 0 {
					name = tracks[parent] + "/" + name
				}
				tracks[get(d, 1).value] = name
				say := fmt.Sprintf("track %s order %d", name, get(d, 12).value)
				if c := fields(t, get(d, 8).bytes); c != nil {
					say += fmt.Sprintf(" in %s, scale %s", get(c, 6).bytes, get(c, 7).bytes)
				}
				if text := get(d, 14).bytes; text != nil {
					say += ": " + string(text)
				}
				described = append(described, say)
			}
			e := fields(t, get(p, 11).bytes)
			if e == nil {
				continue
			}
			name, ok := names[get(e, 10).value]
			if get(e, 10).value != 0 && !ok {
				t.Fatal("a name that was never given")
			}
			text := fmt.Sprintf("%s %s %s", tracks[get(e, 11).value], [...]string{"", "begin", "end", "instant", "counter"}[get(e, 9).value], name)
			if get(e, 9).value == 4 {
				text += fmt.Sprintf("%.9g", math.Float64frombits(get(e, 44).value))
			}
			for _, f := range e {
				if f.number != 4 {
					continue
				}
				note := fields(t, f.bytes)
				text += fmt.Sprintf(" %s=", get(note, 10).bytes)
				if s := get(note, 6); s.number == 6 {
					text += string(s.bytes)
				} else {
					text += fmt.Sprint(get(note, 4).value)
				}
			}
			lines = append(lines, line{get(p, 8).value, text})
		}
	}
	sort.SliceStable(lines, func(i, j int) bool { return lines[i].at < lines[j].at })
	var s strings.Builder
	for _, d := range described {
		fmt.Fprintln(&s, d)
	}
	for _, l := range lines {
		fmt.Fprintf(&s, "%.6f %s\n", float64(int64(l.at)-fixtureWall)/1e9, l.text)
	}
	return s.String()
}

func TestPerfetto(t *testing.T) {
	src := fixture(t)
	var b bytes.Buffer
	sum, err := src.Perfetto(context.Background(), &b, export.PerfettoOptions{Slices: slices.Values([]export.Slice{
		{Node: "n0", Group: "rank 0", Track: "steps", Name: "step 7", Begin: fixtureWall + 1e9, End: fixtureWall + 2e9},
	})})
	must(t, err)
	golden(t, "perfetto.txt", []byte(dump(t, b.Bytes())))
	if sum.Bucket != 0 || sum.Slices != 4 || sum.Instants != 6 {
		t.Errorf("summary %+v", sum)
	}
}

// Thinned, a series keeps its least and greatest value of every bucket, each at
// its own time.
func TestPerfettoThinned(t *testing.T) {
	src := fixture(t)
	var whole, thin bytes.Buffer
	_, err := src.Perfetto(context.Background(), &whole, export.PerfettoOptions{})
	must(t, err)
	sum, err := src.Perfetto(context.Background(), &thin, export.PerfettoOptions{Points: 700})
	must(t, err)
	if sum.Bucket != 2*time.Second || sum.Points > 700 {
		t.Fatalf("summary %+v", sum)
	}
	type bucket struct {
		series string
		at     int64
	}
	extremes := func(trace []byte) map[bucket][2]float64 {
		found := make(map[bucket][2]float64)
		for l := range strings.Lines(dump(t, trace)) {
			when, rest, _ := strings.Cut(strings.TrimSpace(l), " ")
			i := strings.Index(rest, " counter ")
			if i < 0 {
				continue
			}
			var at, v float64
			_, err := fmt.Sscan(when, &at)
			must(t, err)
			_, err = fmt.Sscan(rest[i+len(" counter "):], &v)
			must(t, err)
			k := bucket{rest[:i], (fixtureWall + int64(at*1e9)) / sum.Bucket.Nanoseconds()}
			e, ok := found[k]
			if !ok {
				e = [2]float64{v, v}
			}
			found[k] = [2]float64{min(e[0], v), max(e[1], v)}
		}
		return found
	}
	have, want := extremes(thin.Bytes()), extremes(whole.Bytes())
	if len(have) != len(want) {
		t.Errorf("%d buckets, want %d", len(have), len(want))
	}
	for k, w := range want {
		if have[k] != w {
			t.Errorf("%+v: %v, want %v", k, have[k], w)
		}
	}
}

// A selection holds what the whole has of it, slices cut to the stretch.
func TestPerfettoSelected(t *testing.T) {
	src := fixture(t)
	var whole, part bytes.Buffer
	_, err := src.Perfetto(context.Background(), &whole, export.PerfettoOptions{})
	must(t, err)
	must(t, src.Select([]string{"n1"}, 500*time.Millisecond, 1500*time.Millisecond))
	_, err = src.Perfetto(context.Background(), &part, export.PerfettoOptions{})
	must(t, err)
	counters := func(trace []byte, keep func(at float64, series string) bool) (found []string) {
		for l := range strings.Lines(dump(t, trace)) {
			when, series, _ := strings.Cut(l, " ")
			var at float64
			if n, _ := fmt.Sscan(when, &at); n == 1 && strings.Contains(series, " counter ") && keep(at, series) {
				found = append(found, l)
			}
		}
		return found
	}
	have := counters(part.Bytes(), func(float64, string) bool { return true })
	// What stands at a window's begin belongs to the stretch by its end, and
	// growth needs two readings of the stretch.
	want := counters(whole.Bytes(), func(at float64, series string) bool {
		if !strings.HasPrefix(series, "n1/") || strings.Contains(series, "CPUs in use") {
			return false
		}
		for _, window := range []string{"SMs", "tensor", "device memory", "NVLink", "PCIe"} {
			if strings.Contains(series, "/"+window) {
				at += float64(fixtureTick) / 1e9
			}
		}
		return at >= 0.5 && at < 1.5
	})
	if !slices.Equal(have, want) || len(have) == 0 {
		t.Errorf("%d values, want %d: %s", len(have), len(want), head([]byte(strings.Join(have, "")), []byte(strings.Join(want, ""))))
	}
	said := dump(t, part.Bytes())
	for _, l := range []string{"0.500000 n1/rank 1/process begin python", "1.500000 n1/rank 1/process end", "1.500000 n1/GPU 1/no rows of gpu end"} {
		if !strings.Contains(said, l) {
			t.Errorf("it lacks %q", l)
		}
	}
	if strings.Contains(said, "n0") {
		t.Error("it has something of the other node")
	}
}
