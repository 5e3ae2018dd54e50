package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// largeNode writes the /proc of a node with 256 CPUs, 1500 interrupts, 40
// network interfaces and 100 block devices.
func largeNode(b *testing.B) string {
	b.Helper()
	proc := b.TempDir()
	put := func(name, text string) { write(b, filepath.Join(proc, name), text) }

	var s strings.Builder
	s.WriteString("cpu  5124123412 0 346623412 176257123412 85512 0 85123 14 0 0\n")
	for i := range 256 {
		fmt.Fprintf(&s, "cpu%d 512412341 0 34662341 17625712341 85512 0 85123 14 0 0\n", i)
	}
	s.WriteString("intr 312977123412" + strings.Repeat(" 1234567 0", 750) + "\nctxt 5872811234\nbtime 1763671234\n" +
		"processes 1234123\nprocs_running 3\nprocs_blocked 0\nsoftirq 12312 1 2 3 4 5 6 7 8 9 10\n")
	put("stat", s.String())

	for _, name := range []string{"meminfo", "loadavg", "pressure/cpu", "pressure/memory", "pressure/io"} {
		text, err := os.ReadFile(filepath.Join("testdata/modern/proc", name))
		if err != nil {
			b.Fatal(err)
		}
		put(name, string(text))
	}

	s.Reset()
	s.WriteString("Inter-| Receive\n face |bytes\n")
	for i := range 40 {
		fmt.Fprintf(&s, "  eth%d: 362026634123   142271234    0    0    0     0          0         0   912519123    92271234    0    0    0     0       0          0\n", i)
	}
	put("net/dev", s.String())

	s.Reset()
	for i := range 100 {
		fmt.Fprintf(&s, " 259       %d nvme%dn1 65939123 22849123 345108211 19111 35344 21014 37016643 7747 0 12084 27398 5756 60 583632 360 5226 179\n", i, i)
	}
	put("diskstats", s.String())
	return proc
}

// BenchmarkRead is one reading of all three tables: what a second of sampling
// costs in the agent, without what the kernel needs to write the files' text.
func BenchmarkRead(b *testing.B) {
	h, err := Open(Options{ProcRoot: largeNode(b)})
	if err != nil {
		b.Fatal(err)
	}
	benchmarkRead(b, h)
}

// BenchmarkReadThisNode is the same with the kernel's share, on the machine
// that it runs on.
func BenchmarkReadThisNode(b *testing.B) {
	h, err := Open(Options{})
	if err != nil {
		b.Fatal(err)
	}
	benchmarkRead(b, h)
}

func benchmarkRead(b *testing.B, h *Host) {
	out := newFakeOut()
	out.quiet = true
	read(b, h, out)
	b.ReportAllocs()
	for b.Loop() {
		out.reset()
		read(b, h, out)
	}
}

// BenchmarkFacts is read once at the start.
func BenchmarkFacts(b *testing.B) {
	for b.Loop() {
		NodeFacts(Options{})
	}
}
