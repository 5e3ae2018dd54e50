package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/gswarm/gswarm/export"
	"github.com/gswarm/gswarm/table"
)

func exportArrow(ctx context.Context, src *export.Source, o exportOptions, to target, p *printer) error {
	if o.table != "" {
		_, err := src.Arrow(ctx, to.w, table.ByName(o.table))
		return err
	}
	rows, err := src.ArrowFiles(ctx, to.dir)
	for _, t := range tableNames() {
		if n, ok := rows[t]; ok {
			p.line("%s/%s%s: %s rows", o.name(), t, export.ArrowSuffix, count(n))
		}
	}
	return err
}

func exportCSV(ctx context.Context, src *export.Source, o exportOptions, to target, p *printer) error {
	if o.table != "" {
		rows, err := src.TableCSV(ctx, to.w, table.ByName(o.table))
		if err == nil {
			p.line("%s: %s rows", o.name(), count(rows))
		}
		return err
	}
	lines, gpus, err := src.CSV(ctx, to.w, o.every)
	if err != nil {
		return err
	}
	rule := strings.Repeat("=", 70)
	p.line("%s\nTEMPERATURE, POWER AND CLOCK\n%s", rule, rule)
	for _, g := range gpus {
		p.line("\n%s GPU %d:", g.GPU.Node, g.GPU.Index)
		for _, s := range []struct {
			name, unit string
			decimals   int
			export.Spread
		}{{"Temperature:", "°C", 1, g.Temperature}, {"Power:", "W", 1, g.Power}, {"Clock:", " MHz", 0, g.Clock}} {
			if s.N == 0 {
				p.line("  %-12s not read", s.name)
				continue
			}
			p.line("  %-12s %.*f%s ± %.*f%s (range: %s-%s%s)", s.name, s.decimals, s.Mean, s.unit, s.decimals, s.SD(), s.unit,
				trimmed(s.Min, s.decimals), trimmed(s.Max, s.decimals), s.unit)
		}
	}
	p.line("%s\n\n%s: %s samples of %s", rule, o.name(), count(lines), plural(len(gpus), "GPU"))
	return nil
}

// trimmed writes a number without decimals that are zero.
func trimmed(v float64, decimals int) string {
	s := fmt.Sprintf("%.*f", decimals, v)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func exportGPUTop(ctx context.Context, src *export.Source, o exportOptions, to target, p *printer) error {
	sum, err := src.GPUTop(ctx, to.dir, o.every)
	return told(sum, err, o, p)
}

func exportJSON(ctx context.Context, src *export.Source, o exportOptions, to target, p *printer) error {
	sum, err := src.JSON(ctx, to.w, o.every)
	return told(sum, err, o, p)
}

func exportTFEvents(ctx context.Context, src *export.Source, o exportOptions, to target, p *printer) error {
	sum, err := src.TFEvents(ctx, to.dir, o.every)
	return told(sum, err, o, p)
}

// told says how many frames were written.
func told(sum export.FramesSummary, err error, o exportOptions, p *printer) error {
	if err != nil {
		return err
	}
	p.line("%s: %s frames of %s, %s", o.name(), count(int64(sum.Frames)), o.every, plural(sum.GPUs, "GPU"))
	for _, n := range sum.Notes {
		p.line("%s", n)
	}
	return nil
}

func exportPerfetto(ctx context.Context, src *export.Source, o exportOptions, to target, p *printer) error {
	sum, err := src.Perfetto(ctx, to.w, export.PerfettoOptions{Points: o.points, Slices: o.slices})
	if err != nil {
		return err
	}
	p.line("%s: %s tracks, %s values, %s slices, %s instants", o.name(), count(sum.Tracks), count(sum.Points), count(sum.Slices), count(sum.Instants))
	if sum.Bucket > 0 {
		p.line("thinned: of every %s the least and the greatest value of each series", sum.Bucket)
	}
	return nil
}
