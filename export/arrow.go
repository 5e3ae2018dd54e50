package export

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// Arrow writes a table as a plain Arrow IPC stream and returns its rows.
func (s *Source) Arrow(ctx context.Context, w io.Writer, t *table.Table) (int64, error) {
	form := s.form(t)
	buf := bufio.NewWriterSize(w, 256<<10)
	out, err := shard.NewStream(buf, form)
	if err != nil {
		return 0, err
	}
	if err := s.rows(ctx, t, form, out.Write); err != nil {
		return out.Rows(), fmt.Errorf("exporting %s: %w", t.Name, err)
	}
	if err := out.Close(); err != nil {
		return out.Rows(), err
	}
	return out.Rows(), buf.Flush()
}

// ArrowSuffix is how the names of Arrow stream files end.
const ArrowSuffix = ".arrows"

// ArrowFiles writes every table that has rows as a file of its own into a
// directory, and returns the rows by table.
func (s *Source) ArrowFiles(ctx context.Context, dir string) (map[string]int64, error) {
	rows := make(map[string]int64)
	for _, t := range table.All() {
		path := filepath.Join(dir, t.Name+ArrowSuffix)
		n := int64(0)
		err := into(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, func(w io.Writer) (err error) {
			n, err = s.Arrow(ctx, w, t)
			return err
		})
		if err == nil && n == 0 {
			err = os.Remove(path)
		}
		if err != nil {
			return rows, err
		}
		if n > 0 {
			rows[t.Name] = n
		}
	}
	return rows, nil
}
