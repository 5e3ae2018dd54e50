package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/gswarm/gswarm/analysis"
)

// The pictures' names.
const (
	PictureActivity   = "gpu_activity.png"
	PictureMemory     = "per_gpu_memory_breakdown.png"
	PictureBalance    = "gpu_load_balance_analysis.png"
	PictureClimate    = "gpu_temperature_power_clock.png"
	PictureComparison = "gpu_memory_comparison.png"
)

// PNG draws a run into a directory and returns the names of the files: what the
// GPUs did, each GPU's memory, how even the load was, and temperature, power and
// clock. A picture of which nothing was measured is left out.
func PNG(dir string, r *analysis.Result, s *Series) ([]string, error) {
	var names []string
	for _, picture := range []struct {
		name string
		draw func(*analysis.Result, *Series) (*picture, error)
	}{
		{PictureActivity, drawActivity}, {PictureMemory, drawMemory}, {PictureBalance, drawBalance}, {PictureClimate, drawClimate},
	} {
		p, err := picture.draw(r, s)
		if err == nil && p != nil {
			err = p.write(filepath.Join(dir, picture.name))
			names = append(names, picture.name)
		}
		if err != nil {
			return names, fmt.Errorf("drawing %s: %w", picture.name, err)
		}
	}
	return names, nil
}

// picture is a grid of plots under a title and a legend.
type picture struct {
	title  string
	legend []entry
	plots  [][]*plot.Plot
	// width and height are a panel's, in centimetres.
	width, height float64
}

// entry names a colour.
type entry struct {
	name  string
	color color.Color
}

// write draws the picture at 150 dots an inch.
func (p *picture) write(path string) error {
	const (
		cm    = vg.Centimeter
		inner = 0.35
		row   = 0.55 // of the legend
		dpi   = 150
	)
	head := 1.0 // room for title and legend, in cm
	if len(p.legend) > 0 {
		head += row
	}
	rows, cols := len(p.plots), len(p.plots[0])
	w, h := vg.Length(p.width*float64(cols))*cm, vg.Length(p.height*float64(rows)+head)*cm
	img := vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(color.White))
	canvas := draw.New(img)
	title := draw.TextStyle{Color: ink, Font: sans(13), XAlign: draw.XLeft, YAlign: draw.YTop, Handler: plot.DefaultTextHandler}
	canvas.FillText(title, vg.Point{X: inner * cm, Y: h - inner*cm}, p.title)
	x, y := vg.Length(inner*cm), h-vg.Length(head-row/4)*cm
	words := draw.TextStyle{Color: soft, Font: sans(9), XAlign: draw.XLeft, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
	for _, e := range p.legend {
		canvas.StrokeLine2(draw.LineStyle{Color: e.color, Width: 2}, x, y, x+0.5*cm, y)
		canvas.FillText(words, vg.Point{X: x + 0.65*cm, Y: y}, e.name)
		x += 1.2*cm + words.Width(e.name)
	}
	below := draw.Crop(canvas, 0, 0, 0, -vg.Length(head)*cm)
	tiles := draw.Tiles{Rows: rows, Cols: cols, PadX: 5 * vg.Millimeter, PadY: 5 * vg.Millimeter, PadTop: inner * cm, PadBottom: inner * cm, PadLeft: inner * cm, PadRight: 2 * inner * cm}
	for i, row := range plot.Align(filled(p.plots), tiles, below) {
		for k, c := range row {
			if p.plots[i][k] != nil {
				p.plots[i][k].Draw(c)
			}
		}
	}
	var b bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

// filled puts empty plots where a grid has a hole: aligning needs one in each.
func filled(plots [][]*plot.Plot) [][]*plot.Plot {
	out := make([][]*plot.Plot, len(plots))
	for i, row := range plots {
		out[i] = make([]*plot.Plot, len(row))
		for k, p := range row {
			if p == nil {
				p = plot.New()
			}
			out[i][k] = p
		}
	}
	return out
}

// The colours: dark grey for words, three that the colour-blind tell apart.
var (
	ink     = color.NRGBA{0x1b, 0x21, 0x27, 255}
	soft    = color.NRGBA{0x5a, 0x66, 0x72, 255}
	lines   = color.NRGBA{0xe2, 0xe5, 0xe8, 255}
	crowd   = color.NRGBA{0x8a, 0x9d, 0xb0, 255}
	accents = []color.NRGBA{{0xc2, 0x57, 0x0c, 255}, {0x0b, 0x62, 0xa8, 255}, {0x1b, 0x6e, 0x3c, 255}}
)

func newPlot(title, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font, p.Title.TextStyle.Color = sans(10), ink
	p.Title.Padding = 1.5 * vg.Millimeter
	p.Y.Label.Text = y
	p.Y.Tick.Marker = roundTicks{}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font, a.Label.TextStyle.Color = sans(9), soft
		a.Tick.Label.Font, a.Tick.Label.Color = sans(8.5), soft
		a.Color, a.Tick.Color = lines, lines
		a.Tick.Length = 1 * vg.Millimeter
	}
	p.Y.Width = 0
	grid := plotter.NewGrid()
	grid.Vertical.Width, grid.Horizontal.Color = 0, lines
	p.Add(grid)
	return p
}

// roundTicks are four or five, at 1, 2 or 5 times a power of ten.
type roundTicks struct{}

func (roundTicks) Ticks(low, high float64) []plot.Tick {
	const most = 5
	step := math.Pow(10, math.Floor(math.Log10(max(high-low, 1e-9))))
	for _, s := range []float64{step / 5, step / 2, step, 2 * step} {
		if (high-low)/s <= most {
			step = s
			break
		}
	}
	var ticks []plot.Tick
	for i := math.Ceil(low/step - 1e-9); i*step <= high+1e-9*step; i++ {
		// Adding 0 makes 0 of -0.
		ticks = append(ticks, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step+0, 'g', 6, 64)})
	}
	return ticks
}

// timeTicks label seconds as m:ss.
type timeTicks struct{}

func (timeTicks) Ticks(low, high float64) []plot.Tick {
	steps := []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400}
	const most = 7
	step := steps[len(steps)-1]
	for _, s := range steps {
		if (high-low)/s <= most {
			step = s
			break
		}
	}
	for (high-low)/step > 2*most {
		step *= 2
	}
	var ticks []plot.Tick
	for t := math.Ceil(low/step) * step; t <= high; t += step {
		ticks = append(ticks, plot.Tick{Value: t, Label: since(0, int64(t*1e9))})
	}
	return ticks
}

// timePlot is a plot over the time of the run.
func timePlot(title, y string, r *analysis.Result, g Grid) *plot.Plot {
	p := newPlot(title, y)
	p.X.Tick.Marker = timeTicks{}
	p.X.Min = float64(g.BeginNS-r.Job.BeginNS) / 1e9
	p.X.Max = p.X.Min + float64(g.Buckets)*float64(g.BucketNS)/1e9
	p.Y.Min = 0
	return p
}

// pictureDots is how many means a curve has across a picture.
const pictureDots = 220

// perDot is how many buckets make a dot: so many that a dot covers two of the
// job's steps, where those are known, or their ups and downs blacken the
// picture; but never so many that fewer than 40 dots are left.
func perDot(r *analysis.Result, g Grid) int {
	const fewest, steps = 40, 2
	dot := max(1, (g.Buckets+pictureDots-1)/pictureDots)
	if s := r.Steps.P95NS; s != nil {
		dot = max(dot, min(int(steps**s/g.BucketNS), g.Buckets/fewest))
	}
	return dot
}

// curveLines are the pieces of a curve between gaps, as means.
func curveLines(r *analysis.Result, g Grid, c *Curve) []plotter.XYs {
	var pieces []plotter.XYs
	var now plotter.XYs
	group := perDot(r, g)
	for from := 0; from < len(c.Mean); from += group {
		to := min(from+group, len(c.Mean))
		sum, n := 0.0, 0.0
		for i := from; i < to; i++ {
			if c.count[i] > 0 {
				sum += float64(c.Mean[i]) * float64(c.count[i])
				n += float64(c.count[i])
			}
		}
		if n == 0 {
			if len(now) > 0 {
				pieces = append(pieces, now)
				now = nil
			}
			continue
		}
		x := (float64(g.BeginNS-r.Job.BeginNS) + float64(from+to)/2*float64(g.BucketNS)) / 1e9
		now = append(now, plotter.XY{X: x, Y: sum / n})
	}
	if len(now) > 0 {
		pieces = append(pieces, now)
	}
	return pieces
}

// addCurve draws a curve.
func addCurve(p *plot.Plot, r *analysis.Result, g Grid, curve *Curve, c color.Color, width vg.Length) error {
	for _, xys := range curveLines(r, g, curve) {
		if len(xys) == 1 {
			xys = append(xys, plotter.XY{X: xys[0].X + float64(g.BucketNS)/1e9, Y: xys[0].Y})
		}
		line, err := plotter.NewLine(xys)
		if err != nil {
			return err
		}
		line.Color, line.Width = c, width
		p.Add(line)
	}
	return nil
}
