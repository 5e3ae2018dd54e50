package report

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// PNG draws the runs side by side into a directory and returns the name of the
// file: memory, step time, energy of a step, activity, each where it is known.
func (c *Comparison) PNG(dir string) (string, error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("drawing %s: %w", PictureComparison, err)
	}
	var plots []*plot.Plot
	for _, panel := range []struct {
		metric, label string
		scale         float64
	}{
		{"mem_used_bytes", "memory of a GPU, GB", 1e-9}, {"step_s", "step time, s", 1}, {"energy_per_step_j", "energy of a step, kJ", 1e-3},
		{"energy_j", "energy, kJ", 1e-3}, {"sm_active_pct", "SM active, %", 1}, {"length_s", "length, s", 1},
	} {
		for _, row := range c.Rows {
			const most = 4
			if row.Metric != panel.metric || len(plots) == most {
				continue
			}
			p, err := c.bars(row, panel.label, panel.scale)
			if err != nil {
				return fail(err)
			}
			plots = append(plots, p)
		}
	}
	rows, cols := gridShape(len(plots))
	pic := &picture{title: "Runs side by side", width: 12, height: 7}
	for i := range c.Runs {
		const most = 6
		if i == most {
			pic.legend = append(pic.legend, entry{"…", color.White})
			break
		}
		pic.legend = append(pic.legend, entry{clip(c.Runs[i].Name+" "+clean(c.Runs[i].Run), 28), runColor(i)})
	}
	for row := range rows {
		line := make([]*plot.Plot, cols)
		copy(line, plots[row*cols:min((row+1)*cols, len(plots))])
		pic.plots = append(pic.plots, line)
	}
	if err := pic.write(filepath.Join(dir, PictureComparison)); err != nil {
		return fail(err)
	}
	return PictureComparison, nil
}

// runColor is grey for the run that the others are held against.
func runColor(i int) color.Color {
	if i == 0 {
		return crowd
	}
	return accents[(i-1)%len(accents)]
}

// bars is a bar for each run, with its noise, and the change above it.
func (c *Comparison) bars(row ComparedRow, label string, scale float64) (*plot.Plot, error) {
	p := newPlot(row.name, label)
	names := make([]string, len(c.Runs))
	var points plotter.XYs
	var errs plotter.YErrors
	var labels plotter.XYLabels
	most := 0.0
	for i, v := range row.Values {
		names[i] = c.Runs[i].Name
		if v == nil {
			continue
		}
		y := *v * scale
		most = max(most, y)
		bar, err := plotter.NewBarChart(plotter.Values{y}, vg.Length(math.Max(5, math.Min(46, 220/float64(len(c.Runs))))))
		if err != nil {
			return nil, err
		}
		bar.XMin, bar.Color, bar.LineStyle.Width = float64(i), runColor(i), 0
		p.Add(bar)
		noise := 0.0
		if row.Noise[i] != nil {
			noise = sure * *row.Noise[i] * scale
		}
		if noise > 0 {
			points, errs = append(points, plotter.XY{X: float64(i), Y: y}), append(errs, struct{ Low, High float64 }{noise, noise})
		}
		text := row.valueText(i)
		if change := row.Change[i]; change != nil {
			text += ", " + signed(*change)
		}
		labels.XYs, labels.Labels = append(labels.XYs, plotter.XY{X: float64(i), Y: y + noise}), append(labels.Labels, text)
	}
	if len(points) > 0 {
		whiskers, err := plotter.NewYErrorBars(struct {
			plotter.XYer
			plotter.YErrorer
		}{points, errs})
		if err != nil {
			return nil, err
		}
		whiskers.Color = ink
		p.Add(whiskers)
	}
	for i := range labels.XYs {
		labels.XYs[i].Y += most * 0.05
	}
	if err := addLabels(p, labels, 8, soft); err != nil {
		return nil, err
	}
	p.NominalX(names...)
	p.Y.Min, p.Y.Max = 0, most*1.18
	p.X.Min, p.X.Max = -0.6, float64(len(c.Runs))-0.4
	return p, nil
}
