package report

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"

	"github.com/gswarm/gswarm/analysis"
)

// pageFiles are the page's template, style and scripts, and uPlot with its
// licence, as its npm package uplot 1.6.32 has them.
//
//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.ParseFS(pageFiles, "page/page.html"))

// MaxHTML is the most bytes that a page has: what a mail still takes.
const MaxHTML = 10e6

// wideLevels is up to how many GPUs curves have 16 bits, else 8.
const wideLevels = 64

// Buckets returns into how many buckets a page with so many GPUs divides the
// run at first. HTML halves their number until the page is small enough.
func Buckets(gpus int) int {
	const values, most, least = 400_000, 2000, 120
	return min(max(values/max(gpus, 1), least), most)
}

// HTML writes one page that holds all it needs: it opens without a network. The
// curves may be nil. They are made coarser, by halves, until the page has at
// most MaxHTML bytes.
func HTML(w io.Writer, r *analysis.Result, s *Series) error {
	v := viewOf(r)
	if s != nil {
		curves, facts, err := packed(r, s)
		if err != nil {
			return fmt.Errorf("writing the page: %w", err)
		}
		// What is base64 has nothing that HTML could take for markup.
		v.Curves, v.Facts = template.HTML(curves), template.HTML(facts) //nolint:gosec // base64
		v.Rule = ruleText(s)
	}
	if err := pageTemplate.Execute(w, v); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

func asset(names ...string) string {
	var all bytes.Buffer
	for _, name := range names {
		b, err := pageFiles.ReadFile("page/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		all.Write(b)
		all.WriteString("\n")
	}
	return all.String()
}

// library is uPlot with its licence in front; script is the page's own, in a
// scope of its own.
func library() string {
	return "/*\n" + asset("uPlot.LICENSE") + "*/\n" + asset("uPlot.iife.min.js")
}

func script() string {
	return "\"use strict\";\n(() => {\n" + asset("data.js", "heat.js", "charts.js", "page.js") + "})();\n"
}

// policy lets the page run its own two scripts and nothing else, and load
// nothing: whatever a job was called, it stays text.
func policy(scripts ...string) string {
	allow := ""
	for _, s := range scripts {
		sum := sha256.Sum256([]byte(s))
		allow += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; script-src" + allow
}

// ruleText states how the curves were made.
func ruleText(s *Series) string {
	text := fmt.Sprintf("Each curve has %s buckets of %s", count(int64(s.GPUGrid.Buckets)), nanos(s.GPUGrid.BucketNS))
	if s.HostGrid.BucketNS != s.GPUGrid.BucketNS {
		text += fmt.Sprintf(" (hosts and ranks: %s)", nanos(s.HostGrid.BucketNS))
	}
	return text + ": the line is the mean of a bucket’s readings, the band reaches from the smallest to the largest, so no peak is lost. The heat map shows means, or of a node’s GPUs what is chosen. A gap is where nothing was read."
}

// factsOf is what the page's script knows of the run, beside the curves.
type factsOf struct {
	BeginMS  int64         `json:"beginMS"`
	Bits     int           `json:"bits"`
	Grid     gridFacts     `json:"grid"`
	SlowGrid gridFacts     `json:"slowGrid"`
	GPUs     kindFacts     `json:"gpus"`
	Hosts    kindFacts     `json:"hosts"`
	Ranks    kindFacts     `json:"ranks"`
	Phases   []laneFacts   `json:"phases"`
	Findings []findingFact `json:"findings"`
	Marks    []laneFacts   `json:"marks"`
	// Lit are the GPUs to begin with: those that were stragglers.
	Lit []int `json:"lit"`
}

type gridFacts struct {
	Begin   float64 `json:"begin"`
	Seconds float64 `json:"seconds"`
	Buckets int     `json:"buckets"`
}

type kindFacts struct {
	Metrics  []metricFacts  `json:"metrics"`
	Subjects []subjectFacts `json:"subjects"`
}

type metricFacts struct {
	Column string  `json:"column"`
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Max    float64 `json:"max"`
	// Step is the value of one level; None the level that stands for nothing.
	Step float64 `json:"step"`
	None int     `json:"none"`
	// Read says that somebody has a curve of it.
	Read bool `json:"read"`
}

type subjectFacts struct {
	Node  string `json:"node"`
	GPU   *int   `json:"gpu"`
	Rank  *int   `json:"rank"`
	UUID  string `json:"uuid,omitempty"`
	Name  string `json:"name,omitempty"`
	Spare bool   `json:"spare,omitempty"`
}

// laneFacts is something with a place on the timeline, in seconds from the
// run's begin.
type laneFacts struct {
	From float64  `json:"from"`
	To   float64  `json:"to"`
	Name string   `json:"name,omitempty"`
	Kind string   `json:"kind,omitempty"`
	Tip  []string `json:"tip"`
}

type findingFact struct {
	laneFacts
	Index    int               `json:"index"`
	Number   int               `json:"number"`
	Severity analysis.Severity `json:"severity"`
	GPUs     []int             `json:"gpus"`
	Columns  []string          `json:"columns"`
}

// packed returns curves and facts as gzip in base64.
func packed(r *analysis.Result, s *Series) (curves, facts string, err error) {
	bits := 16
	if len(s.GPUs) > wideLevels {
		bits = 8
	}
	for {
		f := pageFacts(r, s, bits)
		var b bytes.Buffer
		b.Write(levels(s.GPUs, f.GPUs.Metrics, s.GPUGrid.Buckets, bits))
		b.Write(levels(s.Hosts, f.Hosts.Metrics, s.HostGrid.Buckets, bits))
		b.Write(levels(s.Ranks, f.Ranks.Metrics, s.HostGrid.Buckets, bits))
		if curves, err = pack(b.Bytes()); err != nil {
			return "", "", err
		}
		const rest = 1e6 // of a page without curves, at a thousand GPUs
		if len(curves) > MaxHTML-rest && s.GPUGrid.Buckets > 1 {
			s.halve()
			continue
		}
		text, err := json.Marshal(f)
		if err != nil {
			return "", "", err
		}
		facts, err = pack(text)
		return curves, facts, err
	}
}

func pack(b []byte) (string, error) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(b); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(z.Bytes()), nil
}

// halve joins buckets in pairs.
func (s *Series) halve() {
	for _, list := range [][]*Subject{s.GPUs, s.Hosts, s.Ranks} {
		for _, subject := range list {
			for _, c := range subject.Curves {
				if c != nil {
					c.halve()
				}
			}
		}
	}
	for _, g := range []*Grid{&s.GPUGrid, &s.HostGrid} {
		g.BucketNS, g.Buckets = 2*g.BucketNS, (g.Buckets+1)/2
	}
}

func (c *Curve) halve() {
	n := len(c.Mean)
	for i := 0; i < n; i += 2 {
		at, a, b := i/2, i, min(i+1, n-1)
		na, nb := c.count[a], c.count[b]
		if a == b {
			nb = 0
		}
		switch {
		case nb == 0:
			c.Mean[at], c.Min[at], c.Max[at] = c.Mean[a], c.Min[a], c.Max[a]
		case na == 0:
			c.Mean[at], c.Min[at], c.Max[at] = c.Mean[b], c.Min[b], c.Max[b]
		default:
			c.Mean[at] = (c.Mean[a]*float32(na) + c.Mean[b]*float32(nb)) / float32(na+nb)
			c.Min[at], c.Max[at] = min(c.Min[a], c.Min[b]), max(c.Max[a], c.Max[b])
		}
		c.count[at] = na + nb
	}
	half := (n + 1) / 2
	c.Mean, c.Min, c.Max, c.count = c.Mean[:half], c.Min[:half], c.Max[:half], c.count[:half]
}

// levels quantises curves: of each subject, metric and bucket the mean, and how
// far the extremes lie from it.
func levels(subjects []*Subject, metrics []metricFacts, buckets, bits int) []byte {
	var out []byte
	put := func(v int) {
		out = append(out, byte(v))
		if bits == 16 {
			out = append(out, byte(v>>8))
		}
	}
	for _, s := range subjects {
		for m, facts := range metrics {
			c := s.Curves[m]
			level := func(v float32) int {
				if facts.Step == 0 {
					return 0
				}
				return min(max(int(math.Round(float64(v)/facts.Step)), 0), facts.None-1)
			}
			for which := range 3 {
				for i := range buckets {
					switch {
					case c == nil || c.count[i] == 0:
						put(facts.None)
					case which == 0:
						put(level(c.Mean[i]))
					case which == 1:
						put(level(c.Mean[i]) - level(c.Min[i]))
					default:
						put(level(c.Max[i]) - level(c.Mean[i]))
					}
				}
			}
		}
	}
	return out
}

func pageFacts(r *analysis.Result, s *Series, bits int) *factsOf {
	begin := r.Job.BeginNS
	at := func(ns int64) float64 { return float64(ns-begin) / 1e9 }
	grid := func(g Grid) gridFacts { return gridFacts{at(g.BeginNS), float64(g.BucketNS) / 1e9, g.Buckets} }
	f := &factsOf{
		BeginMS: begin / 1e6, Bits: bits, Grid: grid(s.GPUGrid), SlowGrid: grid(s.HostGrid),
		GPUs: kindOf(s.GPUs, gpuDrawn[:], bits), Hosts: kindOf(s.Hosts, hostDrawn[:], bits), Ranks: kindOf(s.Ranks, rankDrawn[:], bits),
		Phases: []laneFacts{}, Findings: []findingFact{}, Marks: []laneFacts{}, Lit: []int{},
	}
	index := make(map[gpuKey]int)
	for i, g := range s.GPUs {
		index[keyOf(g.Place)] = i
		f.GPUs.Subjects[i].Name, f.GPUs.Subjects[i].Spare = clean(r.GPUs[i].Name), r.GPUs[i].Spare
	}
	gpusOf := func(places []analysis.Place) []int {
		found := []int{}
		for _, p := range places {
			if i, ok := index[keyOf(p)]; ok && p.GPU != nil {
				found = append(found, i)
			}
		}
		return found
	}
	for _, p := range r.Phases {
		name := bottleneckWord(p.Bottleneck)
		tips := []string{name + ", " + since(begin, p.BeginNS) + " for " + duration(p.Seconds()), sharesText(p.Bottleneck.Shares, 4), clean(p.Bottleneck.Basis)}
		f.Phases = append(f.Phases, laneFacts{at(p.BeginNS), at(p.EndNS), name, string(p.Bottleneck.Name), tips})
	}
	for i, d := range r.Findings {
		if i == mostFindings {
			break
		}
		columns := []string{}
		for _, e := range d.Evidence {
			columns = append(columns, e.Columns...)
		}
		f.Findings = append(f.Findings, findingFact{
			laneFacts{From: at(d.BeginNS), To: at(d.EndNS), Tip: []string{clean(d.Title), since(begin, d.BeginNS) + " for " + duration(d.Seconds())}},
			i, i + 1, d.Severity, gpusOf(d.Places), columns,
		})
	}
	for _, m := range s.Marks {
		f.Marks = append(f.Marks, laneFacts{From: at(m.NS), To: at(m.NS), Tip: []string{clean(m.Text), "at " + since(begin, m.NS)}})
	}
	var slow []analysis.Place
	for _, g := range r.Stragglers {
		slow = append(slow, g.Place)
	}
	for _, i := range gpusOf(slow) {
		const most = 3
		if len(f.Lit) < most && !slices.Contains(f.Lit, i) {
			f.Lit = append(f.Lit, i)
		}
	}
	return f
}

// kindOf describes curves of one kind: whose they are, and the scale of each
// metric, from nothing to the greatest reading of any.
func kindOf(subjects []*Subject, metrics []drawn, bits int) kindFacts {
	k := kindFacts{Metrics: make([]metricFacts, len(metrics)), Subjects: []subjectFacts{}}
	none := 1<<bits - 1
	for m, d := range metrics {
		most, read := 0.0, false
		for _, s := range subjects {
			if c := s.Curves[m]; c != nil {
				read = true
				for i, v := range c.Max {
					if c.count[i] > 0 {
						most = max(most, float64(v))
					}
				}
			}
		}
		k.Metrics[m] = metricFacts{d.column, d.name, d.unit, most, most / float64(none-1), none, read}
	}
	for _, s := range subjects {
		k.Subjects = append(k.Subjects, subjectFacts{Node: clean(s.Node), GPU: s.GPU, Rank: s.Rank, UUID: clean(s.UUID)})
	}
	return k
}
