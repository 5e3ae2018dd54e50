package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gswarm/gswarm/export"
	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

// exportOptions are the flags of export.
type exportOptions struct {
	to, out, table string
	raw, force     bool
	points         int64
	every          time.Duration
	nodes          []string
	from, until    time.Duration
	// slices are what the analysis found, for a trace.
	slices iter.Seq[export.Slice]
}

// name is where the export goes to, in words.
func (o *exportOptions) name() string {
	if o.out == "-" {
		return "standard output"
	}
	return strings.TrimSuffix(o.out, "/")
}

// exportFormat is one of the values of --to.
type exportFormat struct {
	name string
	// takes are the flags that say something to it, beside those that every
	// format takes.
	takes []string
	// directory says that it writes one, with the options given.
	directory func(o exportOptions) bool
	// write writes into a file, or into a directory.
	write func(ctx context.Context, src *export.Source, o exportOptions, to target, p *printer) error
}

// target is where a format writes: w, or files below dir.
type target struct {
	w   io.Writer
	dir string
}

func exportFormats() []exportFormat {
	never, always := func(exportOptions) bool { return false }, func(exportOptions) bool { return true }
	return []exportFormat{
		{"arrow", []string{"table", "raw"}, func(o exportOptions) bool { return o.table == "" }, exportArrow},
		{"csv", []string{"table", "raw", "every", "node", "from", "until"}, never, exportCSV},
		{"gputop", []string{"every", "node", "from", "until"}, always, exportGPUTop},
		{"json", []string{"every", "node", "from", "until"}, never, exportJSON},
		{"perfetto", []string{"points", "node", "from", "until"}, never, exportPerfetto},
		{"tfevents", []string{"every", "node", "from", "until"}, always, exportTFEvents},
	}
}

func (a *app) exportCommand() *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export [DIR] --to FORMAT -o FILE|DIR",
		Short: "Turn a run into another tool's format",
		Long: `export writes a run in a format that other tools read. It merges first where
there is no timeline. Without DIR it takes the newest run here.

--to arrow     plain Arrow IPC streams, which every Arrow reader opens: one file
               for each table, TABLE.arrows, into the directory that -o names;
               or with --table that table alone into a file.
--to csv       temperature, power and clocks of each GPU over time, and their
               summary on the terminal; or with --table that table as it is.
--to gputop    for each node, a directory with a list of samples of each GPU, and
               one of all with their aggregate, as gputop.py writes them.
--to json      frames with arrays over all GPUs: utilisation and memory between
               0 and 1, bandwidths in GB/s.
--to perfetto  a trace for Perfetto's viewer: a group of tracks for each node,
               with its GPUs, ranks and devices, what happened, and how well the
               node's clock was known. Series of more than --points values in
               all are thinned; of every stretch of time the least and the
               greatest value stay.
--to tfevents  a directory for each GPU with TensorBoard's event files.

GPUs are read one after the other, so csv, gputop, json and tfevents have frames
of --every (1 s): each is the mean of what was read of the GPU within it, and
null, or left out, where nothing was.

All but arrow and tables take --node, for some nodes only, and --from and --until,
for a stretch of time, counted from the run's first reading.

What exists already is replaced with --force only. -o - writes one file to
standard output. docs/export.md says where every field comes from.

--raw takes the rows as the nodes recorded them, each on its own raw clock,
instead of the timeline: of any run, sealed or not, merged or not, also of one
that still goes on.

Exit status: 0 all was exported, 3 it was, and the data lack something, which is
named, 1 it was not.`,
		Example: `  gswarm export --to arrow -o streams
  gswarm export gswarm-12345 --to arrow --table gpu -o gpu.arrows
  gswarm export --raw --to arrow --table host -o - | python -c \
    'import pyarrow as pa, sys; print(pa.ipc.open_stream(sys.stdin.buffer).read_all())'
  gswarm export --to csv -o temperatures.csv
  gswarm export --to csv --table event -o -
  gswarm export --to gputop -o gputop
  gswarm export --to json --every 500ms -o frames.json
  gswarm export --to perfetto -o run.perfetto-trace
  gswarm export --to perfetto --node n17 --from 10m --until 12m -o n17.perfetto-trace
  gswarm export --to tfevents -o tb && tensorboard --logdir tb`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := o.check(cmd)
			if err != nil {
				return usageError{err}
			}
			dir, err := dirArgument(args)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			src, err := a.exportSource(ctx, dir, o)
			if err != nil {
				return err
			}
			if format.name == "perfetto" {
				_, r, err := a.analyze(ctx, dir, false)
				if err != nil {
					return err
				}
				o.slices = jobSlices(r)
			}
			if err := a.export(ctx, src, format, o); err != nil {
				return err
			}
			if len(src.Losses) > 0 {
				return incompleteError{fmt.Errorf("%s was exported to %s and lacks something: %s", dir, o.out, strings.Join(src.Losses, "; "))}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.to, "to", "", "`FORMAT` to export to: "+strings.Join(formatNames(), ", "))
	flags.StringVarP(&o.out, "output", "o", "", "`FILE|DIR` to write; - is standard output")
	flags.BoolVar(&o.force, "force", false, "replace what exists already")
	flags.StringVar(&o.table, "table", "", "arrow, csv: export this `TABLE` only")
	flags.BoolVar(&o.raw, "raw", false, "arrow, csv --table: export rows as they were recorded instead of the timeline")
	flags.Int64Var(&o.points, "points", export.DefaultPoints, "perfetto: `NUMBER` of counter values to keep at most")
	flags.DurationVar(&o.every, "every", export.DefaultEvery, "csv, gputop, json, tfevents: length of a frame")
	flags.StringArrayVar(&o.nodes, "node", nil, "only this `NODE`; may be given several times")
	flags.DurationVar(&o.from, "from", 0, "begin so long after the run's first reading")
	flags.DurationVar(&o.until, "until", 0, "end so long after the run's first reading; 0 is the run's end")
	return cmd
}

func formatNames() []string {
	var names []string
	for _, f := range exportFormats() {
		names = append(names, f.name)
	}
	return names
}

// everyFormat are the flags that all formats take.
var everyFormat = []string{"to", "output", "force", "help"}

// check returns the format that is asked for, and what is wrong with the flags.
func (o *exportOptions) check(cmd *cobra.Command) (exportFormat, error) {
	formats := exportFormats()
	i := slices.IndexFunc(formats, func(f exportFormat) bool { return f.name == o.to })
	if i < 0 {
		return exportFormat{}, fmt.Errorf("--to %q: the formats are %s", o.to, strings.Join(formatNames(), ", "))
	}
	f := formats[i]
	var alien string
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if !slices.Contains(everyFormat, flag.Name) && !slices.Contains(f.takes, flag.Name) {
			alien = flag.Name
		}
	})
	switch {
	case alien != "":
		return f, fmt.Errorf("--%s says nothing to --to %s", alien, f.name)
	case o.out == "":
		return f, errors.New("-o is missing: where to export to")
	case o.table != "" && table.ByName(o.table) == nil:
		return f, fmt.Errorf("--table %q: the tables are %s", o.table, strings.Join(tableNames(), ", "))
	case o.out == "-" && f.directory(*o) && slices.Contains(f.takes, "table"):
		return f, errors.New("-o -: standard output takes one table; name it with --table")
	case o.out == "-" && f.directory(*o):
		return f, fmt.Errorf("-o -: %s writes several files; name a directory", f.name)
	case o.raw && f.name == "csv" && o.table == "":
		return f, errors.New("--raw: csv takes one table as it was recorded; name it with --table")
	case o.table != "" && (o.nodes != nil || o.from != 0 || o.until != 0):
		return f, errors.New("--table exports a table as it is, without --node, --from and --until")
	case o.from < 0 || o.until != 0 && o.until <= o.from:
		return f, fmt.Errorf("--from %s --until %s: the end must come after the begin", o.from, o.until)
	case o.every < export.MinEvery:
		return f, fmt.Errorf("--every %s: at least %s", o.every, export.MinEvery)
	case o.points < 1:
		return f, fmt.Errorf("--points %d: at least 1", o.points)
	}
	return f, nil
}

func tableNames() []string {
	var names []string
	for _, t := range table.All() {
		names = append(names, t.Name)
	}
	return names
}

func (a *app) exportSource(ctx context.Context, dir rundir.Dir, o exportOptions) (*export.Source, error) {
	if o.raw {
		return export.Recorded(dir), nil
	}
	tl, err := a.openTimeline(ctx, dir, false)
	var running *merge.RunningError
	if errors.As(err, &running) {
		return nil, fmt.Errorf("%w; or export what was recorded so far with --raw", err)
	}
	if err != nil {
		return nil, err
	}
	src := export.Timeline(tl)
	if o.nodes == nil && o.from == 0 && o.until == 0 {
		return src, nil
	}
	return src, src.Select(o.nodes, o.from, o.until)
}

// export writes to where -o says and tells what it wrote, on standard error
// where standard output has the export itself.
func (a *app) export(ctx context.Context, src *export.Source, f exportFormat, o exportOptions) error {
	p := &printer{w: a.stdout}
	var err error
	switch {
	case o.out == "-":
		err = f.write(ctx, src, o, target{w: a.stdout}, &printer{w: a.stderr})
	case f.directory(o):
		err = export.Directory(o.out, o.force, func(dir string) error {
			return f.write(ctx, src, o, target{dir: dir}, p)
		})
	default:
		err = export.File(o.out, o.force, func(w io.Writer) error {
			return f.write(ctx, src, o, target{w: w}, p)
		})
	}
	if err == nil {
		err = p.err
	}
	return err
}
