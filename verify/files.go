package verify

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// timelineFiles compares the timeline's files with what the merge wrote down
// of them.
func (v *verifier) timelineFiles(ctx context.Context) error {
	listed := make(map[string]bool)
	for _, f := range v.meta.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		listed[f.Name] = true
		v.report.Files++
		path := filepath.Join(v.dir.Timeline(), filepath.FromSlash(f.Name))
		n, sum, err := digest(path)
		file := Finding{Incomplete: true, Table: f.Table, File: "timeline/" + f.Name, Count: f.Rows}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			file.Code, file.Detail = FileMissing, "the merge wrote it and it is gone: merge again"
		case err != nil:
			file.Code, file.Detail = FileUnread, cause(err)
		case n != f.Bytes || sum != f.CRC32C:
			file.Code = FileChanged
			file.Detail = fmt.Sprintf("it has %d bytes of CRC32C %s, the merge wrote %d of %s: merge again", n, sum, f.Bytes, f.CRC32C)
		default:
			if t := table.ByName(f.Table); t != nil {
				v.report.Bytes += n
				v.good[f.Table] = append(v.good[f.Table], f)
				v.columns(path, file.File, table.Timeline(t), "")
			}
			continue
		}
		v.find(file)
	}
	return v.unlisted(listed)
}

// unlisted looks for files that a reader of the timeline would take for rows
// of it.
func (v *verifier) unlisted(listed map[string]bool) error {
	root := v.dir.Timeline()
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".parquet") {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err == nil && !listed[filepath.ToSlash(name)] {
			v.find(Finding{Code: FileUnlisted, Incomplete: true, File: "timeline/" + filepath.ToSlash(name), Detail: "the merge did not write it, and readers take it for a part of the timeline"})
		}
		return err
	})
}

func digest(path string) (int64, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	n, err := io.Copy(h, f)
	return n, fmt.Sprintf("%08x", h.Sum32()), err
}

// cause is an error without the path in it.
func cause(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// columns compares what a file says of its columns with what the table says.
// It also verifies the file's own checksums.
func (v *verifier) columns(path, name string, t *table.Table, node string) {
	have, err := shard.Describe(path)
	if err != nil {
		v.find(Finding{Code: Code(shard.CorruptShard), Incomplete: true, Node: node, Table: t.Name, File: name, Detail: cause(err)})
		return
	}
	f := Finding{Node: node, Table: t.Name}
	seen := make(map[string]bool)
	for _, c := range have {
		seen[c.Name] = true
		f.Column = c.Name
		i := t.Index(c.Name)
		if i < 0 {
			f.Code, f.Incomplete, f.Detail = SchemaColumn, false, "a column that this gswarm does not know, and did not verify"
			v.find(f)
			continue
		}
		want := t.Columns[i]
		if c.Type != want.Type.String() || c.Required != want.Required {
			f.Code, f.Incomplete = SchemaType, true
			f.Detail = fmt.Sprintf("it is %s, required %t; the table says %s, required %t", c.Type, c.Required, want.Type, want.Required)
			v.find(f)
		}
		if c.Unit != want.Unit {
			f.Code, f.Incomplete = SchemaUnit, true
			f.Detail = fmt.Sprintf("its unit is %q; the table says %q", c.Unit, want.Unit)
			v.find(f)
		}
	}
	for _, c := range t.Columns {
		if !seen[c.Name] {
			f.Code, f.Column, f.Incomplete, f.Detail = SchemaColumn, c.Name, c.Required, "the file lacks it: an older gswarm wrote it"
			v.find(f)
		}
	}
}

// shards compares what the timeline was made from with the timeline. A dataset
// of which only the timeline was kept is as good.
func (v *verifier) shards(ctx context.Context) error {
	for _, n := range v.meta.Nodes {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := shard.OpenNode(v.dir.Node(n.Dir))
		if errors.Is(err, fs.ErrNotExist) {
			v.find(Finding{Code: ShardsGone, Node: n.Node, Detail: "what the timeline was made from is not there; it cannot be merged again"})
			continue
		}
		if err != nil {
			v.find(Finding{Code: Code(merge.NodeUnread), Incomplete: true, Node: n.Node, Detail: cause(err)})
			continue
		}
		v.nodeShards(n, data)
		data.Close()
	}
	return nil
}

func (v *verifier) nodeShards(n merge.NodeMeta, data *shard.Node) {
	known := make(map[string]bool)
	for _, l := range n.Losses {
		known[l.String()] = true
	}
	fresh := false
	for _, l := range data.Losses() {
		if !known[l.String()] {
			fresh = true
			v.find(Finding{Code: Code(l.Code), Incomplete: true, Node: n.Node, Table: l.Table, File: "nodes/" + n.Dir + "/" + l.File, Count: max(l.Rows, 0), Detail: "since the merge: " + l.String()})
		}
	}
	files := data.Files()
	for _, f := range files {
		v.report.Shards++
		v.report.Bytes += f.Bytes
		if t := table.ByName(f.Table); t != nil {
			v.columns(filepath.Join(v.dir.Node(n.Dir), f.Name), "nodes/"+n.Dir+"/"+f.Name, t, n.Node)
		}
	}
	if len(files) == 0 {
		v.find(Finding{Code: ShardsGone, Node: n.Node, Detail: "what the timeline was made from is not there; it cannot be merged again"})
		return
	}
	if fresh || len(n.Losses) > 0 {
		return // rows in damaged shards cannot be counted from outside
	}
	for _, t := range table.All() {
		have, want := n.Rows[t.Name], data.TableRows(t.Name)
		// The merge adds absences of its own.
		if have < want || t != table.Absence && have > want {
			v.find(Finding{Code: TimelineStale, Incomplete: true, Node: n.Node, Table: t.Name, Count: want - have,
				Detail: fmt.Sprintf("the timeline has %d rows of it, the shards %d: merge again", have, want)})
		}
	}
}

// readRun reads what the run was to be.
func (v *verifier) readRun() {
	run, err := rundir.ReadRun(v.dir)
	if err != nil || run == nil {
		v.job = &rundir.Run{}
		return // the merge has said so, or the timeline is kept alone
	}
	v.job = run
	v.report.NodesExpected = len(run.Nodes)
	if run.End == nil {
		v.find(Finding{Code: RunNoEnd, Detail: "run.yaml does not say how the run ended: the wrap in charge of it was killed, or it still goes on"})
	}
}
