package shard

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gswarm/gswarm/table"
)

// What does not get smaller is stored as a frame that every reader of zstd
// reads.
func TestStoredFrame(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, 1 << 16, storedMax} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i * 7)
		}
		got, err := unzstd.DecodeAll(appendStored(nil, b), nil)
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("%d bytes: %d came back, %v", n, len(got), err)
		}
	}
}

// Of a column of noise one page in eight is compressed to see whether it still
// is; of others every page is.
func TestNoiseIsStored(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	tab := &table.Table{Name: "t", Columns: []table.Column{
		{Name: "noise", Type: table.Int64, Required: true}, {Name: "level", Type: table.Int64, Required: true},
	}}
	const pages = 16
	b := table.NewBatch(tab, pages*pageRows)
	for range pages * pageRows {
		r := b.Append()
		r.Int(0, rng.Int64N(1<<40))
		r.Int(1, 40+rng.Int64N(20)/19)
	}
	enc, err := NewEncoder()
	if err != nil {
		t.Fatal(err)
	}
	var g Group
	if err := enc.Encode(&g, b); err != nil {
		t.Fatal(err)
	}
	rest := bytes.Join(g.parts, nil)
	for i, want := range []int{pages / (storePages + 1) * storePages, 0} {
		chunk := rest[:g.chunks[i].size]
		rest = rest[len(chunk):]
		stored := 0
		for len(chunk) > 0 {
			h, err := parsePageHeader(chunk)
			if err != nil {
				t.Fatal(err)
			}
			page := chunk[h.length:][:h.size]
			raw, err := unzstd.DecodeAll(page, nil)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(page, appendStored(nil, raw)) {
				stored++
			}
			chunk = chunk[h.length+int(h.size):]
		}
		if stored != want {
			t.Errorf("column %s: %d of %d pages stored, want %d", tab.Columns[i].Name, stored, pages, want)
		}
	}
}
