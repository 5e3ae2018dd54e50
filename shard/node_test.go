package shard

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

func TestNodeRuleOfSpools(t *testing.T) {
	dir := t.TempDir()
	write := func(n int, rows *table.Batch, end bool) string {
		s, err := CreateSpool(filepath.Join(dir, fmt.Sprintf("spool-%d", n)), SpoolMeta{Node: "n1", Created: clock.NodeTime(n)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Write(rows); err != nil {
			t.Fatal(err)
		}
		if end {
			err = s.End(clock.NodeTime(n), EndTile)
		} else {
			err = s.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return s.Path()
	}
	path1 := write(1, gpuRows(0, 100), true)
	copied, err := os.ReadFile(path1)
	if err != nil {
		t.Fatal(err)
	}
	files, err := Seal(path1)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	write(2, gpuRows(100, 50), false)
	read := func() (*Node, *table.Batch) {
		nd, err := OpenNode(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nd.Close)
		got := table.NewBatch(table.GPU, 0)
		if err := nd.Rows(table.GPU, func(b *table.Batch) error { got.AppendBatch(b); return nil }); err != nil {
			t.Fatal(err)
		}
		return nd, got
	}
	nd, got := read()
	sameRows(t, got, gpuRows(0, 150))
	if len(nd.Losses()) != 0 || nd.Ended() != nil || nd.Name() != "n1" || nd.TableRows("gpu") != 150 {
		t.Errorf("losses %v, end %v, name %q", nd.Losses(), nd.Ended(), nd.Name())
	}
	segs := nd.Segments()
	if len(segs) != 2 || !segs[0].Sealed || segs[1].Sealed || segs[0].End == nil || segs[0].End.Reason != EndTile {
		t.Errorf("segments %+v", segs)
	}
	// A seal that died before it removed its spool: shards, whole or not,
	// do not count.
	if err := os.WriteFile(path1, copied, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "host-1.parquet"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	nd, got = read()
	sameRows(t, got, gpuRows(0, 150))
	if len(nd.Losses()) != 0 {
		t.Errorf("losses %v", nd.Losses())
	}
	// It can be repeated.
	if _, err := Seal(path1); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, "host-1.parquet"))
	_, got = read()
	sameRows(t, got, gpuRows(0, 150))
}

func TestSealKeepsLossesAndEnd(t *testing.T) {
	raw, want := smallSpool(t, true)
	for name, damage := range map[string]func([]byte) []byte{
		"torn":    func(b []byte) []byte { return b[:len(b)-150] },
		"corrupt": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"header":  func(b []byte) []byte { return b[:150] },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "spool-4")
			if err := os.WriteFile(path, damage(bytes.Clone(raw)), 0o600); err != nil {
				t.Fatal(err)
			}
			look := func() string {
				nd, err := OpenNode(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer nd.Close()
				rows := make(map[string][]string)
				for _, tb := range table.All() {
					err := nd.Rows(tb, func(b *table.Batch) error {
						for r := range b.Rows() {
							rows[tb.Name] = append(rows[tb.Name], rowKey(b, r))
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					if !subsequence(rows[tb.Name], want[tb.Name]) {
						t.Errorf("false rows of %s", tb.Name)
					}
				}
				return fmt.Sprintf("%v\n%v\n%v", rows, nd.Losses(), nd.Ended())
			}
			before := look()
			if _, err := Seal(path); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(path); err == nil {
				t.Error("the spool is still there")
			}
			if after := look(); after != before {
				t.Errorf("sealing changed what can be known:\n%s\n%s", before, after)
			}
		})
	}
}

func TestNodeCountsDamagedAndMissingShards(t *testing.T) {
	raw, _ := smallSpool(t, true)
	dir := t.TempDir()
	path := filepath.Join(dir, "spool-4")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Seal(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "gpu-4.parquet"), 700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "host-4.parquet")); err != nil {
		t.Fatal(err)
	}
	nd, err := OpenNode(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer nd.Close()
	got := nd.Losses()
	if len(got) != 2 || got[0].Code != CorruptShard || got[0].Rows != 12 || got[1].Code != MissingShard || got[1].Rows != 3 {
		t.Errorf("losses %+v", got)
	}
	if nd.TableRows("event") != 3 {
		t.Errorf("%d events", nd.TableRows("event"))
	}
}
