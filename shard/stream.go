package shard

import (
	"fmt"
	"io"
	"strconv"

	"github.com/apache/arrow/go/v15/arrow"

	"github.com/gswarm/gswarm/table"
)

// eos is the mark at the end of an IPC stream.
var eos = [eosLen]byte{0xff, 0xff, 0xff, 0xff}

// Stream writes rows of one table as a plain Arrow IPC stream, which any Arrow
// reader opens without us.
type Stream struct {
	w    io.Writer
	enc  *encoder
	rows int64
}

// NewStream begins a stream; its schema describes the columns.
func NewStream(w io.Writer, t *table.Table) (*Stream, error) {
	enc, err := newEncoder(t)
	if err != nil {
		return nil, err
	}
	meta := arrow.MetadataFrom(map[string]string{keyVersion: strconv.Itoa(table.Version), keyTable: t.Name})
	head, err := schemaMessage(arrow.NewSchema(arrowSchema(t, true).Fields(), &meta))
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(head); err != nil {
		return nil, fmt.Errorf("writing a stream of %s: %w", t.Name, err)
	}
	return &Stream{w: w, enc: enc}, nil
}

// Write adds the batch's rows. The batch may be reused at once.
func (s *Stream) Write(b *table.Batch) error {
	for from := 0; from < b.Rows(); from += frameRows {
		to := min(from+frameRows, b.Rows())
		msg, err := s.enc.encode(b, from, to)
		if err != nil {
			return err
		}
		if _, err := s.w.Write(msg); err != nil {
			return fmt.Errorf("writing a stream of %s: %w", s.enc.table.Name, err)
		}
		s.rows += int64(to - from)
	}
	return nil
}

// Rows returns the rows written.
func (s *Stream) Rows() int64 { return s.rows }

// Close ends the stream; what it was written to stays open.
func (s *Stream) Close() error {
	if _, err := s.w.Write(eos[:]); err != nil {
		return fmt.Errorf("ending a stream of %s: %w", s.enc.table.Name, err)
	}
	return nil
}
