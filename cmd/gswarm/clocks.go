package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/merge"
)

func (a *app) clocksCommand() *cobra.Command {
	var asJSON bool
	var png string
	cmd := &cobra.Command{
		Use:   "clocks [DIR]",
		Short: "Say how the nodes' clocks were tied together, and how well",
		Long: `clocks fits the clocks of a run from its shards and prints for each node how it
was tied to the reference clock, its offset, how fast it drifts and in which class
(below 1 ppm excellent, to 10 good, beyond investigate), and within which bound
its time stamps are right. Contradictions and steps of clocks follow. Without DIR
it takes the newest run here; the timeline is neither needed nor changed.

With --png it draws how each node's clock strayed from a steady rate, and the
bound, over the time of the run.

Exit status: 0 all nodes are tied and nothing contradicts itself, 3 otherwise,
and it is said, 1 nothing could be read.`,
		Example: `  gswarm clocks
  gswarm clocks gswarm-12345 --json
  gswarm clocks --png clocks.png`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := dirArgument(args)
			if err != nil {
				return err
			}
			c, err := merge.FitClocks(cmd.Context(), string(dir))
			if err != nil {
				return err
			}
			if png != "" {
				if err := drawClocks(c, png); err != nil {
					return err
				}
			}
			if asJSON {
				err = writeJSON(a.stdout, c)
			} else {
				err = printClocks(a.stdout, c)
			}
			if err != nil {
				return err
			}
			return clocksVerdict(c)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all of it as JSON")
	cmd.Flags().StringVar(&png, "png", "", "draw offsets and bounds into `FILE`")
	return cmd
}

// clocksVerdict says in an error what the exit code stands for.
func clocksVerdict(c *merge.Clocks) error {
	var apart, suspect []string
	for _, n := range c.Nodes {
		switch {
		case n.Method == clock.Unaligned:
			apart = append(apart, n.Node)
		case n.Suspect:
			suspect = append(suspect, n.Node)
		}
	}
	var said []string
	if len(apart) > 0 {
		said = append(said, "not tied to the reference: "+some(apart))
	}
	if len(suspect) > 0 {
		said = append(said, "contradict themselves: "+some(suspect))
	}
	if len(said) == 0 {
		return nil
	}
	return incompleteError{errors.New("clocks " + strings.Join(said, "; "))}
}

// some lists a few of many names.
func some(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func printClocks(w io.Writer, c *merge.Clocks) error {
	p := &printer{w: w}
	chosen := ""
	if c.Reference.Chosen {
		chosen = ", chosen here: the run named none"
	}
	anchor := time.Unix(0, c.Reference.Anchor.Realtime).UTC().Format("2006-01-02 15:04:05 UTC")
	p.line("reference: %s, its wall clock at %s read within %s%s", orNone(c.Reference.Node), anchor, nanos(c.Reference.Anchor.Width), chosen)
	width := len("node")
	for _, n := range c.Nodes {
		width = max(width, len(n.Node))
	}
	p.line("%-*s  %-9s  %17s  %20s  %-11s  %23s  %9s  %s", width, "node", "method", "offset", "drift", "class", "bound (half-width)", "exchanges", "via")
	for _, n := range c.Nodes {
		p.line("%-*s  %-9s  %17s  %20s  %-11s  %23s  %9s  %s", width, n.Node, n.Method,
			offsetText(n), driftText(n), n.Class, boundText(n), count(int64(n.ExchangesUsed)), viaText(n))
	}
	said := false
	say := func(format string, args ...any) {
		if !said {
			p.line("")
			said = true
		}
		p.line(format, args...)
	}
	for _, n := range c.Nodes {
		if n.Method == clock.Unaligned {
			say("%s is unaligned: its rows are laid by %s, and nothing is claimed of their error", n.Node, n.Fallback)
		}
		if n.ExchangesDropped > 0 {
			say("%s: %d exchanges whose stamps cannot belong together were left out", n.Node, n.ExchangesDropped)
		}
		for _, k := range n.Contradictions {
			say("contradiction: %s", k)
		}
		for _, s := range n.Steps {
			say("step: %s: %s between raw %d and %d", n.Node, stepText(s), s.Since, s.At)
		}
	}
	for _, k := range c.Loops {
		say("contradiction: %s", k)
	}
	return p.err
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func stepText(s clock.Step) string {
	switch s.Clock {
	case clock.StepRealtime:
		return "the wall clock was set by " + nanos(s.ByNS)
	case clock.StepSuspend:
		return "the node slept for " + nanos(s.ByNS)
	case clock.StepMonotonic:
		return "the monotonic clock left the raw clock by " + nanos(s.ByNS)
	case clock.StepClocksource:
		return "the kernel changed its clocksource"
	}
	return s.Clock
}

func offsetText(n clock.Summary) string {
	if n.OffsetNS == nil {
		return "-"
	}
	return fmt.Sprintf("%+.6f s", float64(*n.OffsetNS)/1e9)
}

func driftText(n clock.Summary) string {
	if n.DriftPPM == nil {
		return "-"
	}
	return fmt.Sprintf("%+.3f ± %.3f ppm", *n.DriftPPM, *n.DriftBoundPPM)
}

func boundText(n clock.Summary) string {
	if n.BoundNS == nil {
		return "-"
	}
	return fmt.Sprintf("%s, at most %s", nanos(n.BoundNS.Median), nanos(n.BoundNS.Max))
}

func viaText(n clock.Summary) string {
	if n.Suspect {
		return strings.Join(append(n.Via, "(suspect)"), " ")
	}
	return strings.Join(n.Via, " ")
}

// nanos writes nanoseconds with three digits.
func nanos(ns int64) string {
	v, unit := float64(ns), "ns"
	for _, u := range []string{"us", "ms", "s"} {
		if math.Abs(v) < 999.5 {
			break
		}
		v, unit = v/1000, u
	}
	if unit == "ns" {
		return fmt.Sprintf("%d ns", ns)
	}
	if math.Abs(v) >= 999.5 {
		return fmt.Sprintf("%.0f %s", v, unit)
	}
	return fmt.Sprintf("%.3g %s", v, unit)
}
