package report

import (
	"fmt"
	"html/template"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gswarm/gswarm/analysis"
)

// view is the page in words; what a template escapes.
type view struct {
	Title, Run, Headline, Class, Remedy, More, Command string
	Meta                                               []string
	Tiles                                              []tile
	Findings                                           []findingView
	FewerFindings                                      string
	Quiet                                              int
	Stragglers                                         []stragglerView
	Balance                                            []balanceView
	GPUs, Hosts                                        []rowView
	Phases                                             []phaseView
	Overall, ActiveName, Steps, Rule                   string
	Data, Missing, Notes                               []string
	CSP                                                string
	CSS                                                template.CSS
	Library, Script                                    template.JS
	Facts, Curves                                      template.HTML
}

type tile struct{ Label, Value, Sub string }

type findingView struct {
	Index, N             int
	Title, Severity, How string
	Detail, Remedy       string
	Jump, Quiet          bool
	Evidence             []evidenceView
}

type evidenceView struct{ Says, Where string }

type stragglerView struct{ Who, At, For, How, Why string }

type balanceView struct{ Name, CV, Key, Class, Lowest, Highest, GPUs string }

// rowView is a row of a table that can be sorted: Sort is what a cell is sorted
// by, where that is not its text.
type rowView struct {
	Index int
	Name  string
	Cells []cellView
}

type cellView struct{ Text, Sort string }

type phaseView struct{ At, For, Name, Step, Active, Power, Shares string }

const (
	// mostFindings is how many causes a page shows; JSON has them all.
	mostFindings = 30
	mostRows     = 100
)

func viewOf(r *analysis.Result) *view {
	head := headline(r)
	css, lib, own := asset("uPlot.min.css", "page.css"), library(), script()
	v := &view{
		Title: clean(r.Job.Run) + ": " + head.text, Run: clean(r.Job.Run), Headline: sentence(head.text), Remedy: head.remedy, More: head.more,
		Class: "good", Command: command(r.Job.Command), ActiveName: strings.Trim(metricOf(activeColumn(r)).name, "“”"),
		CSS: template.CSS(css), Library: template.JS(lib), Script: template.JS(own), CSP: policy(lib, own), //nolint:gosec // the program's own
	}
	switch head.style {
	case bad:
		v.Class = "problem"
	case warn:
		v.Class = "warning"
	case plain:
		v.Class = "info"
	}
	v.Meta = metaText(r.Job)
	v.Tiles = tilesOf(r)
	v.Findings = findingViews(r)
	if n := len(r.Findings) - mostFindings; n > 0 {
		v.FewerFindings = fmt.Sprintf("and %s more: gswarm report --json", count(int64(n)))
	}
	for _, f := range v.Findings {
		if f.Quiet {
			v.Quiet++
		}
	}
	v.Stragglers = stragglerViews(r)
	v.Balance, v.GPUs, v.Hosts = balanceViews(r), gpuRows(r), hostRows(r)
	v.Phases, v.Overall = phaseViews(r)
	v.Steps = stepsText(r)
	v.Data, v.Missing, v.Notes = dataTexts(r)
	return v
}

// sentence begins with a capital letter.
func sentence(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[n:]
}

func metaText(j analysis.Job) []string {
	var meta []string
	if j.ID != "" {
		meta = append(meta, "job "+clean(j.ID))
	}
	meta = append(meta, plural(j.Nodes, "node"), gpusText(j))
	if j.Ranks > 0 {
		meta = append(meta, plural(j.Ranks, "rank"))
	}
	meta = append(meta, utc(j.BeginNS)+" UTC", duration(j.Seconds()))
	switch {
	case j.Running:
		meta = append(meta, "still running")
	case j.Exit != "":
		meta = append(meta, clean(j.Exit))
	}
	return meta
}

func tilesOf(r *analysis.Result) []tile {
	var tiles []tile
	for _, m := range metrics {
		s, ok := r.Totals.Metrics[m.column]
		if !ok {
			continue
		}
		t := tile{m.name, m.value(s.Mean), "mean"}
		switch m.column {
		case "sm_active_pct", "tensor_pct", "dram_pct":
		case "util_gpu_pct":
			t.Sub = "of time with a kernel"
		case "mem_used_bytes":
			t.Sub = "most " + m.value(s.Max)
		case "power_avg_mw":
			if _, ok := r.Totals.Metrics["power_now_mw"]; ok {
				continue
			}
			t.Sub = "peak " + m.value(s.Max)
		case "power_now_mw", "temp_c":
			t.Sub = "peak " + m.value(s.Max)
		default:
			continue
		}
		tiles = append(tiles, t)
	}
	if e := r.Totals.EnergyJ; e != nil {
		tiles = append(tiles, tile{"energy", si(*e, "J"), si(*e/3600, "Wh")})
	}
	if i := r.Totals.IdleShare; i != nil {
		t := tile{Label: "idle", Value: percent(*i)}
		if r.Totals.GPUHours > 0 {
			t.Sub = "of " + hours(r.Totals.GPUHours)
		}
		tiles = append(tiles, t)
	}
	return tiles
}

func findingViews(r *analysis.Result) []findingView {
	var views []findingView
	for i, f := range r.Findings {
		if i == mostFindings {
			break
		}
		v := findingView{
			Index: i, N: i + 1, Title: sentence(clean(f.Title)), Severity: clean(string(f.Severity)), Detail: clean(f.Detail), Remedy: clean(f.Remedy),
			Jump: r.Job.GPUs > 0, Quiet: f.Severity == analysis.Info,
		}
		var how []string
		if p := places(f.Places); p != "" {
			how = append(how, p)
		}
		if f.EndNS > f.BeginNS {
			how = append(how, "at "+since(r.Job.BeginNS, f.BeginNS)+" for "+duration(f.Seconds()))
		}
		v.How = strings.Join(append(how, costs(f)...), " · ")
		for _, e := range f.Evidence {
			line := evidenceLine(r, analysis.Evidence{Table: e.Table, Columns: e.Columns, Place: e.Place, Span: e.Span})
			v.Evidence = append(v.Evidence, evidenceView{clean(e.Says), line})
		}
		views = append(views, v)
	}
	return views
}

func places(all []analysis.Place) string {
	const most = 4
	var names []string
	for _, p := range all {
		names = append(names, placeText(p))
	}
	return some(names, most)
}

func stragglerViews(r *analysis.Result) []stragglerView {
	var views []stragglerView
	for i, g := range r.Stragglers {
		if i == mostRows {
			break
		}
		how, why := waited(g)
		views = append(views, stragglerView{placeText(g.Place), since(r.Job.BeginNS, g.BeginNS), duration(g.Seconds()), how, why})
	}
	return views
}

func balanceViews(r *analysis.Result) []balanceView {
	var views []balanceView
	for _, b := range r.Balance {
		if b.Spatial == nil {
			continue
		}
		views = append(views, balanceView{
			strings.Trim(metricOf(b.Metric).name, "“”"), fmt.Sprintf("%.1f %%", 100**b.Spatial), string(b.Class), className(b.Class),
			placeText(b.Lowest), placeText(b.Highest), count(int64(b.GPUs)),
		})
	}
	return views
}

func gpuRows(r *analysis.Result) []rowView {
	active := activeColumn(r)
	var rows []rowView
	for i, g := range r.GPUs {
		stat := func(column string) cellView {
			s, ok := g.Metrics[column]
			if !ok {
				return cellView{}
			}
			return cellView{metricOf(column).value(s.Mean), fmt.Sprintf("%.6g", s.Mean)}
		}
		row := rowView{Index: i, Name: gpuName(g.Place, r.Job.Nodes)}
		if g.Spare {
			row.Name += " (spare)"
		}
		memory, spread := cellView{}, cellView{}
		if m, ok := g.Metrics["mem_used_bytes"]; ok {
			memory = cellView{megabytes(m.Mean), fmt.Sprintf("%.9g", m.Mean)}
			spread = cellView{fmt.Sprintf("%.1f", m.SD/1e6), fmt.Sprintf("%.9g", m.SD)}
		}
		power := stat("power_now_mw")
		if power.Text == "" {
			power = stat("power_avg_mw")
		}
		joules, idle := cellView{}, cellView{}
		if g.EnergyJ != nil {
			joules = cellView{energy(*g.EnergyJ), fmt.Sprintf("%.9g", *g.EnergyJ)}
		}
		if g.IdleShare != nil {
			idle = cellView{percent(*g.IdleShare), fmt.Sprintf("%.6g", *g.IdleShare)}
		}
		row.Cells = []cellView{{Text: ranksOf(g.Ranks)}, memory, spread, stat(active), stat("tensor_pct"), stat("util_gpu_pct"), power, joules, stat("temp_c"), idle}
		rows = append(rows, row)
	}
	return rows
}

func hostRows(r *analysis.Result) []rowView {
	var rows []rowView
	for _, h := range r.Hosts {
		row := rowView{Name: clean(h.Node), Cells: make([]cellView, 5)}
		if h.CPUs > 0 {
			row.Cells[0] = cellView{Text: fmt.Sprint(h.CPUs)}
		}
		switch {
		case h.Missing:
			row.Cells[1] = cellView{Text: "no data"}
		case h.CPUShare != nil:
			row.Cells[1] = cellView{percent(*h.CPUShare), fmt.Sprintf("%.6g", *h.CPUShare)}
		}
		if h.MemoryUsedBytes != nil {
			row.Cells[2] = cellView{bytesText(float64(*h.MemoryUsedBytes)), fmt.Sprint(*h.MemoryUsedBytes)}
		}
		if h.MemoryBytes > 0 {
			row.Cells[3] = cellView{bytesText(float64(h.MemoryBytes)), fmt.Sprint(h.MemoryBytes)}
		}
		if h.Aligned {
			row.Cells[4] = cellView{"±" + nanos(h.BoundNS), fmt.Sprint(h.BoundNS)}
		} else if !h.Missing {
			row.Cells[4] = cellView{Text: "unaligned"}
		}
		rows = append(rows, row)
	}
	return rows
}

func phaseViews(r *analysis.Result) (views []phaseView, overall string) {
	if r.Job.GPUs == 0 {
		return nil, ""
	}
	active := activeColumn(r)
	for i, p := range r.Phases {
		if i == mostRows {
			break
		}
		step := ""
		if p.StepNS != nil {
			step = nanos(*p.StepNS)
		}
		views = append(views, phaseView{
			since(r.Job.BeginNS, p.BeginNS), duration(p.Seconds()), bottleneckWord(p.Bottleneck), step, phaseValue(p, active), phasePower(p), sharesText(p.Bottleneck.Shares, 3),
		})
	}
	overall = "The whole run: " + bottleneckWord(r.Overall)
	if s := sharesText(r.Overall.Shares, 6); s != "" {
		overall += "; GPU time: " + s
	}
	if r.Overall.Basis != "" {
		overall += ". " + clean(r.Overall.Basis)
	}
	return views, overall
}

func dataTexts(r *analysis.Result) (data, missing, notes []string) {
	data = append(data, strings.Join(dataParts(r, 20), ", "))
	for i, m := range r.Data.Missing {
		if i == mostRows {
			missing = append(missing, fmt.Sprintf("and %s more", count(int64(len(r.Data.Missing)-i))))
			break
		}
		missing = append(missing, clean(m))
	}
	for i, n := range r.Data.Notes {
		if i == mostRows {
			break
		}
		notes = append(notes, clean(n))
	}
	return data, missing, notes
}
