package shard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/gswarm/gswarm/table"
)

// Set is what every shard of one spool says of the whole spool, so that
// nothing a reader of the spool could have learned is lost by sealing it.
type Set struct {
	SpoolMeta
	// End is nil where the spool has no end mark: its agent was killed.
	End *End `json:"end"`
	// Rows counts the rows sealed, by table: a shard that is listed here
	// and not there was lost.
	Rows   map[string]int64 `json:"rows"`
	Losses []Loss           `json:"losses,omitempty"`
}

// carrier is the table whose shard is written even without rows where no table
// has any: something must tell of the spool.
var carrier = table.Event

// ErrNothingToSeal says that a spool holds nothing that could be sealed.
var ErrNothingToSeal = errors.New("the spool holds nothing to seal")

var (
	spoolName = regexp.MustCompile(`^spool-(\d{1,9})$`)
	shardName = regexp.MustCompile(`^([a-z][a-z0-9_]*)-(\d{1,9})\.parquet$`)
)

// SpoolNumber returns the n of a spool's path, spool-<n>.
func SpoolNumber(path string) (int, error) {
	m := spoolName.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return 0, fmt.Errorf("%s is not named as a spool is, spool-<number>", path)
	}
	return strconv.Atoi(m[1])
}

// Seal turns a spool into one Parquet file for each table that has rows, beside
// it, and then removes it. It returns the files' paths. While the spool is there
// its shards do not count, so a seal that dies halfway has done no harm and can
// be repeated.
func Seal(spoolPath string) ([]string, error) {
	n, err := SpoolNumber(spoolPath)
	if err != nil {
		return nil, err
	}
	s, err := loadSpool(spoolPath)
	if err != nil {
		return nil, fmt.Errorf("sealing: %w", err)
	}
	done, err := s.use()
	if err != nil {
		return nil, fmt.Errorf("sealing: %w", err)
	}
	defer done()
	if s.meta.FormatVersion == 0 && len(s.frames) == 0 {
		return nil, fmt.Errorf("sealing %s: %w", spoolPath, ErrNothingToSeal)
	}
	set, tables, err := s.prepare()
	if err != nil {
		return nil, fmt.Errorf("sealing %s: %w", spoolPath, err)
	}
	kv, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("sealing %s: %w", spoolPath, err)
	}
	dir := filepath.Dir(spoolPath)
	var files []string
	for _, t := range tables {
		path := filepath.Join(dir, fmt.Sprintf("%s-%d.parquet", t.Name, n))
		if err := s.sealTable(path, t, string(kv)); err != nil {
			return nil, fmt.Errorf("sealing %s: %w", spoolPath, err)
		}
		files = append(files, path)
	}
	if err := syncDir(dir); err != nil {
		return nil, err
	}
	if err := os.Remove(spoolPath); err != nil {
		return nil, fmt.Errorf("sealing %s: removing it: %w", spoolPath, err)
	}
	return files, nil
}

// loadMax is the size up to which a spool is sealed from memory.
const loadMax = 64 << 20

// loadSpool is openSpool that keeps no file open where it can: while a node
// seals it has its next spool open and the shard, and no third file.
func loadSpool(path string) (*spool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a spool: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && st.Size() > loadMax {
		return openSpool(path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening a spool: %w", err)
	}
	b := make([]byte, st.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("reading a spool: %w", err)
	}
	return scanSpool(path, bytes.NewReader(b), int64(len(b)))
}

// prepare finds out what the shards will hold. Frames that verify but do not
// decode count among the losses, and the losses stand in every shard, so all
// frames are decoded once before the first shard is written.
func (s *spool) prepare() (Set, []*table.Table, error) {
	set := Set{SpoolMeta: s.meta, End: s.end, Rows: make(map[string]int64)}
	batches := make(map[string]*table.Batch)
	good := s.frames[:0]
	for _, ref := range s.frames {
		t := table.ByName(ref.table)
		if t == nil {
			return set, nil, fmt.Errorf("the table %q is not known: use the gswarm that wrote it, or a newer one", ref.table)
		}
		b := batches[t.Name]
		if b == nil {
			b = table.NewBatch(t, 0)
			batches[t.Name] = b
		}
		b.Reset()
		if err := s.rows(ref, t, b); err != nil {
			s.lose(undecodable(ref, err))
			continue
		}
		good = append(good, ref)
		set.Rows[t.Name] += int64(ref.rows)
	}
	s.frames, set.Losses = good, s.losses
	var tables []*table.Table
	for _, t := range table.All() {
		if set.Rows[t.Name] > 0 || len(good) == 0 && t == carrier {
			set.Rows[t.Name] += 0
			tables = append(tables, t)
		}
	}
	return set, tables, nil
}

// undecodable is the loss of a frame whose checksum holds and whose content
// makes no sense.
func undecodable(ref frameRef, err error) Loss {
	return Loss{Code: CorruptSpool, Table: ref.table, Offset: ref.offset, Bytes: int64(ref.size), Rows: int64(ref.rows), Detail: err.Error()}
}

func (s *spool) sealTable(path string, t *table.Table, set string) error {
	// It gets its name at once: until the spool is gone nobody reads it, and a
	// rename would be one more request to the filesystem's metadata.
	w, err := createParquet(path, path, t, map[string]string{keySet: set}, newThoroughEncoder)
	if err != nil {
		return err
	}
	defer w.Abort()
	b := table.NewBatch(t, 0)
	for _, frames := range s.groups(t) {
		b.Reset()
		for _, ref := range frames {
			if err := s.rows(ref, t, b); err != nil {
				return err
			}
		}
		sortRows(b)
		if err := w.Write(b); err != nil {
			return err
		}
		if err := w.Cut(); err != nil {
			return err
		}
	}
	return w.Close()
}

// groups divides the frames of a table into those of one row group each.
func (s *spool) groups(t *table.Table) [][]frameRef {
	var out [][]frameRef
	rows := 0
	for _, ref := range s.frames {
		if ref.table != t.Name {
			continue
		}
		if len(out) == 0 || rows+ref.rows > MaxRowGroup {
			out, rows = append(out, nil), 0
		}
		out[len(out)-1] = append(out[len(out)-1], ref)
		rows += ref.rows
	}
	return out
}

// sortRows puts the rows of a shard in order of their time: readers skip what
// they need not read, and a merge can copy what is in order.
func sortRows(b *table.Batch) { b.SortByTime(table.ColT, b.Table.Index("gpu")) }
