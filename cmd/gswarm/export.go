package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gswarm/gswarm/export"
	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

func (a *app) exportCommand() *cobra.Command {
	var to, out, name string
	var raw bool
	cmd := &cobra.Command{
		Use:   "export [DIR] --to FORMAT -o FILE|DIR",
		Short: "Turn a run into another tool's format",
		Long: `export writes a run in a format that other tools read. It merges first where
there is no timeline. Without DIR it takes the newest run here.

--to arrow writes plain Arrow IPC streams, which every Arrow reader opens: one
file for each table, TABLE.arrows, into the directory that -o names; or with
--table that table alone into a file, or to standard output where -o is "-".

--raw takes the rows as the nodes recorded them, each on its own raw clock,
instead of the timeline: of any run, sealed or not, merged or not, also of one
that still goes on.

Exit status: 0 all was exported, 3 it was, and the data lack something, which is
named, 1 it was not.`,
		Example: `  gswarm export --to arrow -o streams
  gswarm export gswarm-12345 --to arrow --table gpu -o gpu.arrows
  gswarm export --raw --to arrow --table host -o - | python -c \
    'import pyarrow as pa, sys; print(pa.ipc.open_stream(sys.stdin.buffer).read_all())'`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case to != "arrow":
				return usageError{fmt.Errorf("--to %q: the formats are arrow", to)}
			case out == "":
				return usageError{errors.New("-o is missing: where to export to")}
			case out == "-" && name == "":
				return usageError{errors.New("-o -: standard output takes one table; name it with --table")}
			case name != "" && table.ByName(name) == nil:
				return usageError{fmt.Errorf("--table %q: the tables are %s", name, strings.Join(tableNames(), ", "))}
			}
			dir, err := dirArgument(args)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			src, err := a.exportSource(ctx, dir, raw)
			if err != nil {
				return err
			}
			if err := a.exportArrow(ctx, src, out, name); err != nil {
				return err
			}
			if len(src.Losses) > 0 {
				return incompleteError{fmt.Errorf("%s was exported to %s and lacks something: %s", dir, out, strings.Join(src.Losses, "; "))}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`FORMAT` to export to: arrow")
	cmd.Flags().StringVarP(&out, "output", "o", "", "`FILE|DIR` to write; - is standard output")
	cmd.Flags().StringVar(&name, "table", "", "export this `TABLE` only")
	cmd.Flags().BoolVar(&raw, "raw", false, "export rows as they were recorded instead of the timeline")
	return cmd
}

func tableNames() []string {
	var names []string
	for _, t := range table.All() {
		names = append(names, t.Name)
	}
	return names
}

func (a *app) exportSource(ctx context.Context, dir rundir.Dir, raw bool) (*export.Source, error) {
	if raw {
		return export.Recorded(dir), nil
	}
	src, err := export.Timeline(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return src, err
	}
	bar := newProgress(a.stderr)
	_, err = merge.Run(ctx, string(dir), merge.Options{Progress: bar.show})
	bar.clear()
	var running *merge.RunningError
	if errors.As(err, &running) {
		return nil, fmt.Errorf("%w; or export what was recorded so far with --raw", err)
	}
	if err != nil {
		return nil, err
	}
	return export.Timeline(dir)
}

// exportArrow writes one table to a file, or all into a directory.
func (a *app) exportArrow(ctx context.Context, src *export.Source, out, name string) error {
	if name == "" {
		rows, err := src.ArrowFiles(ctx, out)
		if err != nil {
			return err
		}
		names := make([]string, 0, len(rows))
		for t := range rows {
			names = append(names, t)
		}
		sort.Strings(names)
		p := &printer{w: a.stdout}
		for _, t := range names {
			p.line("%s/%s%s: %s rows", strings.TrimSuffix(out, "/"), t, export.ArrowSuffix, count(rows[t]))
		}
		return p.err
	}
	if out == "-" {
		_, err := src.Arrow(ctx, a.stdout, table.ByName(name))
		return err
	}
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, rundir.FileMode)
	if err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	_, err = src.Arrow(ctx, f, table.ByName(name))
	if cerr := f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("exporting: %w", cerr)
	}
	return err
}
