package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// runInfo is what info says of a run; --json prints it as it is.
type runInfo struct {
	Dir      string          `json:"dir"`
	Run      *rundir.Run     `json:"run,omitempty"`
	Nodes    []nodeInfo      `json:"nodes"`
	Tables   []tableInfo     `json:"tables"`
	Bytes    int64           `json:"bytes"`
	Hours    float64         `json:"node_hours"`
	Alive    []string        `json:"alive,omitempty"`
	Missing  []merge.Missing `json:"missing,omitempty"`
	Timeline *merge.Meta     `json:"-"`
	Merged   bool            `json:"merged"`
	Ranks    []rundir.Rank   `json:"ranks,omitempty"`
	problems []string
}

type nodeInfo struct {
	Node    string  `json:"node"`
	Rows    int64   `json:"rows"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	GPUs    int     `json:"gpus"`
	Driver  string  `json:"gpu_driver"`
	// Ended is how the node's agent ended, empty where it runs or was
	// killed.
	Ended  string   `json:"ended,omitempty"`
	Losses []string `json:"losses,omitempty"`
}

type tableInfo struct {
	Table string `json:"table"`
	Rows  int64  `json:"rows"`
}

func (a *app) infoCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "info [DIR]",
		Short: "Say what is in a run",
		Long: `info says what a run holds: its job, nodes and tables, how much and how complete,
a few rows, and what to do next. Without DIR it takes the newest run here. It
works while the run goes on, too.

Exit status: 0 the data are complete, or the run still goes on; 3 something is
missing, which is named.`,
		Example: `  gswarm info
  gswarm info gswarm-12345
  gswarm info --json gswarm-12345 | jq .tables`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := dirArgument(args)
			if err != nil {
				return err
			}
			info, err := gatherInfo(dir, a.now())
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(a.stdout, info)
			} else {
				err = a.printInfo(info)
			}
			if err != nil {
				return err
			}
			if len(info.problems) > 0 && len(info.Alive) == 0 {
				return incompleteError{fmt.Errorf("the data of %s are incomplete: %s", dir, info.problems[0])}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// gatherInfo reads what the run directory says of itself; damage becomes a
// problem in the answer, not an error.
func gatherInfo(dir rundir.Dir, now time.Time) (*runInfo, error) {
	info := &runInfo{Dir: string(dir)}
	problem := func(format string, args ...any) { info.problems = append(info.problems, fmt.Sprintf(format, args...)) }
	run, err := rundir.ReadRun(dir)
	var newer *rundir.NewerError
	switch {
	case errors.As(err, &newer):
		return nil, err
	case err != nil:
		problem("%v", err)
	default:
		info.Run = run
	}
	if info.Alive, err = dir.Alive(now); err != nil {
		return nil, err
	}
	names, err := dir.NodeNames()
	if err != nil {
		return nil, err
	}
	rows := map[string]int64{}
	for _, name := range names {
		n, err := gatherNode(dir, name, rows, problem)
		if err != nil {
			problem("node %s: %v", name, err)
			continue
		}
		info.Nodes = append(info.Nodes, n)
		info.Bytes += n.Bytes
		info.Hours += n.Seconds / 3600
		if m, err := rundir.ReadNodeMeta(dir, name); err == nil {
			info.Ranks = append(info.Ranks, m.Ranks...)
		}
	}
	sort.Slice(info.Ranks, func(i, j int) bool { return info.Ranks[i].Rank < info.Ranks[j].Rank })
	for _, t := range table.All() {
		if rows[t.Name] > 0 {
			info.Tables = append(info.Tables, tableInfo{t.Name, rows[t.Name]})
		}
	}
	if run != nil {
		for _, want := range run.Nodes {
			if _, err := os.Stat(dir.Node(want)); err != nil {
				problem("node %s was to be sampled and left nothing", want)
			}
		}
	}
	if run != nil && run.Scheduler.Position == "front" && run.End == nil && len(info.Alive) == 0 {
		problem("wrap was killed before the job's end: how it ended is not known")
	}
	meta, err := merge.ReadMeta(dir)
	switch {
	case err == nil:
		info.Timeline, info.Merged = meta, true
		info.Missing = meta.Missing
	case !errors.Is(err, fs.ErrNotExist):
		problem("%v", err)
	}
	return info, nil
}

func gatherNode(dir rundir.Dir, name string, rows map[string]int64, problem func(string, ...any)) (nodeInfo, error) {
	n := nodeInfo{Node: name}
	data, err := shard.OpenNode(dir.Node(name))
	if err != nil {
		return n, err
	}
	defer data.Close()
	first, last, timed := int64(0), int64(0), false
	for _, f := range data.Files() {
		n.Bytes += f.Bytes
		if f.Timed {
			if !timed || int64(f.TMin) < first {
				first = int64(f.TMin)
			}
			if !timed || int64(f.TMax) > last {
				last = int64(f.TMax)
			}
			timed = true
		}
	}
	n.Seconds = time.Duration(last - first).Seconds()
	for _, t := range table.All() {
		r := data.TableRows(t.Name)
		rows[t.Name] += r
		n.Rows += r
	}
	for _, l := range data.Losses() {
		n.Losses = append(n.Losses, l.String())
		problem("node %s: %s", name, l)
	}
	if end := data.Ended(); end != nil && end.Reason != shard.EndTile {
		n.Ended = end.Reason
	} else {
		problem("node %s: its agent has written no end mark: it was killed, or it still runs", name)
	}
	m, err := rundir.ReadNodeMeta(dir, name)
	if err != nil {
		problem("node %s: %v", name, err)
		return n, nil
	}
	n.Driver, n.GPUs = m.Driver, max(0, m.GPUCounts.Visible)
	return n, nil
}

// printInfo writes info for people.
func (a *app) printInfo(info *runInfo) error {
	p := &printer{w: a.stdout}
	p.line("%s", info.Dir)
	if r := info.Run; r != nil {
		p.line("  command   %s", strings.Join(r.Command, " "))
		p.line("  job       %s", jobText(info))
	}
	p.line("  nodes     %s", nodesText(info))
	p.line("  size      %s%s", bytesText(info.Bytes), perHour(info))
	switch {
	case len(info.Alive) > 0:
		p.line("  state     still running on %s", strings.Join(info.Alive, ", "))
	case len(info.problems) == 0:
		p.line("  state     complete")
	default:
		p.line("  state     incomplete:")
		const most = 10
		for i, s := range info.problems {
			if i == most {
				p.line("            and %d more", len(info.problems)-most)
				break
			}
			p.line("            %s", s)
		}
	}
	if info.Merged {
		a.printTimeline(p, info)
	} else {
		a.printTables(p, info)
	}
	p.line("")
	if info.Merged {
		p.line("next: gswarm report %s", info.Dir)
	} else if len(info.Alive) > 0 {
		p.line("next: gswarm merge --partial %s, or wait for the end", info.Dir)
	} else {
		p.line("next: gswarm merge %s", info.Dir)
	}
	return p.err
}

func jobText(info *runInfo) string {
	r := info.Run
	var parts []string
	if r.Scheduler.Kind == "slurm" {
		s := "Slurm job " + r.Scheduler.JobID
		if r.Scheduler.Task != "" {
			s += fmt.Sprintf(" (array %s_%s)", r.Scheduler.ArrayJob, r.Scheduler.Task)
		}
		if r.Scheduler.Step != "" {
			s += " step " + r.Scheduler.Step
		}
		parts = append(parts, s)
	} else {
		parts = append(parts, "no scheduler")
	}
	parts = append(parts, "began "+r.Begin.UTC().Format("2006-01-02 15:04:05")+" UTC")
	if r.End != nil {
		parts = append(parts, "ran "+r.End.Sub(r.Begin).Round(10*time.Millisecond).String())
	}
	switch {
	case r.Exit != nil && r.Exit.Signal != "":
		parts = append(parts, "ended by "+r.Exit.Signal)
	case r.Exit != nil:
		parts = append(parts, fmt.Sprintf("exit code %d", r.Exit.Code))
	case len(info.Ranks) > 0 && len(info.Alive) == 0:
		parts = append(parts, ranksText(info.Ranks))
	}
	return strings.Join(parts, ", ")
}

// ranksText says how the ranks ended.
func ranksText(ranks []rundir.Rank) string {
	failed, open := 0, 0
	for _, r := range ranks {
		switch {
		case r.Exit == nil:
			open++
		case r.Exit.Code != 0:
			failed++
		}
	}
	s := plural(len(ranks), "rank")
	switch {
	case failed == 0 && open == 0:
		return s + ", all exit code 0"
	case failed > 0:
		s += fmt.Sprintf(", %d of them failed", failed)
	}
	if open > 0 {
		s += fmt.Sprintf(", %d of them not seen to end", open)
	}
	return s
}

func nodesText(info *runInfo) string {
	gpus, names := 0, make([]string, 0, len(info.Nodes))
	driver := ""
	for _, n := range info.Nodes {
		gpus += n.GPUs
		names = append(names, n.Node)
		if n.GPUs == 0 && n.Driver != "" && n.Driver != "ok" {
			driver = n.Driver
		}
	}
	const most = 6
	list := strings.Join(names[:min(most, len(names))], ", ")
	if len(names) > most {
		list += ", …"
	}
	s := fmt.Sprintf("%d (%s), %s", len(names), list, plural(gpus, "GPU"))
	if gpus == 0 && driver != "" {
		if strings.Contains(driver, "no NVIDIA driver") { // the rest is the linker's
			driver = "no NVIDIA driver"
		}
		s += ": " + driver
	}
	return s
}

func perHour(info *runInfo) string {
	if info.Hours <= 0 {
		return ""
	}
	return fmt.Sprintf(", %.1f MB per node-hour before merging", float64(info.Bytes)/1e6/info.Hours)
}

func (a *app) printTables(p *printer, info *runInfo) {
	p.line("")
	w := tabwriter.NewWriter(p.w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "table\trows\t\n")
	for _, t := range info.Tables {
		fmt.Fprintf(w, "%s\t%s\t\n", t.Table, count(t.Rows))
	}
	if err := w.Flush(); err != nil && p.err == nil {
		p.err = err
	}
}

// printTimeline lists the timeline's tables and clocks and reads a few rows
// back.
func (a *app) printTimeline(p *printer, info *runInfo) {
	type sum struct{ rows, bytes int64 }
	tables := map[string]sum{}
	for _, f := range info.Timeline.Files {
		s := tables[f.Table]
		s.rows += f.Rows
		s.bytes += f.Bytes
		tables[f.Table] = s
	}
	p.line("")
	w := tabwriter.NewWriter(p.w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "table\trows\tsize\t\n")
	for _, t := range table.All() {
		if s := tables[t.Name]; s.rows > 0 {
			fmt.Fprintf(w, "%s\t%s\t%s\t\n", t.Name, count(s.rows), bytesText(s.bytes))
		}
	}
	if err := w.Flush(); err != nil && p.err == nil {
		p.err = err
	}
	p.line("")
	w = tabwriter.NewWriter(p.w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "node\tclock\toffset\tdrift\tbound\t\n")
	for _, n := range info.Timeline.Nodes {
		c := n.Clock
		offset, drift, bound := "–", "–", "unknown"
		if c.OffsetNS != nil {
			offset = time.Duration(*c.OffsetNS).String()
		}
		if c.DriftPPM != nil && c.DriftBoundPPM != nil {
			drift = fmt.Sprintf("%+.2f ± %.2f ppm", *c.DriftPPM, *c.DriftBoundPPM)
		}
		if c.BoundNS != nil {
			bound = "±" + time.Duration(c.BoundNS.Max).Round(100*time.Nanosecond).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", n.Node, c.Method, offset, drift, bound)
	}
	if err := w.Flush(); err != nil && p.err == nil {
		p.err = err
	}
	a.printRows(p, info)
}

// shown are the columns of which info reads a few rows back, for the first
// table that has rows.
var shown = []struct {
	table   *table.Table
	columns []string
}{
	{table.GPU, []string{"node", "gpu", "util_gpu_pct", "mem_used_bytes", "power_now_mw"}},
	{table.Host, []string{"node", "cpu_user_ns", "mem_available_bytes", "load1"}},
}

func (a *app) printRows(p *printer, info *runInfo) {
	for _, s := range shown {
		files, err := filepath.Glob(filepath.Join(rundir.Dir(info.Dir).Timeline(), s.table.Name, "*.parquet"))
		if err != nil || len(files) == 0 {
			continue
		}
		tl := table.Timeline(s.table)
		const most = 4
		b, err := shard.Head(files[0], tl, most)
		if err != nil {
			p.line("reading %s back: %v", files[0], err)
			return
		}
		if b.Rows() == 0 {
			continue
		}
		p.line("")
		w := tabwriter.NewWriter(p.w, 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(w, "%s: time_ns\t± ns\t%s\t\n", s.table.Name, strings.Join(s.columns, "\t"))
		for i := range b.Rows() {
			fmt.Fprintf(w, "%s\t%s\t", cell(b, table.TLTimeNS, i), cell(b, table.TLBound, i))
			for _, c := range s.columns {
				fmt.Fprintf(w, "%s\t", cell(b, tl.Index(c), i))
			}
			fmt.Fprint(w, "\n")
		}
		if err := w.Flush(); err != nil && p.err == nil {
			p.err = err
		}
		return
	}
}

// cell writes one value.
func cell(b *table.Batch, col, row int) string {
	if col < 0 || !b.Valid(col)[row] {
		return "null"
	}
	switch b.Table.Columns[col].Type {
	case table.String:
		return b.Strings(col)[row]
	case table.Float32, table.Float64:
		return fmt.Sprintf("%.2f", b.Floats(col)[row])
	}
	return fmt.Sprintf("%d", b.Ints(col)[row])
}
