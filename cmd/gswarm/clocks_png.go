package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
)

const (
	// curvePoints is at how many instants a node is drawn: the bound rises
	// and falls between bursts, and 1500 show that in a run of an hour.
	curvePoints = 1500
	// curveNodes is how many nodes are drawn; more cannot be told apart.
	curveNodes = 16
)

// drawClocks draws two panels: how each node's clock strayed from a steady
// rate, with its bound as a band, and the bound itself.
func drawClocks(c *merge.Clocks, path string) error {
	fail := func(err error) error { return fmt.Errorf("drawing the clocks into %s: %w", path, err) }
	stray, bound := plot.New(), plot.New()
	stray.Title.Text = "Clocks against " + orNone(c.Reference.Node) + ", less each one's offset and steady rate"
	stray.Y.Label.Text, bound.Y.Label.Text = "strayed, µs", "bound (half-width), µs"
	stray.X.Label.Text, bound.X.Label.Text = "s since the reference was anchored", "s since the reference was anchored"
	bound.Y.Min = 0
	drawn, left := 0, 0
	for _, n := range c.Nodes {
		ps := c.Curve(n.Node, curvePoints)
		if len(ps) < 2 || n.Node == c.Reference.Node {
			continue
		}
		if drawn == curveNodes {
			left++
			continue
		}
		if err := drawNode(stray, bound, n.Node, ps, c.Reference.Anchor.Realtime, drawn); err != nil {
			return fail(err)
		}
		drawn++
	}
	if drawn == 0 {
		stray.Title.Text = "No node is tied to the reference"
	}
	if left > 0 {
		stray.Title.Text += fmt.Sprintf(" (%d more nodes are not drawn)", left)
	}
	stray.Add(plotter.NewGrid())
	bound.Add(plotter.NewGrid())
	stray.Legend.Top = true
	img := vgimg.New(28*vg.Centimeter, 20*vg.Centimeter)
	canvas := draw.New(img)
	tiles := draw.Tiles{Rows: 2, Cols: 1, PadY: 6 * vg.Millimeter, PadTop: 3 * vg.Millimeter, PadBottom: 3 * vg.Millimeter, PadLeft: 3 * vg.Millimeter, PadRight: 6 * vg.Millimeter}
	grid := plot.Align([][]*plot.Plot{{stray}, {bound}}, tiles, canvas)
	stray.Draw(grid[0][0])
	bound.Draw(grid[1][0])
	var b bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(&b); err != nil {
		return fail(err)
	}
	if err := rundir.WriteFile(path, b.Bytes()); err != nil {
		return fail(err)
	}
	return nil
}

func drawNode(stray, bound *plot.Plot, name string, ps []merge.Point, zero int64, n int) error {
	line := fitLine(ps)
	mid, half := make(plotter.XYs, len(ps)), make(plotter.XYs, len(ps))
	band := make(plotter.XYs, 2*len(ps))
	for i, p := range ps {
		x := float64(int64(p.Time)-zero) / 1e9
		y, b := line(p), float64(p.BoundNS)/1e3
		mid[i], half[i] = plotter.XY{X: x, Y: y}, plotter.XY{X: x, Y: b}
		band[i] = plotter.XY{X: x, Y: y - b}
		band[len(band)-1-i] = plotter.XY{X: x, Y: y + b}
	}
	c := plotutil.Color(n)
	area, err := plotter.NewPolygon(band)
	if err != nil {
		return err
	}
	r, g, b, _ := c.RGBA()
	area.Color = color.NRGBA{R: uint8(r >> 8), G: uint8(g >> 8), B: uint8(b >> 8), A: 40}
	area.Width = 0
	est, err := plotter.NewLine(mid)
	if err != nil {
		return err
	}
	est.Color = c
	wide, err := plotter.NewLine(half)
	if err != nil {
		return err
	}
	wide.Color = c
	stray.Add(area, est)
	stray.Legend.Add(name, est)
	bound.Add(wide)
	return nil
}

// fitLine returns what is left of a point's offset, in microseconds, once the
// steady part is taken out by least squares.
func fitLine(ps []merge.Point) func(merge.Point) float64 {
	x := func(p merge.Point) float64 { return float64(p.Time-ps[0].Time) / 1e9 }
	y := func(p merge.Point) float64 { return float64(p.OffsetNS-ps[0].OffsetNS) / 1e3 }
	var sx, sy, sxx, sxy float64
	for _, p := range ps {
		sx, sy, sxx, sxy = sx+x(p), sy+y(p), sxx+x(p)*x(p), sxy+x(p)*y(p)
	}
	n := float64(len(ps))
	rate := (n*sxy - sx*sy) / (n*sxx - sx*sx)
	if math.IsNaN(rate) || math.IsInf(rate, 0) {
		rate = 0
	}
	at := (sy - rate*sx) / n
	return func(p merge.Point) float64 { return y(p) - at - rate*x(p) }
}
