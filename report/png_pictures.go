package report

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/gswarm/gswarm/analysis"
)

func sans(size float64) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Length(size)}
}

const (
	// fewGPUs is up to how many GPUs have a line each; more have a band.
	fewGPUs = 16
	// mostPanels is how many panels a picture has at most.
	mostPanels = 36
)

// litGPUs are the GPUs to be seen at once: the stragglers, at most three.
func litGPUs(r *analysis.Result) []int {
	var lit []int
	for _, g := range r.Stragglers {
		for i := range r.GPUs {
			if len(lit) < len(accents) && keyOf(r.GPUs[i].Place) == keyOf(g.Place) && g.GPU != nil && !slices.Contains(lit, i) {
				lit = append(lit, i)
			}
		}
	}
	return lit
}

// crowdPlot draws one metric of all GPUs over time: a line each where they are
// few, else their mean in the band from the lowest to the highest; stragglers in
// colour. It is nil where nobody has the metric.
func crowdPlot(r *analysis.Result, s *Series, metric int) (*plot.Plot, error) {
	d := gpuDrawn[metric]
	p := timePlot("", d.name+", "+d.unit, r, s.GPUGrid)
	lit := litGPUs(r)
	var all, others []*Curve
	for i, g := range s.GPUs {
		if c := g.Curves[metric]; c != nil && !r.GPUs[i].Spare {
			all = append(all, c)
			if !slices.Contains(lit, i) {
				others = append(others, c)
			}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	if len(all) > fewGPUs {
		if err := addBand(p, r, s.GPUGrid, all); err != nil {
			return nil, err
		}
	} else {
		for _, c := range others {
			if err := addCurve(p, r, s.GPUGrid, c, crowd, 0.8); err != nil {
				return nil, err
			}
		}
	}
	for k, i := range lit {
		if c := s.GPUs[i].Curves[metric]; c != nil {
			if err := addCurve(p, r, s.GPUGrid, c, accents[k], 1.6); err != nil {
				return nil, err
			}
		}
	}
	const whole = 100
	if d.unit == "%" {
		p.Y.Max = whole
	}
	p.Y.Min = 0
	return p, nil
}

// crowdLegend names the lines of crowdPlot.
func crowdLegend(r *analysis.Result, s *Series) []entry {
	lit := litGPUs(r)
	var all []entry
	for k, i := range lit {
		all = append(all, entry{placeText(r.GPUs[i].Place), accents[k]})
	}
	rest := entry{"each GPU", crowd}
	switch {
	case len(s.GPUs)-spares(r) > fewGPUs:
		rest = entry{fmt.Sprintf("mean of %s GPUs; band: lowest to highest", count(int64(len(s.GPUs)-spares(r)))), soft}
	case len(lit) > 0:
		rest.name = "the others"
	}
	rest.name += "; means of " + nanos(s.GPUGrid.BucketNS*int64(perDot(r, s.GPUGrid)))
	return append(all, rest)
}

// addBand draws the mean of many curves, and from the lowest to the highest.
func addBand(p *plot.Plot, r *analysis.Result, g Grid, all []*Curve) error {
	mean := newCurve(g.Buckets)
	for b := range g.Buckets {
		for _, c := range all {
			if c.count[b] > 0 {
				mean.add(b, float64(c.Mean[b]))
			}
		}
	}
	mean.finish()
	var edge, back plotter.XYs
	for b, n := range mean.count {
		if n > 0 {
			x := (float64(g.BeginNS-r.Job.BeginNS) + (float64(b)+0.5)*float64(g.BucketNS)) / 1e9
			edge = append(edge, plotter.XY{X: x, Y: float64(mean.Max[b])})
			back = append(back, plotter.XY{X: x, Y: float64(mean.Min[b])})
		}
	}
	slices.Reverse(back)
	if len(edge) > 1 {
		band, err := plotter.NewPolygon(append(edge, back...))
		if err != nil {
			return err
		}
		band.Color, band.Width = color.NRGBA{crowd.R, crowd.G, crowd.B, 90}, 0
		p.Add(band)
	}
	return addCurve(p, r, g, mean, soft, 1.2)
}

// stacked stacks plots, leaving out those that are nil.
func stacked(title string, legend []entry, width, height float64, plots ...*plot.Plot) *picture {
	p := &picture{title: title, legend: legend, width: width, height: height}
	for _, one := range plots {
		if one != nil {
			p.plots = append(p.plots, []*plot.Plot{one})
		}
	}
	if len(p.plots) == 0 {
		return nil
	}
	return p
}

// drawActivity sets the driver's utilisation beside what the GPU's units did.
func drawActivity(r *analysis.Result, s *Series) (*picture, error) {
	var plots []*plot.Plot
	for _, metric := range []int{curveUtil, curveActive, curvePower} {
		p, err := crowdPlot(r, s, metric)
		if err != nil {
			return nil, err
		}
		if p != nil {
			plots = append(plots, p)
		}
	}
	return stacked(clip(sentence(headline(r).text), 110), crowdLegend(r, s), 24, 4.6, plots...), nil
}

// drawClimate draws temperature, power and clock, each with its mean, deviation
// and range over all GPUs.
func drawClimate(r *analysis.Result, s *Series) (*picture, error) {
	var plots []*plot.Plot
	for _, metric := range []int{curveTemp, curvePower, curveClock} {
		p, err := crowdPlot(r, s, metric)
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		if text := spreadText(r, gpuDrawn[metric]); text != "" {
			p.Title.Text = text
		}
		plots = append(plots, p)
	}
	return stacked(clean(r.Job.Run)+": temperature, power, clock", crowdLegend(r, s), 24, 5, plots...), nil
}

// spreadText sums up a metric over all GPUs: 52.3 °C ± 2.1 °C (range: 48–56 °C).
func spreadText(r *analysis.Result, d drawn) string {
	stats := make([]analysis.Stat, 0, len(r.GPUs))
	for _, g := range r.GPUs {
		st, ok := g.Metrics[d.column]
		if !ok && d.column == "power_now_mw" {
			st, ok = g.Metrics["power_avg_mw"]
		}
		if ok && !g.Spare {
			stats = append(stats, st)
		}
	}
	if len(stats) == 0 {
		return ""
	}
	all := together(stats)
	return fmt.Sprintf("%s: %.1f %s ± %.1f %s (range: %.0f–%.0f %s)", sentence(d.name), all.Mean*d.scale, d.unit, all.SD*d.scale, d.unit, all.Min*d.scale, all.Max*d.scale, d.unit)
}

// together joins the statistics of several GPUs into those of all their
// readings.
func together(stats []analysis.Stat) analysis.Stat {
	all := stats[0]
	sum, squares, n := 0.0, 0.0, 0.0
	for _, s := range stats {
		k := float64(max(s.N, 1))
		sum += k * s.Mean
		squares += k * (s.SD*s.SD + s.Mean*s.Mean)
		n += k
		all.Min, all.Max = min(all.Min, s.Min), max(all.Max, s.Max)
	}
	all.Mean = sum / n
	all.SD = math.Sqrt(max(squares/n-all.Mean*all.Mean, 0))
	all.N = int64(n)
	return all
}

// gridShape is how many rows and columns so many panels have: 1x2, 2x2, 2x3,
// 2x4, and on like that.
func gridShape(n int) (rows, cols int) {
	rows = max(1, int(math.Sqrt(float64(n))))
	return rows, (n + rows - 1) / rows
}

// panel is one place of a grid: the GPUs drawn in it.
type panel struct {
	title string
	gpus  []int
}

// memoryPanels are one for each GPU; where those are too many, one for each
// node, those that use most.
func memoryPanels(r *analysis.Result, s *Series) (panels []panel, note string) {
	mean := func(i int) float64 { return r.GPUs[i].Metrics["mem_used_bytes"].Mean }
	byNode := make(map[string]*panel)
	var nodes []*panel
	for i, g := range s.GPUs {
		if g.Curves[curveMemory] == nil {
			continue
		}
		m := r.GPUs[i].Metrics["mem_used_bytes"]
		title := fmt.Sprintf("%s: %s (±%.1f)", gpuName(g.Place, r.Job.Nodes), megabytes(m.Mean), m.SD/1e6)
		panels = append(panels, panel{title, []int{i}})
		n := byNode[g.Node]
		if n == nil {
			n = &panel{}
			byNode[g.Node] = n
			nodes = append(nodes, n)
		}
		n.gpus = append(n.gpus, i)
	}
	if len(panels) <= mostPanels {
		return panels, ""
	}
	total := func(p *panel) (sum float64) {
		for _, i := range p.gpus {
			sum += mean(i)
		}
		return sum
	}
	if len(nodes) > mostPanels {
		note = fmt.Sprintf("; the %d nodes of %s that use most", mostPanels, count(int64(len(nodes))))
		slices.SortStableFunc(nodes, func(a, b *panel) int { return cmp.Compare(total(b), total(a)) })
		nodes = nodes[:mostPanels]
	}
	panels = nil
	for _, n := range nodes {
		n.title = fmt.Sprintf("%s: %d GPUs, %s", clip(clean(s.GPUs[n.gpus[0]].Node), 24), len(n.gpus), megabytes(total(n)))
		panels = append(panels, *n)
	}
	return panels, note
}

// drawMemory draws a grid of the GPUs' memory over time.
func drawMemory(r *analysis.Result, s *Series) (*picture, error) {
	panels, note := memoryPanels(r, s)
	if len(panels) == 0 {
		return nil, nil
	}
	most := 0.0
	for _, p := range panels {
		for _, i := range p.gpus {
			for b, v := range s.GPUs[i].Curves[curveMemory].Max {
				if s.GPUs[i].Curves[curveMemory].count[b] > 0 {
					most = max(most, float64(v))
				}
			}
		}
	}
	rows, cols := gridShape(len(panels))
	pic := &picture{title: clean(r.Job.Run) + ": memory of each GPU" + note, width: min(8.5, 42/float64(cols)), height: min(5.5, 32/float64(rows))}
	for row := range rows {
		line := make([]*plot.Plot, cols)
		for col := range cols {
			at := row*cols + col
			if at >= len(panels) {
				break
			}
			label := ""
			if col == 0 {
				label = "memory used, GB"
			}
			p := timePlot(panels[at].title, label, r, s.GPUGrid)
			for _, i := range panels[at].gpus {
				if err := addCurve(p, r, s.GPUGrid, s.GPUs[i].Curves[curveMemory], accents[1], 1.2); err != nil {
					return nil, err
				}
			}
			p.Y.Min, p.Y.Max = 0, max(most*1.08, 1e-3)
			line[col] = p
		}
		pic.plots = append(pic.plots, line)
	}
	return pic, nil
}

// classColors are those of the classes of balance, Excellent first.
var classColors = []color.NRGBA{{0x1b, 0x6e, 0x3c, 255}, {0x0b, 0x62, 0xa8, 255}, {0xb5, 0x7d, 0x00, 255}, {0xb3, 0x26, 0x1e, 255}}

// classes are where each class begins, in percent.
var classes = []struct {
	class analysis.Class
	from  float64
}{{analysis.Excellent, 0}, {analysis.Good, 5}, {analysis.Fair, 10}, {analysis.Poor, 20}}

// drawBalance draws how the memory lies over the GPUs, and beside it how even
// each metric is and in which class.
func drawBalance(r *analysis.Result, _ *Series) (*picture, error) {
	left, err := spreadPlot(r)
	if err != nil || left == nil {
		return nil, err
	}
	right, err := classPlot(r.Balance)
	if err != nil || right == nil {
		return nil, err
	}
	return &picture{title: clean(r.Job.Run) + ": load balance", width: 13, height: 8.5, plots: [][]*plot.Plot{{left, right}}}, nil
}

// spreadPlot is a bar for each GPU with its deviation over time; of many GPUs it
// is their distribution.
func spreadPlot(r *analysis.Result) (*plot.Plot, error) {
	const fewBars = 32
	var values plotter.Values
	var names []string
	var errs plotter.YErrors
	for _, g := range r.GPUs {
		m, ok := g.Metrics["mem_used_bytes"]
		if !ok || g.Spare {
			continue
		}
		values = append(values, m.Mean/1e9)
		names = append(names, strings.TrimPrefix(gpuName(g.Place, r.Job.Nodes), "GPU "))
		errs = append(errs, struct{ Low, High float64 }{m.SD / 1e9, m.SD / 1e9})
	}
	if len(values) == 0 {
		return nil, nil
	}
	if len(values) > fewBars {
		p := newPlot("Distribution of memory over GPUs", "GPUs")
		p.X.Label.Text = "memory used, GB"
		h, err := plotter.NewHist(values, 24)
		if err != nil {
			return nil, err
		}
		h.FillColor, h.Color = crowd, color.White
		p.Add(h)
		return p, nil
	}
	p := newPlot("Memory of each GPU, ± over time", "memory used, GB")
	p.X.Label.Text = "GPU"
	bars, err := plotter.NewBarChart(values, vg.Length(math.Max(4, math.Min(22, 200/float64(len(values))))))
	if err != nil {
		return nil, err
	}
	bars.Color, bars.LineStyle.Width = crowd, 0
	points := make(plotter.XYs, len(values))
	for i, v := range values {
		points[i] = plotter.XY{X: float64(i), Y: v}
	}
	whiskers, err := plotter.NewYErrorBars(struct {
		plotter.XYer
		plotter.YErrorer
	}{points, errs})
	if err != nil {
		return nil, err
	}
	whiskers.Color = ink
	p.Add(bars, whiskers)
	p.NominalX(names...)
	p.Y.Min = 0
	return p, nil
}

// classPlot is a bar for each metric: its coefficient of variation, coloured and
// named by class, before the borders of the classes.
func classPlot(all []analysis.Balance) (*plot.Plot, error) {
	p := newPlot("Balance: CV over GPUs", "")
	p.X.Label.Text = "CV, %"
	var names []string
	most := 24.0
	var labels plotter.XYLabels
	var shown []analysis.Balance
	for _, b := range all {
		if b.Spatial != nil {
			shown = append(shown, b)
		}
	}
	if len(shown) == 0 {
		return nil, nil
	}
	slices.Reverse(shown) // the first goes to the top
	for i, b := range shown {
		cv := 100 * *b.Spatial
		most = max(most, cv*1.35)
		at := slices.IndexFunc(classes, func(c struct {
			class analysis.Class
			from  float64
		}) bool {
			return c.class == b.Class
		})
		bar, err := plotter.NewBarChart(plotter.Values{cv}, 9)
		if err != nil {
			return nil, err
		}
		bar.Horizontal, bar.XMin, bar.LineStyle.Width = true, float64(i), 0
		bar.Color = crowd
		if at >= 0 {
			bar.Color = classColors[at]
		}
		p.Add(bar)
		names = append(names, strings.Trim(metricOf(b.Metric).name, "“”"))
		labels.XYs = append(labels.XYs, plotter.XY{X: cv, Y: float64(i)})
		labels.Labels = append(labels.Labels, fmt.Sprintf("%.1f%%", cv))
	}
	top := float64(len(shown)) - 0.35
	for i, c := range classes {
		to := most
		if i+1 < len(classes) {
			to = classes[i+1].from
		}
		if c.from > 0 {
			border, err := plotter.NewLine(plotter.XYs{{X: c.from, Y: -0.6}, {X: c.from, Y: top}})
			if err != nil {
				return nil, err
			}
			border.Color, border.Width, border.Dashes = soft, 0.6, []vg.Length{2, 2}
			p.Add(border)
		}
		name := plotter.XYLabels{XYs: plotter.XYs{{X: (c.from + min(to, most)) / 2, Y: top}}, Labels: []string{className(c.class)}}
		if err := addLabels(p, name, 8, classColors[i]); err != nil {
			return nil, err
		}
	}
	if err := addLabels(p, labels, 9, ink); err != nil {
		return nil, err
	}
	p.NominalY(names...)
	p.X.Min, p.X.Max = 0, most
	return p, nil
}

// addLabels writes words into a plot: beside their points where they are values,
// centred above them where they are names.
func addLabels(p *plot.Plot, labels plotter.XYLabels, size float64, c color.Color) error {
	text, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	for i := range text.TextStyle {
		text.TextStyle[i].Font, text.TextStyle[i].Color, text.TextStyle[i].YAlign = sans(size), c, draw.YCenter
		text.TextStyle[i].XAlign = draw.XCenter
		if c == ink {
			text.TextStyle[i].XAlign = draw.XLeft
			text.Offset.X = 1.5 * vg.Millimeter
		}
	}
	p.Add(text)
	return nil
}
