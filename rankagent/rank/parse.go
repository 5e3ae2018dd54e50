package rank

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"
)

// The kernel's files are read by parsers of our own: procfs reads a process's
// stat, io, status and cgroup through a hundred allocations, and this is done
// for every process of the job each second.

// absent stands for a number that a file does not have.
const absent = math.MinInt64

// number reads decimal digits; anything else, and what does not fit, is
// absent.
func number(s []byte) int64 {
	if len(s) == 0 {
		return absent
	}
	var n int64
	for _, c := range s {
		if c < '0' || c > '9' {
			return absent
		}
		d := int64(c - '0')
		if n > (math.MaxInt64-d)/10 {
			return absent
		}
		n = n*10 + d
	}
	return n
}

// times returns n in a unit that is m times smaller.
func times(n, m int64) int64 {
	if n == absent || n > math.MaxInt64/m {
		return absent
	}
	return n * m
}

// field cuts the first field off a line; it is empty at the end.
func field(s []byte) (first, rest []byte) {
	i := 0
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	j := i
	for j < len(s) && s[j] != ' ' && s[j] != '\t' && s[j] != '\n' {
		j++
	}
	return s[i:j], s[j:]
}

// line cuts the first line off a text. A last line without its newline was cut
// short and its last number may be a part of one, so it is none.
func line(text []byte) (first, rest []byte, ok bool) {
	i := bytes.IndexByte(text, '\n')
	if i < 0 {
		return nil, nil, false
	}
	return text[:i], text[i+1:], true
}

// stat is what the table takes from /proc/PID/stat. Numbers may be absent.
type stat struct {
	pid        int64
	name       []byte // valid as long as the text is
	state      byte
	ppid       int64
	minor      int64
	major      int64
	user       int64 // ticks
	system     int64 // ticks
	threads    int64
	start      int64 // ticks since boot
	rss        int64 // pages
	stack      int64 // where the stack begins: another after each exec
	cpu        int64
	blockDelay int64 // ticks
}

// parseStat reads /proc/PID/stat. The name stands in parentheses and may hold
// anything, further parentheses too.
func parseStat(text []byte) (s stat, ok bool) {
	text, _, ok = line(text)
	if !ok {
		return s, false
	}
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 1 || end < open {
		return s, false
	}
	s.name = text[open+1 : end]
	pid, _ := field(text[:open])
	s.pid = number(pid)
	rest := text[end+1:]
	state, rest := field(rest)
	if len(state) != 1 || s.pid == absent {
		return s, false
	}
	s.state = state[0]
	s.blockDelay, s.cpu = absent, absent
	// The fields are counted from 1, the state being the third.
	for n := 4; n <= 42; n++ {
		var f []byte
		f, rest = field(rest)
		if len(f) == 0 {
			return s, n > 24 // an older kernel has fewer
		}
		switch n {
		case 4:
			s.ppid = number(f)
		case 10:
			s.minor = number(f)
		case 12:
			s.major = number(f)
		case 14:
			s.user = number(f)
		case 15:
			s.system = number(f)
		case 20:
			s.threads = number(f)
		case 22:
			s.start = number(f)
		case 24:
			s.rss = number(f)
		case 28:
			s.stack = number(f)
		case 39:
			s.cpu = number(f)
		case 42:
			s.blockDelay = number(f)
		}
	}
	return s, true
}

// lookup finds the number behind the first line that begins with key and a
// separator: "key: 12", "key     : 12", "key 12".
func lookup(text []byte, key string) int64 {
	for {
		l, rest, ok := line(text)
		if !ok {
			return absent
		}
		text = rest
		if len(l) <= len(key) || string(l[:len(key)]) != key {
			continue
		}
		l = bytes.TrimLeft(l[len(key):], " \t")
		if len(l) > 0 && l[0] == ':' {
			l = l[1:]
		} else if len(l) == len(bytes.TrimLeft(l, "0123456789")) {
			continue // the key is only the beginning of this line's
		}
		f, _ := field(l)
		return number(f)
	}
}

// value finds the text behind "key:" in /proc/PID/status.
func value(text []byte, key string) string {
	for {
		l, rest, ok := line(text)
		if !ok {
			return ""
		}
		text = rest
		if len(l) > len(key) && string(l[:len(key)]) == key && l[len(key)] == ':' {
			return string(bytes.TrimSpace(l[len(key)+1:]))
		}
	}
}

// stalled finds a line's total in a pressure file, in nanoseconds.
func stalled(text []byte, kind string) int64 {
	for {
		l, rest, ok := line(text)
		if !ok {
			return absent
		}
		text = rest
		if f, _ := field(l); string(f) != kind {
			continue
		}
		if i := bytes.LastIndex(l, []byte("total=")); i >= 0 {
			return times(number(l[i+len("total="):]), 1000)
		}
		return absent
	}
}

// innermost returns the pid that a process has in its own PID namespace, from
// the line NSpid of its status; absent where the kernel has none.
func innermost(status []byte) int64 {
	s := []byte(value(status, "NSpid"))
	last := int64(absent)
	for len(s) > 0 {
		var f []byte
		f, s = field(s)
		if len(f) > 0 {
			last = number(f)
		}
	}
	return last
}

// cpuSet is a set of CPUs or NUMA nodes, as the kernel's bit masks have it.
type cpuSet []uint64

func (s cpuSet) has(i int) bool { return i/64 < len(s) && s[i/64]>>(i%64)&1 == 1 }

func (s *cpuSet) add(i int) {
	for i/64 >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[i/64] |= 1 << (i % 64)
}

func (s cpuSet) meets(o cpuSet) bool {
	for i := range min(len(s), len(o)) {
		if s[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// maxCPU bounds what a list may name.
const maxCPU = 1 << 16

// parseList reads a list such as "0-3,8"; ok is false for anything else.
func parseList(s string) (set cpuSet, ok bool) {
	b := bytes.TrimSpace([]byte(s))
	for len(b) > 0 {
		item := b
		if i := bytes.IndexByte(b, ','); i >= 0 {
			item, b = b[:i], b[i+1:]
			if len(b) == 0 {
				return nil, false
			}
		} else {
			b = nil
		}
		lo, hi := item, item
		if i := bytes.IndexByte(item, '-'); i >= 0 {
			lo, hi = item[:i], item[i+1:]
		}
		from, to := number(lo), number(hi)
		if from == absent || to == absent || to < from || to >= maxCPU {
			return nil, false
		}
		for i := from; i <= to; i++ {
			set.add(int(i))
		}
	}
	return set, true
}

// count returns how many are in the set, and text the set as a list.
func (s cpuSet) count() (n int) {
	for i := range len(s) * 64 {
		if s.has(i) {
			n++
		}
	}
	return n
}

func (s cpuSet) text() string {
	var b []byte
	for i := 0; i < len(s)*64; i++ {
		if !s.has(i) {
			continue
		}
		first := i
		for s.has(i + 1) {
			i++
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(first), 10)
		if i > first {
			b = strconv.AppendInt(append(b, '-'), int64(i), 10)
		}
	}
	return string(b)
}

// clean makes a text fit for a column: UTF-8 on one line, of bounded length.
func clean(s string, most int) string {
	if len(s) > most {
		s = s[:most]
		for len(s) > 0 && !utf8.ValidString(s[max(0, len(s)-utf8.UTFMax):]) && len(s) > most-utf8.UTFMax {
			s = s[:len(s)-1]
		}
	}
	b := []byte(s)
	b = bytes.ToValidUTF8(b, []byte("\ufffd"))
	for i, c := range b {
		if c < ' ' || c == 0x7f {
			b[i] = ' '
		}
	}
	return string(b)
}
