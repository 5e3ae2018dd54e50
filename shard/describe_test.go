package shard

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gswarm/gswarm/table"
)

func TestDescribe(t *testing.T) {
	for _, tb := range table.All() {
		for _, tb := range []*table.Table{tb, table.Timeline(tb)} {
			path := filepath.Join(t.TempDir(), "a.parquet")
			w, err := CreateParquet(path, tb, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			got, err := Describe(path)
			if err != nil || len(got) != len(tb.Columns) {
				t.Fatalf("%s: %d columns, %v", tb.Name, len(got), err)
			}
			for i, c := range tb.Columns {
				want := ColumnInfo{Name: c.Name, Type: c.Type.String(), Required: c.Required, Unit: c.Unit, Window: c.Window}
				if got[i] != want {
					t.Errorf("%s: got %+v, want %+v", tb.Name, got[i], want)
				}
			}
		}
	}
}

func TestDescribeNoDamagedFile(t *testing.T) {
	raw, _ := smallShard(t)
	path := filepath.Join(t.TempDir(), "a.parquet")
	for i := 0; i < len(raw); i += 7 {
		b := append([]byte(nil), raw...)
		b[i] ^= 4
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Describe(path); err == nil {
			t.Fatalf("byte %d: described", i)
		}
	}
}
