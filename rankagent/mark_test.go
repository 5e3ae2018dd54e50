package rankagent

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/control"
)

// heard keeps what marks record.
type heard struct {
	mu     sync.Mutex
	events []string
	at     []clock.NodeTime
}

func (h *heard) event(at clock.NodeTime, kind string, _, rank int, detail any) {
	b, err := json.Marshal(detail)
	if err != nil {
		panic(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = append(h.at, at)
	h.events = append(h.events, fmt.Sprintf("%s %d %s", kind, rank, b))
}

func startMarks(t *testing.T, rankOf func(int) int) (*marks, *control.MarkSender, *heard) {
	t.Helper()
	name := control.MarkName(fmt.Sprint(t.Name(), os.Getpid()))
	s, err := control.ListenMarks(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := control.NewMarkSender(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	h := &heard{}
	return newMarks(s, clock.System{}, h.event, rankOf), c, h
}

// TestMarks sends good and bad marks; all that were sent before the end are
// accounted for.
func TestMarks(t *testing.T) {
	m, c, h := startMarks(t, func(pid int) int {
		if pid == os.Getpid() {
			return 7
		}
		return -1
	})
	before := clock.System{}.Now()
	for _, text := range []string{"epoch 3\n", `{"mark":"a","rank":2}`, "{odd", "", "\xff\xfe", "a\x00b", strings.Repeat("x", 5000)} {
		if err := c.Send([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	after := clock.System{}.Now()
	go m.run() // what waits in the socket was sent before
	m.end()
	want := []string{"mark 7 {\"text\":\"epoch 3\"", "mark 7 {\"text\":\"a\"", "mark 7 {\"text\":\"{odd\"", `marks_dropped -1 {"garbage":`}
	if len(h.events) < len(want) {
		t.Fatalf("got %q", h.events)
	}
	for i, w := range want {
		if !strings.HasPrefix(h.events[i], w) {
			t.Errorf("event %d is %s, want %s", i, h.events[i], w)
		}
	}
	all := strings.Join(h.events, " ")
	if !strings.Contains(all, `"oversize":1`) {
		t.Errorf("no oversize in %s", all)
	}
	for i := range 3 {
		if h.at[i] < before-1e6 || h.at[i] > after+1e6 { // two clocks are read
			t.Errorf("mark %d at %d, not within %d and %d", i, h.at[i], before, after)
		}
	}
}

// TestMarkOfTheDead takes the rank that a sender claims whose process nobody
// knows any more.
func TestMarkOfTheDead(t *testing.T) {
	m, _, h := startMarks(t, nil)
	m.take(control.Mark{Text: []byte(`{"mark":"x","rank":5}`), UID: os.Getuid(), PID: 1})
	m.take(control.Mark{Text: []byte(`{"mark":"x","rank":-5}`), UID: os.Getuid(), PID: 1})
	m.take(control.Mark{Text: []byte("x"), UID: os.Getuid() + 1, PID: 1})
	go m.run()
	m.end()
	if len(h.events) != 3 || !strings.HasPrefix(h.events[0], "mark 5") || !strings.HasPrefix(h.events[1], "mark -1") || h.events[2] != `marks_dropped -1 {"foreign":1}` {
		t.Errorf("got %q", h.events)
	}
}

// TestMarkRate counts what comes too fast.
func TestMarkRate(t *testing.T) {
	m, _, h := startMarks(t, nil)
	for range 2 * markBurst {
		m.take(control.Mark{Text: []byte("x"), UID: os.Getuid()})
	}
	kept := len(h.events)
	if kept < markBurst || kept > markBurst+markRate*5 || m.dropped["rate"] != 2*markBurst-kept {
		t.Errorf("%d kept, %d dropped", kept, m.dropped["rate"])
	}
	m.socket.Close()
}

func FuzzParseMark(f *testing.F) {
	for _, s := range []string{"x", `{"mark":"a","rank":2}`, `{"mark":1}`, "\xff", "", "a\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if text, rank, _ := parseMark(b); rank < -1 || strings.ContainsRune(text, 0) && b[0] != '{' {
			t.Errorf("%q is %q, %d", b, text, rank)
		}
	})
}
