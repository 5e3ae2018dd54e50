package report

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gswarm/gswarm/analysis"
)

var pages = flag.String("pages", "", "write example pages into `DIR`, for a browser")

func page(t *testing.T, r *analysis.Result, s *Series) string {
	t.Helper()
	var b strings.Builder
	if err := HTML(&b, r, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// unpacked returns what the page has in one of its blocks.
func unpacked(t *testing.T, html, id string) []byte {
	t.Helper()
	m := regexp.MustCompile(`<div hidden id="` + id + `">([A-Za-z0-9+/=]*)</div>`).FindStringSubmatch(html)
	if m == nil {
		t.Fatalf("no block %s", id)
	}
	packed, err := base64.StdEncoding.DecodeString(m[1])
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPages makes pages of every kind of run, and of all kinds checks what must
// hold of each: it loads nothing, and what a job was called stays text.
func TestPages(t *testing.T) {
	buckets := 1000
	if raceEnabled { // it takes ten times as long then
		buckets = 100
	}
	for name, r := range results() {
		var s *Series
		switch name {
		case "empty":
		case "cluster":
			if raceEnabled {
				r = job(8)
			}
			r.Job.EndNS = r.Job.BeginNS + 3600e9
			r.Phases = nil
			s = randomSeries(r, Buckets(r.Job.GPUs))
		default:
			s = storySeries(r, buckets)
		}
		if name == "old-gpus" {
			for _, g := range s.GPUs {
				for _, m := range []int{curveActive, curveTensor, curveDRAM, curveNVLink, curvePCIe} {
					g.Curves[m] = nil
				}
				g.Curves[curveUtil] = newCurve(s.GPUGrid.Buckets)
				for b := range s.GPUGrid.Buckets {
					g.Curves[curveUtil].add(b, float64(90+b%10))
				}
				g.Curves[curveUtil].finish()
			}
		}
		if name == "hostile" {
			s.Marks = append(s.Marks, Mark{begin + 5e9, r.Job.Run})
		}
		html := page(t, r, s)
		if len(html) > MaxHTML {
			t.Errorf("%s: %d bytes", name, len(html))
		}
		t.Logf("%s: %d bytes", name, len(html))
		if *pages != "" {
			if err := os.WriteFile(filepath.Join(*pages, name+".html"), []byte(html), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, alien := range []string{"<script>alert", "<img", "src=\"http", "href=\"http", "url(http", "\x1b", "\u202e", "</script><script>a"} {
			if strings.Contains(html, alien) {
				t.Errorf("%s: has %q", name, alien)
			}
		}
		want := 2
		if s == nil {
			want = 0
		}
		if n := strings.Count(html, "<script>"); n != want || strings.Count(html, "</script>") != want {
			t.Errorf("%s: %d scripts", name, n)
		}
		if !strings.Contains(html, `content="default-src &#39;none&#39;;`) || s != nil && !strings.Contains(html, "Copyright (c) 2022 Leon Sorokin") {
			t.Errorf("%s: no policy, or no licence", name)
		}
	}
}

// TestPageScripts: the policy names the very scripts that the page has.
func TestPageScripts(t *testing.T) {
	html := page(t, job(1), storySeries(job(1), 100))
	var scripts []string
	for _, m := range regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(html, -1) {
		scripts = append(scripts, m[1])
	}
	if have := policy(scripts...); !strings.Contains(strings.ReplaceAll(strings.ReplaceAll(html, "&#39;", "'"), "&#43;", "+"), have) {
		t.Errorf("the page's policy is not %s", have)
	}
}

// TestPageCurves: a page's curves are those that were read, to a level.
func TestPageCurves(t *testing.T) {
	r := job(1)
	s := storySeries(r, 300)
	s.GPUs[2].Curves[curveTensor] = nil
	html := page(t, r, s)
	var f factsOf
	if err := json.Unmarshal(unpacked(t, html, "facts"), &f); err != nil {
		t.Fatal(err)
	}
	levels := unpacked(t, html, "curves")
	if want := 2 * 3 * (8*int(gpuCurves)*f.Grid.Buckets + (int(hostCurves)+8*int(rankCurves))*f.SlowGrid.Buckets); len(levels) != want || f.Bits != 16 {
		t.Fatalf("%d bytes of %d bits, want %d", len(levels), f.Bits, want)
	}
	level := func(gpu, metric, which, bucket int) int {
		return int(binary.LittleEndian.Uint16(levels[2*(((gpu*int(gpuCurves)+metric)*3+which)*f.Grid.Buckets+bucket):]))
	}
	for gpu, subject := range s.GPUs {
		for metric, m := range f.GPUs.Metrics {
			c := subject.Curves[metric]
			for b := range f.Grid.Buckets {
				mean := level(gpu, metric, 0, b)
				if c == nil || c.count[b] == 0 {
					if mean != m.None {
						t.Fatalf("GPU %d, %s, bucket %d: %d where nothing was read", gpu, m.Column, b, mean)
					}
					continue
				}
				for which, want := range []float32{c.Mean[b], c.Min[b], c.Max[b]} {
					have := mean
					switch which {
					case 1:
						have -= level(gpu, metric, 1, b)
					case 2:
						have += level(gpu, metric, 2, b)
					}
					if math.Abs(float64(have)*m.Step-float64(want)) > 0.51*m.Step+1e-6 {
						t.Fatalf("GPU %d, %s, bucket %d, value %d: %g, want %g", gpu, m.Column, b, which, float64(have)*m.Step, want)
					}
				}
			}
		}
	}
	if len(f.Lit) != 1 || f.Lit[0] != 3 || len(f.Findings) != 3 || f.Findings[0].GPUs[0] != 3 || f.Findings[0].From != 70 {
		t.Errorf("lit %v, findings %+v", f.Lit, f.Findings)
	}
}

func TestHalve(t *testing.T) {
	c := newCurve(5)
	for _, p := range []struct {
		at int
		v  float64
	}{{0, 1}, {0, 3}, {1, 10}, {3, 5}, {4, 7}} {
		c.add(p.at, p.v)
	}
	c.finish()
	c.halve()
	for i, want := range [][3]float32{{14. / 3, 1, 10}, {5, 5, 5}, {7, 7, 7}} {
		if have := [3]float32{c.Mean[i], c.Min[i], c.Max[i]}; have != want {
			t.Errorf("bucket %d: %v, want %v", i, have, want)
		}
	}
	if len(c.Mean) != 3 || c.count[0] != 3 || c.count[2] != 1 {
		t.Errorf("%d buckets, counts %v", len(c.Mean), c.count)
	}
	empty := newCurve(3)
	empty.finish()
	empty.halve()
	if !math.IsNaN(float64(empty.Mean[1])) || empty.count[1] != 0 {
		t.Errorf("nothing read: %v", empty.Mean)
	}
}
