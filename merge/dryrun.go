package merge

import (
	"slices"

	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

// Plan is what a merge would do.
type Plan struct {
	Timeline string   `json:"timeline"`
	Nodes    []string `json:"nodes"`
	// Shards and Bytes are the files that would be read, Estimate how large
	// the timeline would get, about.
	Shards   int         `json:"files"`
	Bytes    int64       `json:"bytes"`
	Estimate int64       `json:"estimated_bytes"`
	Order    string      `json:"order"`
	Tables   []TablePlan `json:"tables"`
	// Task of Tasks would write TaskFiles files of TaskRows rows.
	Task      int       `json:"task,omitempty"`
	Tasks     int       `json:"tasks,omitempty"`
	TaskFiles int       `json:"task_files,omitempty"`
	TaskRows  int64     `json:"task_rows,omitempty"`
	Missing   []Missing `json:"missing"`
	Notes     []string  `json:"notes,omitempty"`
}

// TablePlan is what a merge would do with one table.
type TablePlan struct {
	Table  string `json:"table"`
	Rows   int64  `json:"rows"`
	Files  int    `json:"files"`
	Groups int    `json:"row_groups"`
	// Copied counts the rows whose columns would be copied as bytes.
	Copied int64 `json:"rows_copied"`
}

// timeBytes is about how much the timeline's time columns take for each row
// beyond those of a shard.
const timeBytes = 6

// DryRun says what Run would do. It reads the shards' footers and writes
// nothing.
func DryRun(dir string, opts Options) (*Plan, error) {
	m, err := prepare(rundir.Dir(dir), opts)
	if err != nil {
		return nil, err
	}
	defer m.close()
	p := &Plan{Timeline: m.dir.Timeline(), Order: m.order(), Task: opts.Task, Tasks: opts.Tasks, Notes: m.notes}
	for _, n := range m.nodes {
		if !slices.Contains(p.Nodes, n.machine) {
			p.Nodes = append(p.Nodes, n.machine)
		}
		for _, f := range n.data.Files() {
			p.Shards++
			p.Bytes += f.Bytes
			p.Estimate += f.Bytes + timeBytes*f.Rows
		}
		for _, l := range n.data.Losses() {
			m.miss(Code(l.Code), n.name, l.String())
		}
	}
	for _, t := range table.All() {
		tp := TablePlan{Table: t.Name}
		for i := range m.parts {
			part := &m.parts[i]
			if part.table != t {
				continue
			}
			tp.Files++
			tp.Rows += part.rows
			if opts.Sort {
				tp.Groups += int((part.rows + sortedRows - 1) / sortedRows)
				continue
			}
			tp.Groups += len(part.groups)
			for _, g := range part.groups {
				if len(g) == 1 && g[0].copied() {
					tp.Copied += g[0].Rows
				}
			}
		}
		p.Tables = append(p.Tables, tp)
	}
	if opts.Tasks > 1 {
		for _, i := range share(m.parts, opts.Task, opts.Tasks) {
			p.TaskFiles++
			p.TaskRows += m.parts[i].rows
		}
	}
	m.sortMissing()
	p.Missing = m.missing
	return p, nil
}
