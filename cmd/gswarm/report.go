package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/export"
	"github.com/gswarm/gswarm/report"
)

// reportOptions are the flags of report.
type reportOptions struct {
	json, force, partial bool
	html, png            string
}

func (a *app) reportCommand() *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "report [DIR]",
		Short: "Say what a run did, who was slow, and why",
		Long: `report analyses a run and begins with the answer: who was slow, by how much, and
why; or what else cost most. Below it what the GPUs did, how evenly, in which
phases, the causes with what shows them and what to do, and how far the data can
be trusted. It merges first where there is no timeline. Without DIR it takes the
newest run here.

On a terminal the text is as wide as that, up to 100 columns, and coloured unless
NO_COLOR is set; elsewhere it has 80 columns, or as many as COLUMNS says.

--json prints all that was found; docs/report.md describes each field. --html
writes one page that opens without a network: curves to zoom into, a heat map,
each GPU with its host and rank. --png writes pictures into a directory.

Of a run that still goes on, --partial takes what is there.

Exit status: 0 done, 3 done on data that lack something, which is named, 1 the
run could not be analysed or the report not be written.`,
		Example: `  gswarm report
  gswarm report gswarm-12345
  gswarm report --json gswarm-12345 | jq '.stragglers[] | {rank, excess, cause}'
  gswarm report --html report.html --png pictures gswarm-12345
  gswarm report --partial gswarm-12345      # while the job runs`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.json && o.html == "-" {
				return usageError{errors.New("--json and --html - both want standard output; name a file for one")}
			}
			dir, err := dirArgument(args)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			tl, r, err := a.analyze(ctx, dir, o.partial)
			if err != nil {
				return err
			}
			if err := a.report(ctx, tl, r, o); err != nil {
				return err
			}
			return incomplete(string(dir), r)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.json, "json", false, "print the whole result as JSON")
	flags.StringVar(&o.html, "html", "", "write one self-contained page into `FILE`; - is standard output")
	flags.StringVar(&o.png, "png", "", "write pictures into the directory `DIR`")
	flags.BoolVar(&o.force, "force", false, "replace what exists already")
	flags.BoolVar(&o.partial, "partial", false, "take what is there of a run that still goes on")
	return cmd
}

// incomplete says in an error what the exit code stands for.
func incomplete(dir string, r *analysis.Result) error {
	n := len(r.Data.Missing)
	if n == 0 {
		return nil
	}
	more := ""
	if n > 1 {
		more = fmt.Sprintf(" and %d more", n-1)
	}
	return incompleteError{fmt.Errorf("the data of %s are incomplete: %s%s", dir, r.Data.Missing[0], more)}
}

// report writes what is asked for. Files are told of on standard error where
// standard output has the report itself.
func (a *app) report(ctx context.Context, tl *dataset.Timeline, r *analysis.Result, o reportOptions) error {
	var series *report.Series
	if o.html != "" || o.png != "" {
		var err error
		if series, err = report.ReadSeries(ctx, tl, r, report.Buckets(r.Job.GPUs)); err != nil {
			return err
		}
	}
	said := a.stdout
	if o.json || o.html == "-" {
		said = a.stderr
	}
	if o.png != "" {
		err := export.Directory(o.png, o.force, func(dir string) error {
			names, err := report.PNG(dir, r, series)
			for _, name := range names {
				fmt.Fprintf(said, "%s/%s\n", o.png, name)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	switch {
	case o.html == "-":
		return report.HTML(a.stdout, r, series)
	case o.html != "":
		size := &counter{}
		err := export.File(o.html, o.force, func(w io.Writer) error { return report.HTML(io.MultiWriter(w, size), r, series) })
		if err != nil {
			return err
		}
		fmt.Fprintf(said, "%s: %s\n", o.html, bytesText(size.n))
	}
	switch {
	case o.json:
		return report.JSON(a.stdout, r)
	case o.html == "" && o.png == "":
		return report.Text(a.stdout, r, a.textOptions(string(tl.Dir)))
	}
	return nil
}

// counter counts what is written to it.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// textOptions fit text to where standard output goes.
func (a *app) textOptions(dir string) report.TextOptions {
	const piped, most = 80, 100
	o := report.TextOptions{Width: piped, Dir: dir}
	if f, ok := a.stdout.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			if size.Col > 0 {
				o.Width = min(int(size.Col), most)
			}
			o.Colour = getenv(a.env, "NO_COLOR") == "" && getenv(a.env, "TERM") != "dumb"
		}
	}
	if n, err := strconv.Atoi(getenv(a.env, "COLUMNS")); err == nil && n > 0 {
		o.Width = n
	}
	return o
}
