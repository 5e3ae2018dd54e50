package rank

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/rankagent"
)

// owner returns the owner of a process's directory: its effective user, or root
// where it must not be looked into.
func owner(root string, pid int) (uid int, err error) {
	var st unix.Stat_t
	path := root + "/" + strconv.Itoa(pid)
	if err := unix.Stat(path, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return int(st.Uid), nil
}

func (t *Tracker) statOf(pid int) (stat, error) { return readStat(t.opts.ProcRoot, pid, t.buf) }

func readStat(root string, pid int, buf []byte) (stat, error) {
	b, err := readWhole(filepath.Join(root, strconv.Itoa(pid), "stat"), buf)
	if err != nil {
		return stat{}, err
	}
	s, ok := parseStat(b)
	if !ok || s.pid != int64(pid) {
		return stat{}, errLine
	}
	return s, nil
}

// readEnviron returns the environment that a process was started with.
func readEnviron(root string, pid int) (string, error) {
	return readBounded(filepath.Join(root, strconv.Itoa(pid), "environ"), maxEnviron)
}

func readBounded(path string, most int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most))
	return string(b), err
}

// readCommand returns a process's command line; nil where it has none or it
// cannot be read.
func readCommand(root string, pid int) []string {
	s, err := readBounded(filepath.Join(root, strconv.Itoa(pid), "cmdline"), maxCommand)
	if s = strings.TrimRight(s, "\x00"); err != nil || s == "" {
		return nil
	}
	return strings.Split(s, "\x00")
}

var errLine = errors.New("a line that cannot be understood")

// reason sorts an error of reading a file into the reasons that a value can be
// missing for.
func reason(err error) rankagent.Reason {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH), errors.Is(err, syscall.ENODEV):
		return rankagent.NotFound
	case errors.Is(err, fs.ErrPermission):
		return rankagent.NoPermission
	case errors.Is(err, errors.ErrUnsupported):
		return rankagent.NotSupported
	case errors.Is(err, errLine):
		return rankagent.InvalidValue
	}
	return rankagent.SourceError
}

// readWhole reads a small file into buf and returns what it holds.
func readWhole(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return pread(fd, buf, path)
}

// pread reads a file that the kernel answers in one piece.
func pread(fd int, buf []byte, path string) ([]byte, error) {
	for {
		n, err := unix.Pread(fd, buf, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		case n == len(buf):
			return nil, fmt.Errorf("read %s: %w", path, errLine)
		default:
			return buf[:n], nil
		}
	}
}
