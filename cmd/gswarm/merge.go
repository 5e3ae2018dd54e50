package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/merge"
)

func (a *app) mergeCommand() *cobra.Command {
	var partial, asJSON bool
	cmd := &cobra.Command{
		Use:   "merge [DIR]",
		Short: "Put a run on one timeline",
		Long: `merge reads the shards and spools of a run, corrects every time stamp to the
reference clock and writes DIR/timeline: one directory of Parquet files for each
table. Without DIR it takes the newest run here. It can be run again at any time
and gives the same bytes for the same input.

A run that still goes on is refused; --partial takes what is there.

Exit status: 0 the timeline is whole, 3 it was written and lacks something,
which is named, 1 it was not written.`,
		Example: `  gswarm merge
  gswarm merge gswarm-12345
  gswarm merge --partial gswarm-12345     # while the job runs`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := dirArgument(args)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			bar := newProgress(a.stderr)
			begin := time.Now()
			sum, err := merge.Run(ctx, string(dir), merge.Options{Partial: partial, Progress: bar.show})
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
		},
	}
	cmd.Flags().BoolVar(&partial, "partial", false, "take what is there of a run that still goes on")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the summary as JSON")
	return cmd
}

// printMerge says what the merge made.
func printMerge(w io.Writer, sum merge.Summary, took time.Duration) error {
	p := &printer{w: w}
	rows, tables := int64(0), 0
	for _, n := range sum.Rows {
		rows += n
		if n > 0 {
			tables++
		}
	}
	p.line("%s: %s rows in %d tables, %s, from %s, in %s",
		sum.Dir, count(rows), tables, bytesText(sum.Bytes), plural(len(sum.Nodes), "node"), took.Round(10*time.Millisecond))
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
	done := float64(m.Rows) / float64(m.Total)
	rate := float64(m.Rows) / time.Since(p.begin).Seconds()
	const width = 30
	bar := make([]byte, width)
	for i := range bar {
		bar[i] = ' '
		if float64(i) < done*width {
			bar[i] = '='
		}
	}
	fmt.Fprintf(p.w, "\r\033[K[%s] %3.0f%%  %s rows/s  %s", bar, 100*done, count(int64(rate)), m.Table)
}

func (p *progress) clear() {
	if p.on {
		fmt.Fprint(p.w, "\r\033[K")
	}
}
