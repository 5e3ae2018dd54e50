// Package rows carries clock readings to rows of their tables and back. It is
// apart from package clock so that the tables' layout is no concern of the
// models.
package rows

import (
	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// Where stamps were taken: by the program itself, or by the kernel as far as it
// gave any.
const (
	MethodUser   = "user"
	MethodKernel = "kernel"
)

// AppendExchange adds an exchange to a batch of table.ClockExchange. The row's read lasts from T1 to T4.
func AppendExchange(b *table.Batch, x clock.Exchange) {
	r := b.Append()
	r.Read(int64(x.T1), int64(x.T4))
	r.String(table.ExPeer, x.Peer)
	r.Int(table.ExBurst, x.Burst)
	r.Int(table.ExSeq, int64(x.Seq))
	method := MethodUser
	if x.Kernel {
		method = MethodKernel
	}
	r.String(table.ExMethod, method)
	r.Int(table.ExT1, int64(x.T1))
	r.Int(table.ExT2, int64(x.T2))
	r.Int(table.ExT3, int64(x.T3))
	r.Int(table.ExT4, int64(x.T4))
}

// ExchangesFrom returns the exchanges of a batch of table.ClockExchange, in
// its order. Rows whose stamps were taken by a method that is not known here, and
// rows that lack one, are left out: their bounds would need rules of their own.
func ExchangesFrom(b *table.Batch) []clock.Exchange {
	peers, methods := b.Strings(table.ExPeer), b.Strings(table.ExMethod)
	bursts, seqs := b.Ints(table.ExBurst), b.Ints(table.ExSeq)
	t1, t2, t3, t4 := b.Ints(table.ExT1), b.Ints(table.ExT2), b.Ints(table.ExT3), b.Ints(table.ExT4)
	out := make([]clock.Exchange, 0, b.Rows())
	for i := range b.Rows() {
		if methods[i] != MethodUser && methods[i] != MethodKernel || !valid(b, i, table.ExPeer, table.ExT1, table.ExT2, table.ExT3, table.ExT4) {
			continue
		}
		out = append(out, clock.Exchange{
			Peer: peers[i], Burst: bursts[i], Seq: int32(seqs[i]),
			T1: clock.NodeTime(t1[i]), T2: clock.NodeTime(t2[i]),
			T3: clock.NodeTime(t3[i]), T4: clock.NodeTime(t4[i]), Kernel: methods[i] == MethodKernel,
		})
	}
	return out
}

// AppendBracket adds a bracket to a batch of table.ClockBracket. The row's
// read lasts from Raw0 to Raw1; without Adj its columns are null.
func AppendBracket(b *table.Batch, k clock.Bracket) {
	r := b.Append()
	r.Read(int64(k.Raw0), int64(k.Raw1))
	r.Int(table.BrRaw0, int64(k.Raw0))
	r.Int(table.BrRaw1, int64(k.Raw1))
	r.Int(table.BrRealtime, k.Realtime)
	r.Int(table.BrMonotonic, k.Monotonic)
	r.Int(table.BrBoottime, k.Boottime)
	if k.Clocksource != "" {
		r.String(table.BrClocksource, k.Clocksource)
	}
	if k.Adj == nil {
		return
	}
	r.Int(table.BrAdjStatus, k.Adj.Status)
	r.Int(table.BrAdjMaxError, k.Adj.MaxError)
	r.Int(table.BrAdjEstError, k.Adj.EstError)
	r.Int(table.BrAdjFreq, k.Adj.Freq)
	r.Int(table.BrTAIOffset, int64(k.Adj.TAI))
}

// BracketsFrom returns the brackets of a batch of table.ClockBracket, in its
// order. Rows that lack a clock are left out.
func BracketsFrom(b *table.Batch) []clock.Bracket {
	raw0, raw1 := b.Ints(table.BrRaw0), b.Ints(table.BrRaw1)
	real, mono, boot := b.Ints(table.BrRealtime), b.Ints(table.BrMonotonic), b.Ints(table.BrBoottime)
	status, maxErr, estErr := b.Ints(table.BrAdjStatus), b.Ints(table.BrAdjMaxError), b.Ints(table.BrAdjEstError)
	freq, tai := b.Ints(table.BrAdjFreq), b.Ints(table.BrTAIOffset)
	out := make([]clock.Bracket, 0, b.Rows())
	for i := range b.Rows() {
		if !valid(b, i, table.BrRaw0, table.BrRaw1, table.BrRealtime, table.BrMonotonic, table.BrBoottime) {
			continue
		}
		k := clock.Bracket{
			Raw0: clock.NodeTime(raw0[i]), Raw1: clock.NodeTime(raw1[i]),
			Realtime: real[i], Monotonic: mono[i], Boottime: boot[i],
		}
		if valid(b, i, table.BrClocksource) {
			k.Clocksource = b.Strings(table.BrClocksource)[i]
		}
		if valid(b, i, table.BrAdjStatus) {
			k.Adj = &clock.Adjtimex{
				Status: status[i], MaxError: maxErr[i], EstError: estErr[i],
				Freq: freq[i], TAI: int32(tai[i]),
			}
		}
		out = append(out, k)
	}
	return out
}

// valid says whether none of the columns is null in row i.
func valid(b *table.Batch, i int, cols ...int) bool {
	for _, c := range cols {
		if !b.Valid(c)[i] {
			return false
		}
	}
	return true
}
