package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/export"
	"github.com/gswarm/gswarm/report"
	"github.com/gswarm/gswarm/rundir"
)

// compareOptions are the flags of compare.
type compareOptions struct {
	json, force bool
	png         string
}

func (a *app) compareCommand() *cobra.Command {
	var o compareOptions
	cmd := &cobra.Command{
		Use:   "compare DIR DIR…",
		Short: "Set runs side by side",
		Long: `compare analyses runs and sets them beside the first: length, step time, activity,
memory, power, energy, balance, stragglers and causes, with the change in percent.
It merges first where there is no timeline.

A change is marked ≈ where it is within the noise: at most twice the standard
error of both values, by the spread over the GPUs, of step times by the spread
over the steps. It is marked ! where it is beyond. A change without a mark has no
such measure: one value a run.

Exit status: 0 done, 3 done on data that lack something, which is named, 1 not
done.`,
		Example: `  gswarm compare gswarm-12345 gswarm-12346
  gswarm compare before after1 after2 --png pictures
  gswarm compare before after --json | jq '.metrics[] | select(.metric == "step_s")'`,
		Args: usageArgs(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return a.compare(ctx, args, o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.json, "json", false, "print the comparison as JSON")
	flags.StringVar(&o.png, "png", "", "draw the comparison into the directory `DIR`")
	flags.BoolVar(&o.force, "force", false, "replace what exists already")
	return cmd
}

func (a *app) compare(ctx context.Context, args []string, o compareOptions) error {
	var runs []*analysis.Result
	var lacking []string
	for _, arg := range args {
		dir, err := rundir.Find(arg)
		if err != nil {
			return err
		}
		_, r, err := a.analyze(ctx, dir, false)
		if err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
		runs = append(runs, r)
		if err := incomplete(arg, r); err != nil {
			lacking = append(lacking, err.Error())
		}
	}
	c := report.Compare(runs)
	said := a.stdout
	if o.json {
		said = a.stderr
	}
	if o.png != "" {
		err := export.Directory(o.png, o.force, func(dir string) error {
			name, err := c.PNG(dir)
			if err == nil {
				fmt.Fprintf(said, "%s/%s\n", o.png, name)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	var err error
	switch {
	case o.json:
		err = c.JSON(a.stdout)
	case o.png == "":
		err = c.Text(a.stdout, a.textOptions(""))
	}
	if err == nil && len(lacking) > 0 {
		err = incompleteError{errors.New(strings.Join(lacking, "; "))}
	}
	return err
}
