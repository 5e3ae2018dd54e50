package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
)

func (a *app) mergeCommand() *cobra.Command {
	var f mergeFlags
	cmd := &cobra.Command{
		Use:   "merge [DIR]",
		Short: "Put a run on one timeline",
		Long: `merge reads the shards and spools of a run, corrects every time stamp to the
reference clock and writes DIR/timeline: one directory of Parquet files for each
table. Without DIR it takes the newest run here. It can be run again at any time
and gives the same bytes for the same input.

Rows lie tile by tile (five minutes, unless the run had other tiles), node by
node within a tile, and by time within a node: all columns but the time stamps
are copied as they are. --sort puts all rows of a table into one order of time,
node and GPU, which has to decode and encode everything.

Several tasks can share the work: each gets --slice I/N, or nothing under srun,
which tells each task its number. Whichever is last finishes. The
bytes are those of one task, and a task that was killed can be run again.

A run that still goes on is refused; --partial takes what is there.

Exit status: 0 the timeline is whole, or this task's share of it is, 3 it was
written and lacks something, which is named, 1 it was not written.`,
		Example: `  gswarm merge
  gswarm merge gswarm-12345
  gswarm merge --dry-run gswarm-12345     # what it would do, and how large it gets
  gswarm merge --partial gswarm-12345     # while the job runs
  srun -n 8 gswarm merge gswarm-12345     # eight tasks share the work`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := dirArgument(args)
			if err != nil {
				return err
			}
			opts := merge.Options{Partial: f.partial, Sort: f.sort}
			if opts.Task, opts.Tasks, err = taskOf(f.slice, a.env); err != nil {
				return usageError{err}
			}
			limitMemory()
			if f.dryRun {
				return a.mergeDryRun(cmd.Context(), dir, opts, f.asJSON)
			}
			return a.merge(cmd.Context(), dir, opts, f.asJSON)
		},
	}
	cmd.Flags().BoolVar(&f.partial, "partial", false, "take what is there of a run that still goes on")
	cmd.Flags().BoolVar(&f.sort, "sort", false, "one order of all rows: time, node, GPU")
	cmd.Flags().StringVar(&f.slice, "slice", "", "do the `I/N`-th share of the work, I counted from 0 (default, in a step of srun: SLURM_PROCID of its number of tasks)")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be done, from what, and how large; write nothing")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the summary as JSON")
	return cmd
}

type mergeFlags struct {
	partial, sort, dryRun, asJSON bool
	slice                         string
}

// taskOf returns which task of how many this is. Inside a Slurm step of several
// tasks each takes its share. The batch script itself has SLURM_PROCID and the
// job's SLURM_NTASKS, too, but no step's number of tasks: it is alone.
func taskOf(slice string, env []string) (task, tasks int, err error) {
	if slice != "" {
		i, n, ok := strings.Cut(slice, "/")
		task, err1 := strconv.Atoi(i)
		tasks, err2 := strconv.Atoi(n)
		if !ok || err1 != nil || err2 != nil || task < 0 || task >= tasks {
			return 0, 0, fmt.Errorf("--slice %s: give I/N, task I of N, counted from 0, for example 0/4", slice)
		}
		return task, tasks, nil
	}
	if getenv(env, "SLURM_STEP_NUM_TASKS") == "" {
		return 0, 0, nil
	}
	task, err1 := strconv.Atoi(getenv(env, "SLURM_PROCID"))
	tasks, err2 := strconv.Atoi(getenv(env, "SLURM_STEP_NUM_TASKS"))
	if err1 != nil || err2 != nil || task < 0 || task >= tasks {
		return 0, 0, nil
	}
	return task, tasks, nil
}

func getenv(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// limitMemory makes the collector work before it asks for more memory than a
// merge needs. A limit of the user's own stands.
func limitMemory() {
	const enough = 400 << 20
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(enough)
	}
	if os.Getenv("GOGC") == "" {
		const percent = 40
		debug.SetGCPercent(percent)
	}
}

func (a *app) merge(ctx context.Context, dir rundir.Dir, opts merge.Options, asJSON bool) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	bar := newProgress(a.stderr)
	begin := time.Now()
	opts.Progress = bar.show
	sum, err := merge.Run(ctx, string(dir), opts)
	bar.clear()
	if err != nil {
		return err
	}
	if asJSON {
		err = writeJSON(a.stdout, sum)
	} else {
		err = printMerge(a.stdout, sum, time.Since(begin))
	}
	if err != nil {
		return err
	}
	if sum.Incomplete {
		return incompleteError{fmt.Errorf("the timeline of %s lacks what is listed above", dir)}
	}
	return nil
}

func (a *app) mergeDryRun(_ context.Context, dir rundir.Dir, opts merge.Options, asJSON bool) error {
	plan, err := merge.DryRun(string(dir), opts)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.stdout, plan)
	}
	return printPlan(a.stdout, dir, plan)
}

// printPlan says what a merge would do.
func printPlan(w io.Writer, dir rundir.Dir, p *merge.Plan) error {
	out := &printer{w: w}
	out.line("%s: %s in %s of %s, order: %s", dir, bytesText(p.Bytes), plural(p.Shards, "file"), plural(len(p.Nodes), "node"), p.Order)
	out.line("would write %s, about %s", p.Timeline, bytesText(p.Estimate))
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "table\trows\tfiles\trow groups\tcopied\tencoded again\t\n")
	for _, t := range p.Tables {
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%s\t%s\t\n", t.Table, count(t.Rows), t.Files, t.Groups, count(t.Copied), count(t.Rows-t.Copied))
	}
	if err := tw.Flush(); err != nil && out.err == nil {
		out.err = err
	}
	if p.Tasks > 1 {
		out.line("this task, %d of %d: %s, %s rows", p.Task, p.Tasks, plural(p.TaskFiles, "file"), count(p.TaskRows))
	}
	for _, n := range p.Notes {
		out.line("note: %s", n)
	}
	for _, m := range p.Missing {
		out.line("missing: %s", m)
	}
	return out.err
}

// printMerge says what the merge made.
func printMerge(w io.Writer, sum merge.Summary, took time.Duration) error {
	p := &printer{w: w}
	if sum.Others {
		switch {
		case sum.PartsLeft > 0:
			p.line("%s: this task wrote %s in %s; %d are still missing, and the task that is last finishes",
				sum.Dir, plural(sum.Parts, "file"), took.Round(10*time.Millisecond), sum.PartsLeft)
		default:
			p.line("%s: this task's files are there, and another task finished", sum.Dir)
		}
		return p.err
	}
	rows, tables := int64(0), 0
	for _, n := range sum.Rows {
		rows += n
		if n > 0 {
			tables++
		}
	}
	p.line("%s: %s rows in %d tables, %s in %s, from %s, in %s (%s rows/s)",
		sum.Dir, count(rows), tables, bytesText(sum.Bytes), plural(sum.Files, "file"), plural(len(sum.Nodes), "node"),
		took.Round(10*time.Millisecond), count(int64(float64(rows)/max(took.Seconds(), 1e-3))))
	for _, n := range sum.Notes {
		p.line("note: %s", n)
	}
	for _, m := range sum.Missing {
		p.line("missing: %s", m)
	}
	p.line("next: gswarm info %s", filepath.Dir(sum.Dir))
	return p.err
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}

// progress draws a bar on a terminal and nothing elsewhere.
type progress struct {
	w     io.Writer
	on    bool
	begin time.Time
	last  time.Time
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, begin: time.Now()}
	if f, ok := w.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		p.on = err == nil
	}
	return p
}

func (p *progress) show(m merge.Progress) {
	if !p.on || m.Total == 0 || time.Since(p.last) < 100*time.Millisecond {
		return
	}
	p.last = time.Now()
	fmt.Fprint(p.w, "\r\033[K"+progressLine(m, time.Since(p.begin)))
}

// progressLine is a bar with the rate and the remaining time.
func progressLine(m merge.Progress, took time.Duration) string {
	done := min(float64(m.Rows)/float64(max(m.Total, 1)), 1)
	rate := float64(m.Rows) / max(took.Seconds(), 1e-3)
	const width = 30
	bar := []byte(strings.Repeat(" ", width))
	for i := range bar {
		if float64(i) < done*width {
			bar[i] = '='
		}
	}
	line := fmt.Sprintf("[%s] %3.0f%%  %s rows/s", bar, 100*done, count(int64(rate)))
	const settled = 500 * time.Millisecond // from when the rate says something
	if took >= settled && rate > 0 {
		left := time.Duration(float64(m.Total-m.Rows) / rate * float64(time.Second))
		line += fmt.Sprintf("  %s left", max(left, 0).Round(time.Second))
	}
	return line + "  " + m.Table
}

func (p *progress) clear() {
	if p.on {
		fmt.Fprint(p.w, "\r\033[K")
	}
}
