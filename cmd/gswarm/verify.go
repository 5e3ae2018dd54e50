package main

import (
	"fmt"
	"io"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gswarm/gswarm/verify"
)

func (a *app) verifyCommand() *cobra.Command {
	var asJSON bool
	opts := verify.Options{Allow: verify.DefaultAllow}
	cmd := &cobra.Command{
		Use:   "verify [DIR]",
		Short: "Check that a run's data are whole and true",
		Long: `verify compares what a run holds with what it should hold: the rows of every
table on every node in every tile, by the cadence that the samplers wrote down;
gaps, duplicates and losses; nodes and ranks that are missing; nulls without a
reason; bounds and contradictions of clocks; columns, types and units; and the
checksums of every file. It merges first where there is no timeline. Without DIR
it takes the newest run here.

What it finds has a code; docs/verify.md explains them. A finding either makes
the data incomplete or is worth knowing.

Exit status: 0 the data are complete, 3 something is missing or wrong, which is
named, 1 they could not be checked.`,
		Example: `  gswarm verify
  gswarm verify gswarm-12345
  gswarm verify --json gswarm-12345 | jq '.findings[] | select(.incomplete)'
  gswarm verify --allow 0.05 gswarm-12345   # on a node that is overloaded`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.Allow < 0 || opts.Allow > 1 {
				return usageError{fmt.Errorf("--allow %g: must lie between 0 and 1", opts.Allow)}
			}
			dir, err := dirArgument(args)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			bar := newProgress(a.stderr)
			opts.Progress = bar.show
			report, err := verify.Run(ctx, string(dir), opts)
			bar.clear()
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(a.stdout, report)
			} else {
				err = printVerify(a.stdout, report)
			}
			if err != nil {
				return err
			}
			if !report.Complete {
				return incompleteError{fmt.Errorf("the data of %s are incomplete, as listed above", dir)}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	cmd.Flags().Float64Var(&opts.Allow, "allow", opts.Allow, "`SHARE` of a table's rows that a node may lack for late ticks and failed calls")
	return cmd
}

// printVerify writes the report for people.
func printVerify(w io.Writer, r *verify.Report) error {
	p := &printer{w: w}
	state := "complete"
	if !r.Complete {
		state = "INCOMPLETE"
	}
	p.line("%s: %s", r.Dir, state)
	p.line("  nodes     %s", ofText(r.NodesSeen, r.NodesExpected))
	if r.RanksExpected > 0 || r.RanksSeen > 0 {
		p.line("  ranks     %s", ofText(r.RanksSeen, r.RanksExpected))
	}
	p.line("  data      %s rows, %s and %s read and compared with their checksums, %s",
		count(r.Rows), plural(r.Files, "file"), plural(r.Shards, "shard"), bytesText(r.Bytes))
	p.line("  clocks    %s", clocksText(r))
	p.line("")
	if p.err == nil {
		p.err = printCoverage(w, r)
	}
	printFindings(p, "incomplete:", r, true)
	printFindings(p, "worth knowing:", r, false)
	return p.err
}

func ofText(have, want int) string {
	if want == 0 {
		return fmt.Sprint(have)
	}
	return fmt.Sprintf("%d of %d", have, want)
}

func clocksText(r *verify.Report) string {
	worst, unaligned := int64(-1), 0
	for _, n := range r.Nodes {
		if n.BoundMaxNS == nil {
			if n.Clock == "" || n.Clock == "unaligned" {
				unaligned++
			}
			continue
		}
		worst = max(worst, *n.BoundMaxNS)
	}
	var parts []string
	if worst >= 0 {
		parts = append(parts, fmt.Sprintf("bound at most %s", time.Duration(worst).Round(time.Microsecond)))
	}
	if unaligned > 0 {
		parts = append(parts, plural(unaligned, "node")+" unaligned")
	}
	if len(parts) == 0 {
		return "nothing known"
	}
	return strings.Join(parts, ", ")
}

// printCoverage adds up the nodes, table by table.
func printCoverage(w io.Writer, r *verify.Report) error {
	type line struct {
		table                           string
		rows, expected, missing, absent int64
		nodes, tiles, lacking           int
		interval                        time.Duration
	}
	byName := map[string]*line{}
	var lines []*line
	for _, n := range r.Nodes {
		for _, c := range n.Tables {
			l := byName[c.Table]
			if l == nil {
				l = &line{table: c.Table, interval: time.Duration(c.IntervalNS)}
				byName[c.Table] = l
				lines = append(lines, l)
			}
			l.rows += c.Rows
			l.expected += c.Expected
			l.missing += c.Missing
			for _, rows := range c.Absent {
				l.absent += rows
			}
			l.nodes++
			l.tiles += c.Tiles
			l.lacking += len(c.Lacking) + c.LackingMore
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "table\tevery\trows\texpected\tmissing\tabsent\tcovered\tnodes\ttiles whole\t")
	for _, l := range lines {
		if l.expected == 0 {
			fmt.Fprintf(t, "%s\t\t%s\t\t\t\t\t%d\t\t\n", l.table, count(l.rows), l.nodes)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%.2f%%\t%d\t%d of %d\t\n", l.table, l.interval, count(l.rows), count(l.expected),
			count(l.missing), count(l.absent), 100*float64(l.rows)/float64(l.expected), l.nodes, l.tiles-l.lacking, l.tiles)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// printFindings lists the findings that are, or are not, incomplete ones.
func printFindings(p *printer, title string, r *verify.Report, incomplete bool) {
	const most = 40
	n := 0
	for _, f := range r.Findings {
		if f.Incomplete != incomplete {
			continue
		}
		if n == 0 {
			p.line("\n%s", title)
		}
		if n++; n <= most {
			p.line("  %s", findingText(f))
		}
	}
	if n > most {
		p.line("  and %d more; --json lists them", n-most)
	}
	if incomplete && len(r.FindingsMore) > 0 {
		codes := make([]string, 0, len(r.FindingsMore))
		for c, n := range r.FindingsMore {
			codes = append(codes, fmt.Sprintf("%d of %s", n, c))
		}
		sort.Strings(codes)
		p.line("  and not listed: %s", strings.Join(codes, ", "))
	}
}

func findingText(f verify.Finding) string {
	var b strings.Builder
	b.WriteString(string(f.Code))
	if f.Reason != "" {
		b.WriteString(" (" + f.Reason + ")")
	}
	var where []string
	for _, s := range []string{f.Node, f.File, f.Table, f.Column, f.Key} {
		if s != "" {
			where = append(where, s)
		}
	}
	if len(where) > 0 {
		b.WriteString(" " + strings.Join(where, " "))
	}
	b.WriteString(": ")
	if f.Count > 0 {
		fmt.Fprintf(&b, "%s ", count(f.Count))
		if f.Times > 1 {
			fmt.Fprintf(&b, "in %d places ", f.Times)
		}
	}
	if f.BeginNS != 0 {
		fmt.Fprintf(&b, "at %s", time.Unix(0, f.BeginNS).UTC().Format("15:04:05.000"))
		if f.EndNS > f.BeginNS {
			fmt.Fprintf(&b, " to %s", time.Unix(0, f.EndNS).UTC().Format("15:04:05.000"))
		}
		b.WriteString(", ")
	}
	b.WriteString(f.Detail)
	return b.String()
}
