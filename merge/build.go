package merge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gopkg.in/yaml.v3"

	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

const (
	// groupRows is the number of rows from which a row group ends with the
	// node's tile. Smaller ones share a row group: a thousand row groups of
	// a few rows are slow to read and mostly metadata.
	groupRows = 16 << 10
	// partGroups is the number of row groups from which a part ends.
	partGroups = 20000
)

// build writes the timeline and puts it in place.
func (m *merger) build(ctx context.Context) (Summary, error) {
	tmp := m.dir.Join(fmt.Sprintf("%s%d", tmpPrefix, os.Getpid()))
	if err := os.Mkdir(tmp, rundir.DirMode); err != nil {
		return Summary{}, fmt.Errorf("merging %s: %w", m.dir, err)
	}
	defer os.RemoveAll(tmp)
	for _, t := range table.All() {
		for _, n := range m.nodes {
			m.total += n.data.TableRows(t.Name)
		}
	}
	var files []FileMeta
	for _, t := range table.All() {
		fs, err := m.buildTable(ctx, tmp, t)
		if err != nil {
			return Summary{}, fmt.Errorf("merging %s of %s: %w", t.Name, m.dir, err)
		}
		files = append(files, fs...)
	}
	for _, n := range m.nodes {
		for _, l := range n.data.Losses() {
			m.miss(Code(l.Code), n.name, l.String())
		}
		for _, note := range n.data.Notes() {
			m.notes = append(m.notes, n.name+": "+note)
		}
	}
	m.sortMissing()
	meta := m.meta(files)
	b, err := yaml.Marshal(meta)
	if err != nil {
		return Summary{}, fmt.Errorf("merging %s: %w", m.dir, err)
	}
	if err := rundir.WriteFile(filepath.Join(tmp, metaFile), b); err != nil {
		return Summary{}, fmt.Errorf("merging %s: %w", m.dir, err)
	}
	if err := putInPlace(m.dir, tmp); err != nil {
		return Summary{}, fmt.Errorf("merging %s: %w", m.dir, err)
	}
	return m.summary(files), nil
}

func (m *merger) summary(files []FileMeta) Summary {
	s := Summary{
		Dir: m.dir.Timeline(), Rows: make(map[string]int64),
		Incomplete: len(m.missing) > 0, Missing: m.missing, Notes: m.notes,
	}
	for _, n := range m.nodes {
		if len(n.written) > 0 && !slices.Contains(s.Nodes, n.machine) {
			s.Nodes = append(s.Nodes, n.machine)
		}
	}
	for _, f := range files {
		s.Rows[f.Table] += f.Rows
		s.Bytes += f.Bytes
	}
	return s
}

// buildTable writes the timeline of one table.
func (m *merger) buildTable(ctx context.Context, tmp string, src *table.Table) ([]FileMeta, error) {
	dst := table.Timeline(src)
	var streams []*stream
	for _, n := range m.nodes { // in order of their names
		if s := newStream(n, src, dst, m.tile); s != nil {
			streams = append(streams, s)
		}
	}
	out := &output{root: tmp, table: dst, kv: m.fileMetadata()}
	defer out.abort()
	budget := int64(carryRows)
	for {
		k, any := int64(math.MaxInt64), false
		for _, s := range streams {
			if t, ok := s.nextTile(); ok {
				k, any = min(k, t), true
			}
		}
		if !any {
			return out.close()
		}
		for _, s := range streams {
			if t, ok := s.nextTile(); !ok || t > k {
				continue
			}
			err := s.emitTile(ctx, k, &budget, func(b *table.Batch) error {
				s.node.written[src.Name] += int64(b.Rows())
				m.progress(src, b.Rows())
				return out.write(b)
			})
			if err != nil {
				return nil, err
			}
			if err := out.boundary(); err != nil {
				return nil, err
			}
		}
	}
}

// fileMetadata is what every file of the timeline says of its time.
func (m *merger) fileMetadata() map[string]string {
	return map[string]string{
		"gswarm.reference":                     m.result.Reference,
		"gswarm.anchor_width_ns":               strconv.FormatInt(m.result.Anchor.Width, 10),
		"gswarm.tile_ns":                       strconv.FormatInt(m.tile, 10),
		"gswarm.time_bound_excludes_utc_error": "the bound is against the reference clock; the error of its one anchor to UTC stands in timeline/meta.yaml",
	}
}

// output is the files of one table.
type output struct {
	root  string
	table *table.Table
	kv    map[string]string
	w     *shard.ParquetWriter
	files []FileMeta
}

func (o *output) write(b *table.Batch) error {
	if err := o.begin(); err != nil {
		return err
	}
	return o.w.Write(b)
}

// begin begins a part if there is none.
func (o *output) begin() error {
	if o.w != nil {
		return nil
	}
	dir := filepath.Join(o.root, o.table.Name)
	if err := os.MkdirAll(dir, rundir.DirMode); err != nil {
		return err
	}
	name := fmt.Sprintf("%s/part-%04d.parquet", o.table.Name, len(o.files))
	w, err := shard.CreateParquet(filepath.Join(o.root, name), o.table, o.kv)
	if err != nil {
		return err
	}
	o.w = w
	o.files = append(o.files, FileMeta{Name: name, Table: o.table.Name})
	return nil
}

// boundary is called between one node's tile and the next.
func (o *output) boundary() error {
	if o.w == nil || o.w.Pending() < groupRows {
		return nil
	}
	if err := o.w.Cut(); err != nil {
		return err
	}
	if o.w.RowGroups() >= partGroups {
		return o.finish()
	}
	return nil
}

// finish ends a part.
func (o *output) finish() error {
	w := o.w
	o.w = nil
	if err := w.Close(); err != nil {
		return err
	}
	f := &o.files[len(o.files)-1]
	f.Rows = w.Rows()
	var err error
	f.Bytes, f.SHA256, err = sum(filepath.Join(o.root, f.Name))
	return err
}

// close ends the table. One without rows has a file, too: a query that names
// it works on every run.
func (o *output) close() ([]FileMeta, error) {
	if len(o.files) == 0 {
		if err := o.begin(); err != nil {
			return nil, err
		}
	}
	if o.w != nil {
		if err := o.finish(); err != nil {
			return nil, err
		}
	}
	return o.files, nil
}

func (o *output) abort() {
	if o.w != nil {
		o.w.Abort()
	}
}

func sum(path string) (int64, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return 0, "", fmt.Errorf("reading %s: %w", path, err)
	}
	return n, hex.EncodeToString(h.Sum(nil)), nil
}
