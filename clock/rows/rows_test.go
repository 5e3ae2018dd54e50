package rows

import (
	"reflect"
	"testing"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

func TestExchanges(t *testing.T) {
	b := table.NewBatch(table.ClockExchange, 0)
	want := []clock.Exchange{
		{Peer: "head", Burst: 3, Seq: 1, T1: 10, T2: -50, T3: -40, T4: 30},
		{Peer: "n2", Burst: 1 << 40, Seq: 7, T1: 1 << 60, T2: 2, T3: 3, T4: 1<<60 + 9},
		{Peer: "head", Burst: 3, Seq: 1, T1: 11, T2: -50, T3: -39, T4: 29, Kernel: true},
	}
	for _, x := range want {
		AppendExchange(b, x)
	}
	if got := ExchangesFrom(b); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if m, n := b.Ints(table.ColT)[0], b.Ints(table.ColRead)[0]; m != 20 || n != 20 {
		t.Errorf("read at %d for %d ns, want at 20 for 20", m, n)
	}
	b.Append().String(table.ExMethod, MethodUser) // no stamps
	AppendExchange(b, want[0])
	b.Strings(table.ExMethod)[4] = "sundial"
	if got := ExchangesFrom(b); len(got) != 3 {
		t.Errorf("%d exchanges, want the 3 whole ones by known methods", len(got))
	}
}

func TestBrackets(t *testing.T) {
	b := table.NewBatch(table.ClockBracket, 0)
	want := []clock.Bracket{
		{Raw0: 1, Raw1: 5, Realtime: 1_790_000_000_000_000_000, Monotonic: 2, Boottime: 3},
		{Raw0: 11, Raw1: 15, Realtime: 7, Monotonic: 8, Boottime: 9, Clocksource: "tsc", Adj: &clock.Adjtimex{Status: 64, MaxError: 16_000_000_000, EstError: 5, Freq: -65536, TAI: 37}},
	}
	for _, k := range want {
		AppendBracket(b, k)
	}
	b.Append()
	if got := BracketsFrom(b); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
