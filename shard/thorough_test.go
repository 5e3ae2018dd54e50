package shard

import (
	"math"
	"math/rand"
	"path/filepath"
	"testing"

	"github.com/gswarm/gswarm/table"
)

// TestThorough: what sealing takes the trouble to choose is never longer than
// what is written at once, every way is taken by some column, and our own
// reader gets the values back.
func TestThorough(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	taken := map[intPlan]int{}
	for _, n := range []int{1, 2, 100, 2048, 2049, 20000} {
		want := oracleRows(rng, n)
		size := [2]int64{}
		for i, encoder := range []func() (*Encoder, error){NewEncoder, newThoroughEncoder} {
			e, err := encoder()
			must(t, err)
			var g Group
			must(t, e.Encode(&g, want))
			size[i] = g.Size()
			if e.thorough {
				for c, col := range want.Table.Columns {
					if col.Type == table.Int32 || col.Type == table.Int64 {
						st := newStats(col.Type)
						p := intPlan{encoding: st.integers(want.Ints(c), want.Valid(c))}
						if st.any {
							p, err = e.choose(col, dataOf(want, c), p)
							must(t, err)
							taken[p]++
						}
					}
				}
			}
			e.Release()
		}
		// One page stands for all, which may be wrong by a little.
		if float64(size[1]) > 1.01*float64(size[0]) {
			t.Errorf("%d rows: %d bytes, at once %d", n, size[1], size[0])
		}
		path := filepath.Join(t.TempDir(), "x.parquet")
		w, err := createParquet(path, path, oracleTable, nil, newThoroughEncoder)
		must(t, err)
		must(t, w.Write(want))
		must(t, w.Close())
		got := table.NewBatch(oracleTable, n)
		must(t, ReadParquet(path, oracleTable, func(b *table.Batch) error {
			got.AppendRange(b, 0, b.Rows())
			return nil
		}))
		sameRows(t, got, want)
	}
	for _, p := range []intPlan{{encodingPlain, false}, {encodingDelta, false}, {encodingDelta, true}, {encodingDict, false}} {
		if taken[p] == 0 {
			t.Errorf("no column is encoded as %+v: %v", p, taken)
		}
	}
}

// TestEvenDelta: differences that wrap around, and widths up to eight bytes.
func TestEvenDelta(t *testing.T) {
	rng := rand.New(rand.NewSource(2))
	for _, bits := range []int{0, 1, 7, 8, 9, 31, 33, 55, 57, 63, 64} {
		v := make([]int64, 1000)
		for i := range v {
			v[i] = int64(rng.Uint64() >> (64 - bits) << max(0, 3-bits))
		}
		v[7], v[8] = math.MinInt64, math.MaxInt64
		var d delta
		must(t, d.open(appendDelta(nil, v, true)))
		got := make([]int64, len(v))
		must(t, d.dense(got))
		for i := range v {
			if got[i] != v[i] {
				t.Fatalf("%d bits: value %d is %d, want %d", bits, i, got[i], v[i])
			}
		}
	}
}
