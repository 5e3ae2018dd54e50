package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"syscall"

	"github.com/gswarm/gswarm/rankagent"
)

// The kernel's files are read by parsers of our own where
// github.com/prometheus/procfs is too dear or too trusting, and by procfs
// where it is neither (pressure, load average, all of Facts). On 256 CPUs and
// 1500 interrupts procfs takes 1 ms and 3700 allocations for /proc/stat, since
// it scans every CPU and every interrupt, and hands out ticks as float seconds;
// 100 lines of /proc/diskstats take it 0.5 ms. Its readers of meminfo and
// net/dev panic on a short line, take a number without unit for bytes, and
// lose all lines for a bad one.

// maxFile is the size at which a file is not what it is taken for.
const maxFile = 8 << 20

var errTooLong = errors.New("file is too long")

// errPSI stands for a pressure file, or a line of it, that is not there.
var errPSI = errors.New("the kernel does not account this pressure")

// file reads one of the kernel's files as a whole into memory that it keeps.
type file struct {
	path string
	buf  []byte
}

// read returns the file's text, valid until the next read.
func (f *file) read() ([]byte, error) {
	r, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	if f.buf == nil {
		// Large enough for the kernel to answer most files in one read,
		// which makes the text that of one instant.
		f.buf = make([]byte, 64<<10)
	}
	n := 0
	for {
		m, err := r.Read(f.buf[n:])
		n += m
		if errors.Is(err, io.EOF) {
			return f.buf[:n], nil
		}
		if err != nil {
			return nil, err
		}
		if n == len(f.buf) {
			if n >= maxFile {
				return nil, fmt.Errorf("read %s: %w", f.path, errTooLong)
			}
			f.buf = append(f.buf, make([]byte, len(f.buf))...)
		}
	}
}

// reason sorts an error of reading a file into the reasons that a value can be
// missing for.
func reason(err error) rankagent.Reason {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		return rankagent.NotFound
	case errors.Is(err, fs.ErrPermission):
		return rankagent.NoPermission
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, errPSI):
		return rankagent.NotSupported
	}
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return rankagent.SourceError
	}
	return rankagent.InvalidValue
}

// value is a number that a file may hold.
type value struct {
	n     int64
	state state
}

type state uint8

const (
	missing state = iota // no such line or field
	bad                  // it is there and is no such number
	good
)

// ok reports whether there is a number.
func (v value) ok() bool { return v.state == good }

// times returns v in a unit that is m times smaller; what does not fit is bad.
func (v value) times(m int64) value {
	if v.state == good && v.n > math.MaxInt64/m {
		return value{state: bad}
	}
	v.n *= m
	return v
}

// line cuts the first line off text. A last line without its newline was cut
// short and its last number may be a part of one, so it is none.
func line(text []byte) (first, rest []byte, ok bool) {
	i := bytes.IndexByte(text, '\n')
	if i < 0 {
		return nil, nil, false
	}
	return text[:i], text[i+1:], true
}

// field cuts the first field off a line; it is empty at the end.
func field(s []byte) (first, rest []byte) {
	i := 0
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	j := i
	for j < len(s) && s[j] != ' ' && s[j] != '\t' {
		j++
	}
	return s[i:j], s[j:]
}

// number reads a field of decimal digits.
func number(s []byte) value {
	if len(s) == 0 {
		return value{}
	}
	var n int64
	for _, c := range s {
		if c < '0' || c > '9' {
			return value{state: bad}
		}
		d := int64(c - '0')
		if n > (math.MaxInt64-d)/10 {
			return value{state: bad}
		}
		n = n*10 + d
	}
	return value{n: n, state: good}
}

// numbers fills vals from the fields of s and returns how many it found.
func numbers(s []byte, vals []value) int {
	for i := range vals {
		var f []byte
		f, s = field(s)
		if len(f) == 0 {
			return i
		}
		vals[i] = number(f)
	}
	return len(vals)
}
