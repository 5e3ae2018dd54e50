package merge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gopkg.in/yaml.v3"

	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// result is what is known of a part once it is written. A task leaves it beside
// the part for the task that finishes.
type result struct {
	File FileMeta `json:"file"`
	// Rows are the part's rows by directory of a node, Losses and Notes what
	// was met while they were read.
	Rows   map[string]int64        `json:"rows"`
	Losses map[string][]shard.Loss `json:"losses,omitempty"`
	Notes  map[string][]string     `json:"notes,omitempty"`
}

// build writes the timeline and puts it in place.
func (m *merger) build(ctx context.Context) (Summary, error) {
	if m.opts.Tasks > 1 {
		return m.buildShare(ctx)
	}
	tmp := m.dir.Join(fmt.Sprintf("%s%d", tmpPrefix, os.Getpid()))
	if err := os.Mkdir(tmp, rundir.DirMode); err != nil {
		return Summary{}, fmt.Errorf("merging %s: %w", m.dir, err)
	}
	defer os.RemoveAll(tmp)
	results := make([]result, len(m.parts))
	for i := range m.parts {
		var err error
		if results[i], err = m.writePart(ctx, tmp, &m.parts[i]); err != nil {
			return Summary{}, err
		}
	}
	return m.finish(tmp, results)
}

// buildShare writes a task's parts into the directory that the tasks share. The
// task that finds all parts there finishes.
func (m *merger) buildShare(ctx context.Context) (Summary, error) {
	tmp := m.dir.Join(sharePrefix + m.planID())
	mine := share(m.parts, m.opts.Task, m.opts.Tasks)
	if s, ok := m.standing(); ok {
		return s, nil
	}
	if len(mine) > 0 {
		err := os.Mkdir(tmp, rundir.DirMode)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return Summary{}, fmt.Errorf("merging %s: %w", m.dir, err)
		}
		// A twin of this task may have finished in between.
		if s, ok := m.standing(); ok && err == nil {
			os.Remove(tmp) // stays if another task is at work there
			return s, nil
		}
	}
	m.total = 0
	for _, i := range mine {
		m.total += m.parts[i].rows
	}
	for _, i := range mine {
		p := &m.parts[i]
		if _, ok := readResult(tmp, p); ok { // by a task that was killed later
			m.progress(p.table, p.rows)
			continue
		}
		r, err := m.writePart(ctx, tmp, p)
		if err == nil {
			err = writeResult(tmp, p, r)
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || m.finishedElsewhere(tmp) {
				// A twin of this task finished and moved the directory
				// away; one that came later may have begun it anew.
				return Summary{Dir: m.dir.Timeline(), Others: true}, nil
			}
			return Summary{}, err
		}
	}
	if _, left := m.readResults(tmp); left > 0 {
		return Summary{Dir: m.dir.Timeline(), Others: true, PartsLeft: left, Parts: len(mine)}, nil
	}
	unlock, last, err := lockFinish(m.dir)
	if err != nil {
		return Summary{}, err
	}
	defer unlock()
	// Anew: another task may have finished before this one had the lock, and a
	// third have begun again.
	results, left := m.readResults(tmp)
	if !last || left > 0 {
		return Summary{Dir: m.dir.Timeline(), Others: true, Parts: len(mine)}, nil
	}
	// Under a name of its own, so that a twin of some task does not write there
	// any more.
	own := m.dir.Join(fmt.Sprintf("%s%d", tmpPrefix, os.Getpid()))
	if err := os.Rename(tmp, own); errors.Is(err, fs.ErrNotExist) { // where there are no locks
		return Summary{Dir: m.dir.Timeline(), Others: true, Parts: len(mine)}, nil
	} else if err != nil {
		return Summary{}, fmt.Errorf("merging %s: %w", m.dir, err)
	}
	s, err := m.finish(own, results)
	if err != nil {
		_ = os.Rename(own, tmp) // else all is written again
	}
	s.Parts = len(mine)
	return s, err
}

// readResults returns what the tasks left of all parts, and of how many nothing.
func (m *merger) readResults(tmp string) (results []result, left int) {
	results = make([]result, len(m.parts))
	for i := range m.parts {
		var ok bool
		if results[i], ok = readResult(tmp, &m.parts[i]); !ok {
			left++
		}
	}
	return results, left
}

// standing returns the summary of the timeline that is there, if it is just what
// this merge would make. One that was made from damaged files is made again:
// they may have been mended. The first task tells what is missing.
func (m *merger) standing() (Summary, bool) {
	plan, err := os.ReadFile(m.dir.Join(planName))
	if err != nil || string(plan) != m.planID() {
		return Summary{}, false
	}
	meta, err := ReadMeta(m.dir)
	if err != nil {
		return Summary{}, false
	}
	for _, f := range meta.Files {
		if st, err := os.Stat(filepath.Join(m.dir.Timeline(), f.Name)); err != nil || st.Size() != f.Bytes {
			return Summary{}, false
		}
	}
	rows := make(map[string]map[string]int64)
	for _, n := range meta.Nodes {
		if len(n.Losses) > 0 {
			return Summary{}, false
		}
		rows[n.Dir] = n.Rows
	}
	if m.opts.Task != 0 {
		return Summary{Dir: m.dir.Timeline(), Others: true}, true
	}
	for _, n := range m.nodes {
		n.written = rows[n.dir]
	}
	m.missing, m.notes = meta.Missing, meta.Notes
	return m.summary(meta.Files), true
}

// finishedElsewhere says that another task has put the shared directory in
// place: it is not there any more.
func (m *merger) finishedElsewhere(tmp string) bool {
	_, err := os.Stat(tmp)
	return errors.Is(err, fs.ErrNotExist)
}

// writePart writes one file of the timeline below root.
func (m *merger) writePart(ctx context.Context, root string, p *part) (result, error) {
	fail := func(err error) error { return fmt.Errorf("merging %s of %s: %w", p.table.Name, m.dir, err) }
	path := filepath.Join(root, p.name)
	// The directory above is not made: a task that finished has moved it away.
	if err := os.Mkdir(filepath.Dir(path), rundir.DirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return result{}, fail(err)
	}
	seen := make(map[*node]shard.Seen)
	for _, n := range m.nodes {
		seen[n] = n.data.Seen()
	}
	w, written, err := m.writeRows(ctx, path, p)
	if err != nil {
		return result{}, fail(err)
	}
	defer w.Abort()
	rows := w.Rows()
	if err := w.Close(); err != nil {
		return result{}, fail(err)
	}
	size, sum := w.Sum()
	r := result{
		File: FileMeta{Name: p.name, Table: p.table.Name, Rows: rows, Bytes: size, CRC32C: sum},
		Rows: make(map[string]int64), Losses: make(map[string][]shard.Loss), Notes: make(map[string][]string),
	}
	for n, rows := range written {
		r.Rows[n.dir] = rows
	}
	for _, n := range m.nodes {
		losses, notes := n.data.After(seen[n])
		if len(losses) > 0 {
			r.Losses[n.dir] = losses
		}
		if len(notes) > 0 {
			r.Notes[n.dir] = notes
		}
	}
	return r, nil
}

// writeRows writes the rows of a part; the file is not closed yet.
func (m *merger) writeRows(ctx context.Context, path string, p *part) (*shard.ParquetWriter, map[*node]int64, error) {
	write := m.tiled
	if m.opts.Sort {
		write = m.sorted
	}
	for {
		w, err := shard.CreateParquet(path, table.Timeline(p.table), m.fileMetadata())
		if err != nil {
			return nil, nil, err
		}
		done := m.done
		written, err := write(ctx, p, w)
		if err == nil {
			return w, written, nil
		}
		w.Abort()
		var disorder *disorderError
		if !errors.As(err, &disorder) || disorder.piece.scratch {
			return nil, nil, err
		}
		disorder.piece.scratch, m.done = true, done
	}
}

// resultPath is where a part's result lies until the timeline is finished. No
// reader of Parquet files takes it for one.
func resultPath(root string, p *part) string {
	return filepath.Join(root, p.name+".done")
}

func writeResult(root string, p *part, r result) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// Two tasks may be at the same part, on hosts that know nothing of each
	// other.
	f, err := os.CreateTemp(filepath.Dir(filepath.Join(root, p.name)), ".done-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), resultPath(root, p))
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// sweep removes what killed tasks left half-written.
func sweep(root string) {
	for _, pattern := range []string{".*.tmp", ".*scratch*", "*.scratch-*"} {
		left, _ := filepath.Glob(filepath.Join(root, "*", pattern)) // the patterns are well-formed
		for _, p := range left {
			os.Remove(p)
		}
	}
}

// readResult reads what a task left; ok is false where the part is not there or
// is not what the result says.
func readResult(root string, p *part) (r result, ok bool) {
	b, err := os.ReadFile(resultPath(root, p))
	if err != nil || json.Unmarshal(b, &r) != nil {
		return r, false
	}
	st, err := os.Stat(filepath.Join(root, p.name))
	return r, err == nil && st.Size() == r.File.Bytes
}

// finish describes the timeline and puts it in place.
func (m *merger) finish(tmp string, results []result) (Summary, error) {
	byDir := make(map[string]*node)
	for _, n := range m.nodes {
		byDir[n.dir] = n
	}
	var files []FileMeta
	for i, r := range results {
		files = append(files, r.File)
		for dir, rows := range r.Rows {
			if n := byDir[dir]; n != nil && rows > 0 {
				n.written[r.File.Table] += rows
			}
		}
		for _, n := range m.nodes {
			n.data.Add(r.Losses[n.dir], r.Notes[n.dir])
		}
		if err := os.Remove(resultPath(tmp, &m.parts[i])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Summary{}, fmt.Errorf("merging %s: %w", m.dir, err)
		}
	}
	for _, n := range m.nodes {
		for _, l := range n.data.Losses() {
			m.miss(Code(l.Code), n.name, l.String())
		}
		for _, note := range n.data.Notes() {
			m.notes = append(m.notes, n.name+": "+note)
		}
	}
	sweep(tmp)
	m.sortMissing()
	meta := m.meta(files)
	b, err := yaml.Marshal(meta)
	if err != nil {
		return Summary{}, fmt.Errorf("merging %s: %w", m.dir, err)
	}
	if err := rundir.WriteFile(filepath.Join(tmp, metaFile), b); err != nil {
		return Summary{}, fmt.Errorf("merging %s: %w", m.dir, err)
	}
	if err := putInPlace(m.dir, tmp, m.planID()); err != nil {
		return Summary{}, fmt.Errorf("merging %s: %w", m.dir, err)
	}
	return m.summary(files), nil
}

func (m *merger) summary(files []FileMeta) Summary {
	s := Summary{
		Dir: m.dir.Timeline(), Rows: make(map[string]int64), Files: len(files),
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

// fileMetadata is what every file of the timeline says of its time.
func (m *merger) fileMetadata() map[string]string {
	return map[string]string{
		"gswarm.reference":                     m.result.Reference,
		"gswarm.anchor_width_ns":               strconv.FormatInt(m.result.Anchor.Width, 10),
		"gswarm.tile_ns":                       strconv.FormatInt(m.tile, 10),
		"gswarm.order":                         m.order(),
		"gswarm.time_bound_excludes_utc_error": "the bound is against the reference clock; the error of its one anchor to UTC stands in timeline/meta.yaml",
	}
}

// order names the order of the rows.
func (m *merger) order() string {
	if m.opts.Sort {
		return "time, node, gpu"
	}
	return "tile, node, time"
}
