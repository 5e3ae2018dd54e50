package host

import (
	"bytes"
	"unicode/utf8"
)

// userHZ is the unit of the times in /proc/stat. The kernel's own HZ varies;
// USER_HZ, what it shows to programs, is 100 in the ABI of every architecture
// that gswarm builds for.
const userHZ = 100

const (
	nsPerTick   = 1_000_000_000 / userHZ
	nsPerMilli  = 1_000_000
	sectorBytes = 512 // the unit of /proc/diskstats, whatever the device's own sectors
)

// stat is what the host table takes from /proc/stat.
type stat struct {
	// cpu is the time of all CPUs in ticks: user, nice, system, idle,
	// iowait, irq, softirq, steal.
	cpu [8]value

	switches, interrupts, forks, running, blocked value
	// soft is the number of soft interrupts: all, then HI, TIMER, NET_TX,
	// NET_RX, BLOCK, IRQ_POLL, TASKLET, SCHED.
	soft [9]value
}

func parseStat(text []byte) (s stat) {
	for {
		l, rest, ok := line(text)
		if !ok {
			return s
		}
		text = rest
		if bytes.HasPrefix(l, []byte("cpu")) && len(l) > 3 && l[3] != ' ' {
			continue // one CPU's line: they are most of the file
		}
		key, l := field(l)
		var v *value
		switch string(key) {
		case "cpu":
			numbers(l, s.cpu[:])
			continue
		case "softirq":
			numbers(l, s.soft[:])
			continue
		case "intr": // the sum comes first, then thousands of numbers
			v = &s.interrupts
		case "ctxt":
			v = &s.switches
		case "processes":
			v = &s.forks
		case "procs_running":
			v = &s.running
		case "procs_blocked":
			v = &s.blocked
		default:
			continue
		}
		f, _ := field(l)
		*v = number(f)
	}
}

// meminfo is what the host table takes from /proc/meminfo, in bytes.
type meminfo struct {
	total, free, available, cached, dirty, swapTotal, swapFree value
}

func parseMeminfo(text []byte) (m meminfo) {
	for {
		l, rest, ok := line(text)
		if !ok {
			return m
		}
		text = rest
		key, l := field(l)
		var v *value
		switch string(key) {
		case "MemTotal:":
			v = &m.total
		case "MemFree:":
			v = &m.free
		case "MemAvailable:":
			v = &m.available
		case "Cached:":
			v = &m.cached
		case "Dirty:":
			v = &m.dirty
		case "SwapTotal:":
			v = &m.swapTotal
		case "SwapFree:":
			v = &m.swapFree
		default:
			continue
		}
		*v = kilobytes(l)
	}
}

// kilobytes reads "123 kB" as bytes.
func kilobytes(l []byte) value {
	f, l := field(l)
	unit, _ := field(l)
	if string(unit) != "kB" {
		return value{state: bad}
	}
	return number(f).times(1024)
}

// swapUsed is the difference of two readings of one file.
func (m *meminfo) swapUsed() value {
	switch {
	case m.swapTotal.state == missing || m.swapFree.state == missing:
		return value{}
	case !m.swapTotal.ok() || !m.swapFree.ok() || m.swapFree.n > m.swapTotal.n:
		return value{state: bad}
	}
	return value{n: m.swapTotal.n - m.swapFree.n, state: good}
}

// netFields is the number of counters on a line of /proc/net/dev.
const netFields = 16

// parseNetLine reads one interface's line: its name up to the last colon, then
// the counters, of which none may be left out.
func parseNetLine(l []byte, vals *[netFields]value) (name []byte, ok bool) {
	i := bytes.LastIndexByte(l, ':')
	if i < 0 {
		return nil, false
	}
	name, rest := field(l[:i])
	if extra, _ := field(rest); len(extra) > 0 || !validName(name) {
		return nil, false
	}
	return name, numbers(l[i+1:], vals[:]) == netFields
}

// diskFields is the number of counters that every kernel since 2.6 has on a
// line of /proc/diskstats; newer ones add four of discards and two of flushes.
const (
	diskFields    = 11
	allDiskFields = diskFields + 4 + 2
)

// parseDiskLine reads one device's line: major, minor, name, counters.
func parseDiskLine(l []byte, vals *[allDiskFields]value) (name []byte, ok bool) {
	major, l := field(l)
	minor, l := field(l)
	name, l = field(l)
	if !number(major).ok() || !number(minor).ok() || !validName(name) {
		return nil, false
	}
	return name, numbers(l, vals[:]) >= diskFields
}

// validName reports whether a device's name can be a key: columns of type
// string hold UTF-8.
func validName(name []byte) bool {
	if len(name) == 0 || !utf8.Valid(name) {
		return false
	}
	for _, c := range name {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// diskOf splits a name as the kernel makes the names of partitions: the disk's
// name and a number, with a p between where the disk's name ends in a digit. It
// returns the name of the disk that name would be a partition of, empty if it
// can be none; and the name without its number.
func diskOf(name string) (disk, stem string) {
	i := len(name)
	for i > 0 && isDigit(name[i-1]) {
		i--
	}
	stem = name[:i]
	switch {
	case i == len(name) || i == 0:
		return "", stem
	case i > 1 && name[i-1] == 'p' && isDigit(name[i-2]):
		return name[:i-1], stem
	}
	return stem, stem
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
