package export

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gswarm/gswarm/rundir"
)

// ExistsError says that an export would replace something.
type ExistsError struct{ Path string }

func (e *ExistsError) Error() string { return e.Path + " exists already; --force replaces it" }

// File calls write with a file that gets its name when it is whole. What is
// there already is replaced with force only; what is no regular file, such as a
// pipe, is written to as it is.
func File(path string, force bool, write func(io.Writer) error) (err error) {
	st, err := os.Stat(path)
	switch {
	case err == nil && st.IsDir():
		return fmt.Errorf("exporting: %s is a directory; name a file", path)
	case err == nil && !st.Mode().IsRegular():
		return into(path, os.O_WRONLY, write)
	case err == nil && !force:
		return &ExistsError{path}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("exporting: %w", err)
	}
	tmp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.tmp-%d", filepath.Base(path), os.Getpid()))
	defer os.Remove(tmp) // gone already where all went well
	if err := into(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, write); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	return nil
}

// into writes a file under the name that is given.
func into(path string, flags int, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, flags, rundir.FileMode)
	if err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	w := bufio.NewWriterSize(f, 256<<10)
	err = write(w)
	if err == nil {
		err = w.Flush()
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("exporting: %w", cerr)
	}
	return err
}

// Directory calls write with a directory whose files get their place below path
// when they are all whole. A directory that holds something already takes them
// with force only; then files of the same names are replaced and others stay.
func Directory(path string, force bool, write func(dir string) error) error {
	entries, err := os.ReadDir(path)
	switch {
	case err == nil && len(entries) > 0 && !force:
		return &ExistsError{path}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		if st, serr := os.Stat(path); serr == nil && !st.IsDir() {
			return fmt.Errorf("exporting: %s is a file; name a directory", path)
		}
		return fmt.Errorf("exporting: %w", err)
	}
	parent := filepath.Dir(filepath.Clean(path))
	if err := os.MkdirAll(parent, rundir.DirMode); err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	tmp, err := os.MkdirTemp(parent, "."+filepath.Base(path)+".tmp-")
	if err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := write(tmp); err != nil {
		return err
	}
	return moveAll(tmp, path)
}

// moveAll moves the files below a directory to their places below another.
func moveAll(from, to string) error {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), rundir.DirMode)
		}
		return os.Rename(path, filepath.Join(to, rel))
	})
	if err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	return nil
}
