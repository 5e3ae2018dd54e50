package shard

import (
	"bytes"
	"testing"

	"github.com/apache/arrow/go/v15/arrow/ipc"

	"github.com/gswarm/gswarm/table"
)

func TestStreamIsPlainArrow(t *testing.T) {
	for _, rows := range []int{0, 1, frameRows + 5} {
		var buf bytes.Buffer
		s, err := NewStream(&buf, table.GPU)
		if err != nil {
			t.Fatal(err)
		}
		want := gpuRows(0, rows)
		if err := s.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := ipc.NewReader(&buf)
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := r.Schema().Metadata().GetValue(keyTable); !ok || v != "gpu" {
			t.Errorf("metadata %v", r.Schema().Metadata())
		}
		if f, _ := r.Schema().FieldsByName("power_now_mw"); metadataValue(f[0], "unit") != "mW" {
			t.Errorf("field %v", f)
		}
		got := int64(0)
		for r.Next() {
			got += r.Record().NumRows()
		}
		if err := r.Err(); err != nil || got != int64(rows) || s.Rows() != got {
			t.Errorf("%d rows, want %d: %v", got, rows, err)
		}
		r.Release()
	}
}
