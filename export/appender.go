package export

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gswarm/gswarm/rundir"
)

// appender gathers what goes to a file and holds the file open only to write: an
// export may have more files than a process may have open.
type appender struct {
	path string
	buf  []byte
	// items counts those of the JSON list that the file is, where it is one.
	items int64
}

// item begins an item of the list and returns what to append it to.
func (a *appender) item() *[]byte {
	if a.items == 0 {
		a.buf = append(a.buf, "[\n"...)
	} else {
		a.buf = append(a.buf, ",\n"...)
	}
	a.items++
	return &a.buf
}

// endList ends the list; one without items leaves no file.
func (a *appender) endList() error {
	if a.items > 0 {
		a.buf = append(a.buf, "\n]\n"...)
	}
	return a.flush()
}

// appendSize is how much is gathered.
const appendSize = 16 << 10

// due writes what was gathered where it is enough.
func (a *appender) due() error {
	if len(a.buf) < appendSize {
		return nil
	}
	return a.flush()
}

func (a *appender) flush() error {
	if len(a.buf) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(a.path), rundir.DirMode); err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	f, err := os.OpenFile(a.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, rundir.FileMode)
	if err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	_, err = f.Write(a.buf)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	a.buf = a.buf[:0]
	return nil
}
