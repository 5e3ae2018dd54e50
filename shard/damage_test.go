package shard

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gswarm/gswarm/table"
)

// hostRows makes n rows of the host table with nulls in them.
func hostRows(from, n int) *table.Batch {
	b := table.NewBatch(table.Host, n)
	for i := from; i < from+n; i++ {
		r := b.Append()
		r.Read(int64(i)*1e9, int64(i)*1e9+int64(i)*3)
		r.Int(table.HostCPUUser, int64(i)<<40)
		if i%2 == 0 {
			r.Float(table.HostLoad1, float64(i)/4)
		}
	}
	return b
}

func eventRow(t int64, kind, detail string) *table.Batch {
	b := table.NewBatch(table.Event, 1)
	r := b.Append()
	r.Read(t, t)
	r.String(table.EventKind, kind)
	if detail != "" {
		r.String(table.EventDetail, detail)
	}
	return b
}

// smallSpool writes a spool of a few frames and returns its bytes and the keys
// of its rows by table.
func smallSpool(t testing.TB, end bool) ([]byte, map[string][]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "spool-1")
	s, err := CreateSpool(path, SpoolMeta{Node: "n1", Program: "test", Created: 1})
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string][]string)
	for i := range 3 {
		for _, b := range []*table.Batch{gpuRows(i*4, 4), hostRows(i, 1), eventRow(int64(i), "kind", strings.Repeat("x", i))} {
			if err := s.Append(b); err != nil {
				t.Fatal(err)
			}
			for r := range b.Rows() {
				rows[b.Table.Name] = append(rows[b.Table.Name], rowKey(b, r))
			}
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if end {
		err = s.End(99, "job ended")
	} else {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, rows
}

// readAll reads what can be read of a spool's bytes.
func readAll(raw []byte) (*spool, map[string][]string, error) {
	s, err := scanSpool("spool-1", bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return nil, nil, err
	}
	rows := make(map[string][]string)
	for _, ref := range s.frames {
		t := table.ByName(ref.table)
		if t == nil {
			return nil, nil, fmt.Errorf("table %q", ref.table)
		}
		b := table.NewBatch(t, 0)
		if err := s.rows(ref, t, b); err != nil {
			s.lose(undecodable(ref, err))
			continue
		}
		for r := range b.Rows() {
			rows[t.Name] = append(rows[t.Name], rowKey(b, r))
		}
	}
	return s, rows, nil
}

// subsequence reports whether got is want with some rows left out.
func subsequence(got, want []string) bool {
	i := 0
	for _, g := range got {
		j := slices.Index(want[i:], g)
		if j < 0 {
			return false
		}
		i += j + 1
	}
	return true
}

func count(rows map[string][]string) (n int) {
	for _, r := range rows {
		n += len(r)
	}
	return n
}

// checkDamaged checks that a damaged spool gives true rows only, and says that
// something is lost. It returns the spool, nil where it was refused.
func checkDamaged(t *testing.T, what string, raw []byte, want map[string][]string) *spool {
	t.Helper()
	s, got, err := readAll(raw)
	if err != nil {
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			t.Fatalf("%s: %v is no CorruptError", what, err)
		}
		return nil
	}
	for name, rows := range got {
		if !subsequence(rows, want[name]) {
			t.Fatalf("%s: table %s has rows that were never written: %v", what, name, rows)
		}
	}
	// A cut between two frames is what a killed agent leaves: no end mark.
	if count(got) < count(want) && len(s.losses) == 0 && s.end != nil {
		t.Fatalf("%s: %d of %d rows and no loss", what, count(got), count(want))
	}
	return s
}

func TestSpoolRoundTrip(t *testing.T) {
	for _, end := range []bool{true, false} {
		raw, want := smallSpool(t, end)
		s, got, err := readAll(raw)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v\nwant %v", got, want)
		}
		if len(s.losses) != 0 || s.meta.Node != "n1" || (s.end != nil) != end {
			t.Errorf("losses %v, meta %+v, end %v", s.losses, s.meta, s.end)
		}
	}
}

func TestSpoolEveryTruncation(t *testing.T) {
	raw, want := smallSpool(t, true)
	best := -1
	for n := 0; n < len(raw); n += stride {
		s := checkDamaged(t, fmt.Sprintf("cut to %d", n), raw[:n], want)
		if s == nil {
			t.Fatalf("cut to %d: refused", n)
		}
		if s.end != nil {
			t.Fatalf("cut to %d: it still has an end", n)
		}
		if len(s.frames) < best {
			t.Fatalf("cut to %d: %d frames, fewer than before", n, len(s.frames))
		}
		best = len(s.frames)
		for _, l := range s.losses {
			if l.Code != TornTail || l.Offset+l.Bytes != int64(n) {
				t.Fatalf("cut to %d: %+v", n, l)
			}
		}
	}
	if best != 9 {
		t.Errorf("%d frames at most", best)
	}
}

func TestSpoolEveryByteFlipped(t *testing.T) {
	raw, want := smallSpool(t, true)
	for i := 0; i < len(raw); i += stride {
		for _, bit := range []byte{1 << (i % 8)} {
			b := bytes.Clone(raw)
			b[i] ^= bit
			s := checkDamaged(t, fmt.Sprintf("byte %d ^ %#x", i, bit), b, want)
			if s == nil {
				t.Fatalf("byte %d: refused", i)
			}
			if len(s.losses) == 0 {
				t.Fatalf("byte %d ^ %#x: no loss", i, bit)
			}
			// One byte costs one frame; the schema frames cost nothing,
			// the reader knows these schemas itself.
			if len(s.frames) < 8 {
				t.Fatalf("byte %d: only %d frames", i, len(s.frames))
			}
		}
	}
}

func TestSpoolZeroedTail(t *testing.T) {
	raw, want := smallSpool(t, true)
	for n := 0; n < len(raw); n += 3 * stride {
		b := bytes.Clone(raw)
		clear(b[n:])
		checkDamaged(t, fmt.Sprintf("zero from %d", n), b, want)
		// Some filesystems leave a hole in the middle.
		b = bytes.Clone(raw)
		clear(b[n:min(n+200, len(b))])
		checkDamaged(t, fmt.Sprintf("zero 200 from %d", n), b, want)
	}
}

func TestSpoolCountsLostRows(t *testing.T) {
	raw, _ := smallSpool(t, true)
	s, _, err := readAll(raw)
	if err != nil {
		t.Fatal(err)
	}
	ref := s.frames[3] // the second flush's gpu rows
	b := bytes.Clone(raw)
	b[ref.offset+frameHeader+10] ^= 1
	s, _, err = readAll(b)
	if err != nil {
		t.Fatal(err)
	}
	want := Loss{Code: CorruptSpool, File: "spool-1", Offset: ref.offset, Bytes: int64(ref.size), Rows: 4, Detail: errChecksum.Error()}
	if len(s.losses) != 1 || s.losses[0] != want {
		t.Errorf("got %+v, want %+v", s.losses, want)
	}
}

func TestSpoolOldFramesBehindTheEnd(t *testing.T) {
	raw, want := smallSpool(t, false)
	s := checkDamaged(t, "doubled", append(bytes.Clone(raw), raw...), want)
	if len(s.losses) != 1 {
		t.Errorf("losses %v", s.losses)
	}
}

func TestNotASpool(t *testing.T) {
	for _, raw := range [][]byte{[]byte("PAR1 something"), make([]byte, 5000), []byte("hello, world\n")} {
		if _, _, err := readAll(raw); !errors.Is(err, ErrNotSpool) {
			t.Errorf("%.10q: %v", raw, err)
		}
	}
	s, _, err := readAll(nil)
	if err != nil || len(s.losses) != 1 || s.losses[0].Code != TornTail {
		t.Errorf("empty: %v, %v", s, err)
	}
}

func TestNewerSpoolIsRefusedByName(t *testing.T) {
	f := &nullFile{}
	s := &Spool{f: f, tables: map[string]*spoolTable{}}
	s.zstd, _ = newZstdEncoder(false)
	if err := s.appendJSON(kindMeta, SpoolMeta{FormatVersion: table.Version + 1}); err != nil {
		t.Fatal(err)
	}
	var newer *NewerError
	if _, _, err := readAll(s.buf); !errors.As(err, &newer) || newer.Have != table.Version+1 {
		t.Errorf("got %v", err)
	}
}

// faultyFile fails writes once its quota is used up, as a full disk does.
type faultyFile struct {
	data     []byte
	quota    int
	truncate error
}

func (f *faultyFile) Write(p []byte) (int, error) {
	n := min(len(p), f.quota)
	f.quota -= n
	f.data = append(f.data, p[:n]...)
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (f *faultyFile) Truncate(size int64) error {
	if f.truncate == nil {
		f.data = f.data[:size]
	}
	return f.truncate
}
func (f *faultyFile) Sync() error  { return nil }
func (f *faultyFile) Close() error { return nil }

func TestSpoolOnAFullDisk(t *testing.T) {
	for _, c := range []struct {
		cannotCut error
		giveUp    bool
	}{{nil, true}, {syscall.EIO, true}, {nil, false}, {syscall.EIO, false}} {
		cannotCut := c.cannotCut
		for room := 0; room < 3000; room += 13 * stride {
			f := &faultyFile{quota: 1 << 20, truncate: cannotCut}
			s, err := NewSpool(f, "spool-1", SpoolMeta{Node: "n1"})
			if err != nil {
				t.Fatal(err)
			}
			want := make(map[string][]string)
			flush := func(i int) error {
				for _, b := range []*table.Batch{gpuRows(i*8, 8), hostRows(i, 2)} {
					if err := s.Append(b); err != nil {
						t.Fatal(err)
					}
					for r := range b.Rows() {
						want[b.Table.Name] = append(want[b.Table.Name], rowKey(b, r))
					}
				}
				return s.Flush()
			}
			f.quota = room
			failed := false
			for i := range 3 {
				err := flush(i)
				if err != nil && !errors.Is(err, syscall.ENOSPC) {
					t.Fatal(err)
				}
				failed = failed || err != nil
				if c.giveUp {
					s.GiveUp()
				}
			}
			f.quota = 1 << 20 // someone made room
			for i := 3; i < 5; i++ {
				if err := flush(i); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.End(7, "done"); err != nil {
				t.Fatal(err)
			}
			rd, got, err := readAll(f.data)
			if err != nil {
				t.Fatal(err)
			}
			for name := range want {
				if !subsequence(got[name], want[name]) {
					t.Fatalf("room %d: rows of %s that were never written", room, name)
				}
			}
			if lost := count(want) - count(got); int64(lost) != s.Dropped() || (lost > 0) != failed && room < 2000 && c.giveUp || lost > 0 && !c.giveUp {
				t.Fatalf("room %d: %d rows lost, %d counted", room, lost, s.Dropped())
			}
			counted := int64(0)
			for _, l := range rd.losses {
				counted += l.Rows
			}
			if counted != s.Dropped() || rd.end == nil {
				t.Fatalf("room %d: the reader counts %d rows lost, the spool %d", room, counted, s.Dropped())
			}
			if s.Size() != int64(len(f.data)) {
				t.Fatalf("room %d: size %d of %d", room, s.Size(), len(f.data))
			}
		}
	}
}

func TestSpoolSplitsLargeBatches(t *testing.T) {
	f := &nullFile{}
	s, err := NewSpool(f, "spool-1", SpoolMeta{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Append(gpuRows(0, frameRows+1)); err != nil {
		t.Fatal(err)
	}
	rd, got, err := readAll(s.buf)
	if err != nil || len(rd.frames) != 2 || count(got) != frameRows+1 {
		t.Errorf("%d frames, %d rows, %v", len(rd.frames), count(got), err)
	}
}

func TestSpoolRefusesWhatItCannotHold(t *testing.T) {
	s, err := NewSpool(&nullFile{}, "spool-1", SpoolMeta{})
	if err != nil {
		t.Fatal(err)
	}
	b := table.NewBatch(table.GPU, 1)
	b.Append() // all null, required columns too
	if err := s.Append(b); err == nil {
		t.Error("null in a required column was taken")
	}
	b = gpuRows(0, 1)
	b.Ints(table.GPUUtil)[0] = 1 << 40
	if err := s.Append(b); err == nil {
		t.Error("a value too wide for its column was taken")
	}
	if s.Dropped() != 2 {
		t.Errorf("%d dropped", s.Dropped())
	}
}

// smallShard returns a shard's bytes and its rows.
func smallShard(t testing.TB) ([]byte, []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gpu-1.parquet")
	w, err := CreateParquet(path, table.GPU, map[string]string{keySet: `{"node":"n1"}`})
	if err != nil {
		t.Fatal(err)
	}
	b := gpuRows(0, 16)
	if err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for r := range b.Rows() {
		rows = append(rows, rowKey(b, r))
	}
	return raw, rows
}

func readShard(raw []byte) ([]string, error) {
	p, err := readParquet("gpu-1.parquet", bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return nil, err
	}
	t := table.ByName(p.table)
	if t == nil {
		return nil, &CorruptError{Path: p.path, Err: fmt.Errorf("table %q", p.table)}
	}
	var rows []string
	for i := range p.groups {
		err := p.readGroup(t, i, func(b *table.Batch) error {
			for r := range b.Rows() {
				rows = append(rows, rowKey(b, r))
			}
			return nil
		})
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func TestShardEveryTruncation(t *testing.T) {
	raw, _ := smallShard(t)
	for n := 0; n < len(raw); n += stride {
		rows, err := readShard(raw[:n])
		var corrupt *CorruptError
		if len(rows) > 0 || !errors.As(err, &corrupt) {
			t.Fatalf("cut to %d: %d rows, %v", n, len(rows), err)
		}
	}
}

func TestShardEveryByteFlipped(t *testing.T) {
	raw, want := smallShard(t)
	if got, err := readShard(raw); err != nil || !slices.Equal(got, want) {
		t.Fatalf("undamaged: %v", err)
	}
	// The sum of all data is what verify looks at; reading looks at the row
	// groups' own.
	sum := bytes.LastIndex(raw, trailerMagic) + len(trailerMagic)
	for i := 0; i < len(raw); i += stride {
		b := bytes.Clone(raw)
		b[i] ^= 1 << rand.New(rand.NewSource(int64(i))).Intn(8)
		if i >= sum && i < sum+4 {
			if p, err := readParquet("x", bytes.NewReader(b), int64(len(b))); err == nil && p.verify() == nil {
				t.Fatalf("byte %d: verified", i)
			}
			continue
		}
		rows, err := readShard(b)
		if len(rows) > 0 || err == nil {
			t.Fatalf("byte %d: %d rows, %v", i, len(rows), err)
		}
	}
}
