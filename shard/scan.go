package shard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/gswarm/gswarm/table"
)

// spool is a spool as a reader sees it: an index of its good frames. The rows
// stay in the file.
type spool struct {
	path string
	// f is nil while nobody reads: a merge knows more spools than it may
	// have open.
	f       io.ReaderAt
	mu      sync.Mutex // held by who reads rows
	size    int64
	meta    SpoolMeta
	end     *End
	frames  []frameRef
	schemas map[uint32][]byte
	losses  []Loss

	decoders map[decoderKey]*decoder
	buf, raw []byte
}

type decoderKey struct {
	table  string
	schema uint32
}

// frameRef is where a frame with rows lies.
type frameRef struct {
	offset     int64
	size       int
	table      string
	rows       int
	tMin, tMax int64
}

// openSpool scans the spool at path. Damage is no error as long as anything
// can be read: it is in losses.
func openSpool(path string) (*spool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a spool: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("opening a spool: %w", err)
	}
	defer f.Close()
	s, err := scanSpool(path, f, st.Size())
	if err != nil {
		return nil, err
	}
	s.f, s.buf, s.raw = nil, nil, nil
	return s, nil
}

// unframe decompresses payloads. It may be used from several goroutines.
var unframe = func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(frameMax))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
}()

// scanSpool is openSpool for any reader.
func scanSpool(path string, r io.ReaderAt, size int64) (*spool, error) {
	s := &spool{
		path: path, f: r, size: size,
		schemas: make(map[uint32][]byte), decoders: make(map[decoderKey]*decoder),
	}
	if err := s.scan(); err != nil {
		return nil, err
	}
	return s, nil
}

// use opens the file for reading rows and keeps others from it until the
// returned function is called.
func (s *spool) use() (func(), error) {
	s.mu.Lock()
	if s.f != nil {
		return s.mu.Unlock, nil
	}
	f, err := os.Open(s.path)
	if err != nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("opening a spool: %w", err)
	}
	s.f = f
	return func() {
		f.Close()
		s.f, s.buf, s.raw = nil, nil, nil
		clear(s.decoders)
		s.mu.Unlock()
	}, nil
}

// scan goes through the file once.
func (s *spool) scan() error {
	var (
		off      int64
		rows     uint64 // rows of the frames before off
		seq      uint32
		anything bool
		budget   = s.size*8 + frameMax // bytes that the search for frames may check
	)
	for off < s.size && s.end == nil {
		f, size, err := s.frameAt(off, seq, rows)
		bad := off
		if err != nil {
			if off, f, size = s.resync(off+1, seq, rows, &budget); size == 0 {
				return s.tail(bad, anything, err)
			}
			s.lose(Loss{Code: CorruptSpool, Offset: bad, Bytes: off - bad, Rows: int64(f.rowsBefore - rows), Detail: err.Error()})
		} else if f.rowsBefore > rows {
			s.lose(Loss{Code: NotWritten, Offset: off, Rows: int64(f.rowsBefore - rows), Detail: "the agent could not write them"})
		}
		if err := s.take(f, off, size); err != nil {
			return err
		}
		anything = true
		off, seq, rows = off+int64(size), f.seq+1, f.rowsBefore+uint64(f.rows)
	}
	if off < s.size {
		s.lose(Loss{Code: ForeignFile, Offset: off, Bytes: s.size - off, Rows: -1, Detail: "something stands behind the end mark"})
	}
	if s.size == 0 {
		s.lose(Loss{Code: TornTail, Rows: -1, Detail: "the spool is empty: its agent was killed before it wrote anything, or the disk was full"})
	}
	return nil
}

// tail judges what follows the last good frame.
func (s *spool) tail(off int64, anything bool, err error) error {
	if !anything && !s.beginsLikeSpool() {
		return &CorruptError{Path: s.path, Err: fmt.Errorf("%w: no frame in %d bytes", ErrNotSpool, s.size)}
	}
	s.lose(Loss{Code: TornTail, Offset: off, Bytes: s.size - off, Rows: -1, Detail: err.Error()})
	return nil
}

// beginsLikeSpool tells a spool that was cut within its first frame from a file
// that never was one.
func (s *spool) beginsLikeSpool() bool {
	b := make([]byte, min(int64(len(frameMagic)), s.size))
	n, _ := s.f.ReadAt(b, 0)
	return n == len(b) && bytes.HasPrefix(frameMagic[:], b)
}

func (s *spool) lose(l Loss) {
	l.File = filepath.Base(s.path)
	s.losses = append(s.losses, l)
}

// frameAt reads and verifies the frame at off. Frames older than the last good
// one are none: they would be what a filesystem left of another life.
func (s *spool) frameAt(off int64, seq uint32, rows uint64) (frame, int, error) {
	head := s.read(off, frameHeader)
	f, size, nameLen, err := parseHeader(head)
	if err != nil {
		return f, 0, err
	}
	if f.seq < seq || f.rowsBefore < rows || f.rowsBefore-rows > 1<<40 {
		return f, 0, fmt.Errorf("frame %d stands where %d or a later one belongs", f.seq, seq)
	}
	if int64(size) > s.size-off {
		return f, 0, errTorn
	}
	b := s.read(off, size)
	if len(b) < size {
		return f, 0, errTorn
	}
	return f, size, f.verify(b, nameLen)
}

// read returns up to n bytes at off, valid until the next call.
func (s *spool) read(off int64, n int) []byte {
	n = int(min(int64(n), s.size-off))
	if cap(s.buf) < n {
		s.buf = make([]byte, n+n/2)
	}
	got, _ := s.f.ReadAt(s.buf[:n], off)
	return s.buf[:got]
}

// resync looks for the next frame at or behind off. Size is 0 if there is none.
func (s *spool) resync(off int64, seq uint32, rows uint64, budget *int64) (int64, frame, int) {
	const window = 64 << 10
	chunk := make([]byte, window)
	for off < s.size && *budget > 0 {
		n, _ := s.f.ReadAt(chunk, off)
		*budget -= int64(n)
		if n < len(frameMagic) {
			break
		}
		for i := 0; ; {
			j := bytes.Index(chunk[i:n], frameMagic[:])
			if j < 0 {
				break
			}
			at := off + int64(i+j)
			f, size, err := s.frameAt(at, seq, rows)
			if err == nil {
				return at, f, size
			}
			*budget -= int64(len(s.buf))
			i += j + 1
		}
		off += int64(n - len(frameMagic) + 1)
	}
	return s.size, frame{}, 0
}

// take notes a verified frame.
func (s *spool) take(f frame, off int64, size int) error {
	switch f.kind {
	case kindMeta:
		if err := s.json(f, &s.meta); err != nil {
			return &CorruptError{Path: s.path, Offset: off, Err: err}
		}
		if s.meta.FormatVersion > table.Version {
			return &NewerError{Path: s.path, Have: s.meta.FormatVersion, Max: table.Version}
		}
	case kindSchema:
		b, err := s.payload(f)
		if err != nil {
			s.lose(Loss{Code: CorruptSpool, Table: f.name, Offset: off, Bytes: int64(size), Rows: 0, Detail: err.Error()})
			return nil
		}
		s.schemas[f.schema] = bytes.Clone(b)
	case kindRows:
		s.frames = append(s.frames, frameRef{offset: off, size: size, table: f.name, rows: int(f.rows), tMin: f.tMin, tMax: f.tMax})
	case kindEnd:
		s.end = new(End)
		if err := s.json(f, s.end); err != nil {
			return &CorruptError{Path: s.path, Offset: off, Err: err}
		}
	}
	return nil
}

func (s *spool) json(f frame, v any) error {
	b, err := s.payload(f)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// payload returns a frame's payload, valid until the next call.
func (s *spool) payload(f frame) ([]byte, error) {
	switch f.codec {
	case codecNone:
		return f.payload, nil
	case codecZstd:
		var err error
		s.raw, err = unframe.DecodeAll(f.payload, s.raw[:0])
		if err != nil {
			return nil, fmt.Errorf("decompressing: %w", err)
		}
		return s.raw, nil
	}
	return nil, fmt.Errorf("unknown codec %d", f.codec)
}

// rows appends the rows of one frame to b.
func (s *spool) rows(ref frameRef, t *table.Table, b *table.Batch) error {
	buf := s.read(ref.offset, ref.size)
	f, size, nameLen, err := parseHeader(buf)
	if err != nil {
		return err
	}
	if size != len(buf) || int(f.rows) != ref.rows {
		return errTorn
	}
	if err := f.verify(buf, nameLen); err != nil {
		return err
	}
	// A frame of no more rows than Append makes; more is not of its making.
	if f.rows > frameRows {
		return fmt.Errorf("%d rows in one frame", f.rows)
	}
	d, err := s.decoder(t, f.schema)
	if err != nil {
		return err
	}
	msg, err := s.payload(f)
	if err != nil {
		return err
	}
	if err := d.decode(msg, int(f.rows), b); err != nil {
		// A reader that met an error reads on no more.
		delete(s.decoders, decoderKey{t.Name, f.schema})
		return err
	}
	return nil
}

// decoder returns the decoder for frames of a schema. If the schema's own frame
// is lost, it may still be the one that this program writes.
func (s *spool) decoder(t *table.Table, crc uint32) (*decoder, error) {
	key := decoderKey{t.Name, crc}
	if d := s.decoders[key]; d != nil {
		return d, nil
	}
	fields := s.schemas[crc]
	if fields == nil {
		enc, err := newEncoder(t)
		if err != nil {
			return nil, err
		}
		if enc.crc != crc {
			return nil, fmt.Errorf("the schema of table %s is lost", t.Name)
		}
		fields = enc.fields
	}
	d, err := newDecoder(t, fields)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", t.Name, err)
	}
	s.decoders[key] = d
	return d, nil
}
