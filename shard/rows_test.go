package shard

import (
	"fmt"
	"math"
	"math/rand"
	"strings"

	"github.com/gswarm/gswarm/table"
)

// gpuRows makes n rows of the gpu table that look like a node of eight GPUs,
// beginning with the from-th. The same from gives the same rows.
func gpuRows(from, n int) *table.Batch {
	b := table.NewBatch(table.GPU, n)
	for i := from; i < from+n; i++ {
		rng := rand.New(rand.NewSource(int64(i)))
		gpu, tick := i%8, i/8
		begin := int64(1e15) + int64(tick)*100e6 + int64(gpu)*40e3 + rng.Int63n(5000)
		r := b.Append()
		r.Read(begin, begin+30e3+rng.Int63n(9000))
		r.Int(table.GPUIndex, int64(gpu))
		r.String(table.GPUUUID, fmt.Sprintf("GPU-8f6d2c1e-1c1f-4b0e-9a77-0000000000%02d", gpu))
		r.Int(table.GPUUtil, rng.Int63n(101))
		r.Int(table.GPUUtilMem, rng.Int63n(60))
		r.Int(table.GPUMemUsed, 60<<30+rng.Int63n(8)<<21)
		r.Int(table.GPUTemp, 40+rng.Int63n(20))
		if gpu != 3 { // one GPU lacks the sensor
			r.Int(table.GPUTempMem, 50+rng.Int63n(20))
		}
		r.Int(table.GPUClockSM, 1980-15*rng.Int63n(5))
		r.Int(table.GPUClockMem, 2619)
		r.Int(table.GPUEventReasons, 4)
		r.Int(table.GPUPState, 0)
		r.Int(table.GPUPowerAvg, 400e3+rng.Int63n(300e3))
		r.Int(table.GPUPowerNow, 400e3+rng.Int63n(300e3))
	}
	return b
}

// diffRows says where two batches differ, bit by bit for floats.
func diffRows(got, want *table.Batch) string {
	if got.Rows() != want.Rows() {
		return fmt.Sprintf("%d rows, want %d", got.Rows(), want.Rows())
	}
	for r := range got.Rows() {
		if g, w := rowKey(got, r), rowKey(want, r); g != w {
			return fmt.Sprintf("row %d:\n got %s\nwant %s", r, g, w)
		}
	}
	return ""
}

// rowKey is all of a row's values as a string.
func rowKey(b *table.Batch, r int) string {
	var s strings.Builder
	for i, c := range b.Table.Columns {
		if !b.Valid(i)[r] {
			s.WriteString("|null")
			continue
		}
		switch c.Type {
		case table.String:
			fmt.Fprintf(&s, "|%q", b.Strings(i)[r])
		case table.Float32, table.Float64:
			fmt.Fprintf(&s, "|%x", math.Float64bits(b.Floats(i)[r]))
		default:
			fmt.Fprintf(&s, "|%d", b.Ints(i)[r])
		}
	}
	return s.String()
}
