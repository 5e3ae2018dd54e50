package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// SpoolMeta is what a spool says of itself in its first frame.
type SpoolMeta struct {
	FormatVersion int    `json:"format_version"`
	Node          string `json:"node"`
	// Program is the version of the gswarm that wrote it.
	Program string `json:"program"`
	// BootID tells apart two lives of a node, whose raw clocks share no
	// origin.
	BootID string `json:"boot_id,omitempty"`
	// Tile is the length of the stretch of reference time that one spool is
	// meant to hold.
	Tile time.Duration `json:"tile_ns"`
	// Created is when the spool was begun.
	Created clock.NodeTime `json:"created_raw_ns"`
}

// End is the last frame of a spool that was ended and not merely abandoned.
type End struct {
	T clock.NodeTime `json:"t_raw_ns" yaml:"t_raw_ns"`
	// Reason is "tile" where the node went on in the next spool.
	Reason string `json:"reason" yaml:"reason"`
}

// EndTile is the reason of an end that only closes a tile.
const EndTile = "tile"

// File is what a spool needs of its file. Writes append.
type File interface {
	Write(p []byte) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Spool appends rows to a file such that whatever was written before the
// process died can be read back. It is used by one goroutine at a time.
type Spool struct {
	path string
	f    File
	zstd *zstd.Encoder

	tables map[string]*spoolTable
	buf    []byte // frames not yet written
	frames []pending
	size   int64 // bytes in the file, less torn
	torn   int64 // bytes of a torn frame at the file's end

	seq     uint32
	rows    uint64
	dropped uint64
}

type spoolTable struct {
	enc *encoder
	// announced says that the schema's frame is in the file or in buf.
	announced bool
}

// pending is a frame in buf.
type pending struct {
	end   int // offset in buf behind the frame
	rows  uint32
	table *spoolTable // set on a schema's frame
}

// frameRows is how many rows a frame holds at most, which bounds what a reader
// has to hold.
const frameRows = 8192

// CreateSpool creates the file, which must not exist, and writes its first
// frame.
func CreateSpool(path string, meta SpoolMeta) (*Spool, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating a spool: %w", err)
	}
	s, err := NewSpool(f, path, meta)
	if err != nil {
		f.Close()
		os.Remove(path)
		return nil, err
	}
	return s, nil
}

// NewSpool begins a spool in an empty file; path is its name for messages. The
// spool closes the file in the end.
func NewSpool(f File, path string, meta SpoolMeta) (*Spool, error) {
	meta.FormatVersion = table.Version
	enc, err := newZstdEncoder(false)
	if err != nil {
		return nil, err
	}
	s := &Spool{path: path, f: f, zstd: enc, tables: make(map[string]*spoolTable)}
	if err := s.appendJSON(kindMeta, meta); err != nil {
		return nil, err
	}
	if err := s.Flush(); err != nil {
		return nil, err
	}
	return s, nil
}

// newZstdEncoder makes the one encoder that a writer uses for all it writes:
// making one costs far more than a small page's compression. A thorough one looks
// for bytes that are more frequent than others also where nothing repeats.
func newZstdEncoder(thorough bool) (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(256<<10), zstd.WithLowerEncoderMem(true), zstd.WithZeroFrames(true),
		zstd.WithAllLitEntropyCompression(thorough))
}

// OSFile returns the open file, for locking it; nil if it is none of the
// operating system's.
func (s *Spool) OSFile() *os.File {
	f, _ := s.f.(*os.File)
	return f
}

// Path returns the spool's path.
func (s *Spool) Path() string { return s.path }

// Size returns the bytes written, whole frames only.
func (s *Spool) Size() int64 { return s.size }

// Rows returns the rows written.
func (s *Spool) Rows() int64 { return int64(s.rows-s.dropped) - s.pendingRows() }

// Dropped returns the rows that were appended and could not be written. A
// reader of the spool finds the same number.
func (s *Spool) Dropped() int64 { return int64(s.dropped) }

func (s *Spool) pendingRows() (n int64) {
	for _, p := range s.frames {
		n += int64(p.rows)
	}
	return n
}

// Append puts the batch's rows into the buffer that Flush writes. The batch may
// be reused at once.
func (s *Spool) Append(b *table.Batch) error {
	t := s.tables[b.Table.Name]
	if t == nil {
		enc, err := newEncoder(b.Table)
		if err != nil {
			return err
		}
		t = &spoolTable{enc: enc}
		s.tables[b.Table.Name] = t
	}
	for from := 0; from < b.Rows(); from += frameRows {
		if err := s.appendRows(t, b, from, min(from+frameRows, b.Rows())); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spool) appendRows(t *spoolTable, b *table.Batch, from, to int) error {
	msg, err := t.enc.encode(b, from, to)
	if err != nil {
		s.rows += uint64(to - from)
		s.dropped += uint64(to - from)
		return fmt.Errorf("spooling to %s: %w", s.path, err)
	}
	if !t.announced {
		s.add(frame{kind: kindSchema, name: b.Table.Name, schema: t.enc.crc}, t.enc.fields, t)
		t.announced = true
	}
	f := frame{kind: kindRows, name: b.Table.Name, schema: t.enc.crc, rows: uint32(to - from)}
	f.tMin, f.tMax = span(b.Ints(table.ColT)[from:to])
	if s.add(f, msg, nil) > frameMax {
		s.unadd()
		s.dropped += uint64(to - from)
		return fmt.Errorf("spooling to %s: %d rows of %s exceed the %d bytes of a frame", s.path, to-from, b.Table.Name, frameMax)
	}
	return nil
}

func span(t []int64) (lo, hi int64) {
	lo, hi = t[0], t[0]
	for _, v := range t[1:] {
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

// add appends a frame to the buffer and returns its length.
func (s *Spool) add(f frame, payload []byte, t *spoolTable) int {
	begin := len(s.buf)
	s.buf = beginFrame(s.buf, f.name)
	s.buf = s.zstd.EncodeAll(payload, s.buf)
	f.codec = codecZstd
	f.seq, f.rowsBefore = s.seq, s.rows
	finishFrame(s.buf[begin:], &f)
	s.frames = append(s.frames, pending{end: len(s.buf), rows: f.rows, table: t})
	s.seq++
	s.rows += uint64(f.rows)
	return len(s.buf) - begin
}

// unadd takes the last frame out of the buffer again. Its number stays used,
// which is how a reader learns of it.
func (s *Spool) unadd() {
	s.frames = s.frames[:len(s.frames)-1]
	end := 0
	if n := len(s.frames); n > 0 {
		end = s.frames[n-1].end
	}
	s.buf = s.buf[:end]
}

func (s *Spool) appendJSON(kind frameKind, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing %s: %w", s.path, err)
	}
	s.add(frame{kind: kind}, b, nil)
	return nil
}

// Write appends a batch and flushes it.
func (s *Spool) Write(b *table.Batch) error {
	if err := s.Append(b); err != nil {
		return err
	}
	return s.Flush()
}

// Flush writes all buffered frames with one write. If it fails, the file is cut
// back to its last whole frame, and the frames that did not get into it stay
// buffered: the next Flush tries them again, GiveUp lets them go.
func (s *Spool) Flush() error {
	s.cut()
	if len(s.buf) == 0 {
		return nil
	}
	n, err := s.f.Write(s.buf)
	if err == nil && n < len(s.buf) {
		err = errors.New("short write")
	}
	done, whole := 0, 0
	for _, p := range s.frames {
		if p.end > n {
			break
		}
		done, whole = done+1, p.end
	}
	s.size += int64(whole)
	s.buf = append(s.buf[:0], s.buf[whole:]...)
	s.frames = append(s.frames[:0], s.frames[done:]...)
	for i := range s.frames {
		s.frames[i].end -= whole
	}
	if err == nil {
		return nil
	}
	s.torn = int64(n - whole)
	s.cut()
	return fmt.Errorf("writing the spool %s (%d rows wait): %w", s.path, s.pendingRows(), err)
}

// GiveUp lets go of the frames that could not be written. Their rows count
// among Dropped, and a reader of the spool finds the same number if anything is
// written behind them.
func (s *Spool) GiveUp() {
	for _, p := range s.frames {
		s.dropped += uint64(p.rows)
		if p.table != nil {
			p.table.announced = false
		}
	}
	s.buf, s.frames = s.buf[:0], s.frames[:0]
}

// Gone reports whether the file was removed, or its filesystem has forgotten
// it: what is written to it then, nobody will read.
func (s *Spool) Gone() bool {
	f, ok := s.f.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false
	}
	st, err := f.Stat()
	if err != nil {
		return errors.Is(err, unix.ESTALE)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && sys.Nlink == 0
}

// Tables names the tables that rows were appended of.
func (s *Spool) Tables() []string { return slices.Sorted(maps.Keys(s.tables)) }

// cut removes a torn frame from the file's end. If that fails it stays, and a
// reader finds the next frame behind it.
func (s *Spool) cut() {
	if s.torn == 0 {
		return
	}
	if s.f.Truncate(s.size) != nil {
		s.size += s.torn
	}
	s.torn = 0
}

// Sync flushes and forces what was written to the disk.
func (s *Spool) Sync() error {
	if err := s.Flush(); err != nil {
		return err
	}
	if err := s.f.Sync(); !syncUnsupported(err) {
		return fmt.Errorf("syncing the spool %s: %w", s.path, err)
	}
	return nil
}

// End writes the end mark, syncs and closes the file. The spool cannot be used
// afterwards, whatever it returns.
func (s *Spool) End(t clock.NodeTime, reason string) error {
	err := s.appendJSON(kindEnd, End{T: t, Reason: reason})
	if err == nil {
		err = s.Sync()
	}
	s.GiveUp()
	return errors.Join(err, s.Close())
}

// Close closes the file without an end mark, as if the process had died.
func (s *Spool) Close() error {
	s.zstd.Close()
	if err := s.f.Close(); err != nil {
		return fmt.Errorf("closing the spool %s: %w", s.path, err)
	}
	return nil
}
