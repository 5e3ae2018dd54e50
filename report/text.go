package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/gswarm/gswarm/analysis"
)

// MaxLines is the most lines that a report in text has on a page of 60 columns
// or more: what fits a screen and a ticket.
const MaxLines = 59

// TextOptions say how the text is to look.
type TextOptions struct {
	// Width is the page's in columns; below 40 it is taken as 40.
	Width int
	// Colour asks for escape sequences of a terminal.
	Colour bool
	// Dir is the run's directory as the reader would type it.
	Dir string
}

// detail is how much of each section is shown: the most entries of each.
// Evidence of 0 leaves one to the first cause.
type detail struct{ gpus, phases, stragglers, findings, evidence, places, missing, steps int }

// shrink takes the next bit of detail away where the page is too long: what is
// read least goes first, and the GPUs one by one go last. It reports false where
// nothing is left to take.
func (d *detail) shrink() bool {
	for _, rung := range []struct {
		of       *int
		to, step int
	}{
		{&d.evidence, 1, 1}, {&d.missing, 3, 1}, {&d.phases, 8, 1}, {&d.stragglers, 3, 1}, {&d.findings, 3, 1}, {&d.phases, 6, 1},
		{&d.stragglers, 2, 1}, {&d.missing, 2, 1}, {&d.steps, 2, 1}, {&d.findings, 2, 1}, {&d.evidence, 0, 1}, {&d.phases, 4, 1},
		{&d.stragglers, 1, 1}, {&d.missing, 1, 1}, {&d.places, 1, 1}, {&d.phases, 3, 1}, {&d.gpus, 4, 2}, {&d.steps, 1, 1}, {&d.findings, 1, 1}, {&d.phases, 2, 1}, {&d.gpus, 2, 2},
	} {
		if *rung.of > rung.to {
			*rung.of -= rung.step
			return true
		}
	}
	return false
}

// Text writes the report for a person: the answer first, what it rests on after
// it, and never more than MaxLines lines.
func Text(w io.Writer, r *analysis.Result, o TextOptions) error {
	const least = 40
	o.Width = max(o.Width, least)
	d := detail{gpus: 8, phases: 12, stragglers: 5, findings: 4, evidence: 2, places: 4, missing: 4, steps: 3}
	s := textSheet(r, o, d)
	for len(s.lines) > MaxLines && d.shrink() {
		s = textSheet(r, o, d)
	}
	if len(s.lines) > MaxLines { // names of many lines
		s.lines = s.lines[:MaxLines-1]
		s.say(faint, "", "", "… gswarm report --json has all", 1)
	}
	return s.print(w, o.Colour)
}

func textSheet(r *analysis.Result, o TextOptions, d detail) *sheet {
	s := &sheet{width: o.Width}
	head := headline(r)
	s.say(head.style, "", "  ", head.text, 3)
	if head.remedy != "" {
		s.say(plain, "  ", "  ", "do: "+head.remedy, 3)
	}
	if head.more != "" {
		s.say(plain, "  ", "  ", head.more, 2)
	}
	s.gap()
	textJob(s, r)
	textGPUs(s, r, d)
	textStragglers(s, r, d)
	textPhases(s, r, d)
	textFindings(s, r, d, head.remedy)
	textNext(s, r, o, d)
	textData(s, r, d)
	return s
}

func textJob(s *sheet, r *analysis.Result) {
	j := r.Job
	first := clean(j.Run)
	if len(j.Command) > 0 {
		first += ": " + command(j.Command)
	}
	s.say(title, "", "  ", first, 2)
	var what []string
	if j.ID != "" {
		what = append(what, "job "+clean(j.ID))
	}
	what = append(what, plural(j.Nodes, "node"))
	what = append(what, gpusText(j))
	if j.Ranks > 0 {
		what = append(what, plural(j.Ranks, "rank"))
	}
	s.say(plain, "  ", "  ", strings.Join(what, ", "), 2)
	when := fmt.Sprintf("%s UTC, %s", utc(j.BeginNS), duration(j.Seconds()))
	switch {
	case j.Running:
		when += " so far, still running"
	case j.Exit != "":
		when += ", " + clean(j.Exit)
	}
	s.say(plain, "  ", "  ", when, 2)
}

func gpusText(j analysis.Job) string {
	text := plural(j.GPUs, "GPU")
	var names []string
	for _, name := range sortedKeys(j.GPUNames) {
		if len(j.GPUNames) == 1 {
			names = append(names, clean(name))
			continue
		}
		names = append(names, fmt.Sprintf("%s %s", count(int64(j.GPUNames[name])), clean(name)))
	}
	if len(names) > 0 {
		text += " (" + some(names, 3) + ")"
	}
	return text
}

func textStragglers(s *sheet, r *analysis.Result, d detail) {
	if len(r.Stragglers) == 0 {
		return
	}
	s.heading("Stragglers")
	for i, g := range r.Stragglers {
		if i == d.stragglers {
			s.say(faint, "  ", "  ", fmt.Sprintf("and %s more: gswarm report --json", count(int64(len(r.Stragglers)-i))), 1)
			return
		}
		what := fmt.Sprintf("%s at %s for %s: ", placeText(g.Place), since(r.Job.BeginNS, g.BeginNS), duration(g.Seconds()))
		how, why := waited(g)
		what += how + "; " + why
		s.say(plain, "  ", "    ", what, 3)
	}
}

// waited says how long the others waited for a straggler and why. One that
// worked alone made no steps.
func waited(g analysis.Straggler) (how, why string) {
	switch {
	case g.ExcessNS == 0:
		how = "the others waited throughout"
	case g.Chronic:
		how = fmt.Sprintf("the others waited %s ± %s in every step, %s of it", nanos(g.ExcessNS), nanos(g.BoundNS), percent(g.Excess))
	default:
		how = fmt.Sprintf("the others waited %s ± %s in %s, %s of each", nanos(g.ExcessNS), nanos(g.BoundNS), plural(g.Steps, "step"), percent(g.Excess))
	}
	if g.Cause == "" {
		return how, "no cause found"
	}
	return how, causeClause(g.Cause)
}

// stepsText says how long the steps took, or why that is not known.
func stepsText(r *analysis.Result) string {
	st := r.Steps
	if st.Count == 0 || st.MedianNS == nil {
		if st.Note != "" && r.Job.GPUs > 0 {
			return "Steps: " + clean(st.Note)
		}
		return ""
	}
	text := fmt.Sprintf("Steps: %s, median %s", count(int64(st.Count)), nanos(*st.MedianNS))
	if st.P95NS != nil {
		text += ", 95 % within " + nanos(*st.P95NS)
	}
	switch st.Method {
	case "marks":
		text += " (by the job's marks)"
	case "activity":
		text += " (seen in GPU activity)"
	}
	return text
}

func textPhases(s *sheet, r *analysis.Result, d detail) {
	if r.Job.GPUs == 0 || len(r.Phases) == 0 {
		return
	}
	name := bottleneckWord(r.Overall)
	if shares := sharesText(r.Overall.Shares, 3); shares != "" {
		name += " (GPU time: " + shares + ")"
	}
	s.heading("Bottleneck: " + name)
	shown := longest(r.Phases, d.phases)
	active := activeColumn(r)
	cols := []column{
		{head: "at", right: true, keep: 9}, {head: "for", right: true, keep: 9}, {head: "bound by", keep: 10}, {head: "step", right: true, keep: 7},
		{head: strings.Trim(metricOf(active).name, "“”"), right: true, keep: 6}, {head: "power", right: true, keep: 5}, {head: "GPU time", keep: 2},
	}
	add := func(cells ...string) {
		for i, c := range cells {
			cols[i].cells = append(cols[i].cells, c)
		}
	}
	rest, restSeconds := 0, 0.0
	for i, p := range r.Phases {
		if !shown[i] {
			rest++
			restSeconds += p.Seconds()
			continue
		}
		step := ""
		if p.StepNS != nil {
			step = nanos(*p.StepNS)
		}
		add(since(r.Job.BeginNS, p.BeginNS), duration(p.Seconds()), bottleneckWord(p.Bottleneck), step,
			phaseValue(p, active), phasePower(p), sharesText(p.Bottleneck.Shares, 2))
	}
	s.table("  ", cols)
	if rest > 0 {
		s.say(faint, "  ", "  ", fmt.Sprintf("and %s, %s together", plural(rest, "shorter phase"), duration(restSeconds)), 1)
	}
	if steps := stepsText(r); steps != "" {
		s.say(plain, "  ", "    ", steps, 2)
	}
}

func phaseValue(p analysis.Phase, column string) string {
	v, ok := p.Metrics[column]
	if !ok {
		return ""
	}
	return metricOf(column).value(v)
}

func phasePower(p analysis.Phase) string {
	for _, c := range []string{"power_now_mw", "power_avg_mw"} {
		if v, ok := p.Metrics[c]; ok {
			return watts(v)
		}
	}
	return ""
}

// longest marks the most phases that last longest.
func longest(phases []analysis.Phase, most int) []bool {
	shown := make([]bool, len(phases))
	for range min(most, len(phases)) {
		at := -1
		for i, p := range phases {
			if !shown[i] && (at < 0 || p.Seconds() > phases[at].Seconds()) {
				at = i
			}
		}
		shown[at] = true
	}
	return shown
}

// textFindings lists the causes; the remedy that the report begins with is not
// said again.
func textFindings(s *sheet, r *analysis.Result, d detail, remedy string) {
	if len(r.Findings) == 0 {
		return
	}
	s.heading("Causes")
	for i, f := range r.Findings {
		if i == d.findings {
			s.say(faint, "  ", "  ", fmt.Sprintf("and %s more: gswarm report --json", count(int64(len(r.Findings)-i))), 1)
			return
		}
		s.say(severityStyle(f.Severity), fmt.Sprintf("  %d ", i+1), "    ", findingLine(f), 2)
		most := d.evidence
		if i == 0 {
			most = max(most, 1)
		}
		for _, e := range f.Evidence[:min(most, len(f.Evidence))] {
			s.say(faint, "    ", "    ", "seen: "+evidenceLine(r, e), 2)
		}
		if f.Remedy != "" && clean(f.Remedy) != remedy {
			s.say(plain, "    ", "    ", "do: "+clean(f.Remedy), 2)
		}
	}
}

// findingLine is a finding in a line: what, how bad, how sure.
func findingLine(f analysis.Finding) string {
	text := clean(f.Title)
	if how := costs(f); len(how) > 0 {
		text += " (" + strings.Join(how, ", ") + ")"
	}
	return text
}

// costs says what a finding cost and how sure it is.
func costs(f analysis.Finding) []string {
	var how []string
	if f.Effect != nil {
		how = append(how, "cost "+percent(*f.Effect)+" of GPU time")
	}
	if f.StepExcess != nil && *f.StepExcess > 0 {
		how = append(how, "steps "+percent(*f.StepExcess)+" longer")
	}
	if f.Confidence > 0 {
		how = append(how, fmt.Sprintf("confidence %.0f %%", 100*f.Confidence))
	}
	return how
}

func evidenceLine(r *analysis.Result, e analysis.Evidence) string {
	where := clean(e.Table)
	const most = 2
	if n := len(e.Columns); n > most {
		where += "." + clean(strings.Join(e.Columns[:most], ", ")) + ", …"
	} else if n > 0 {
		where += "." + clean(strings.Join(e.Columns, ", "))
	}
	if p := placeText(e.Place); p != "" {
		where += ", " + p
	}
	if e.EndNS > e.BeginNS {
		where += ", " + since(r.Job.BeginNS, e.BeginNS) + " to " + since(r.Job.BeginNS, e.EndNS)
	}
	if e.Says == "" {
		return where
	}
	return clean(e.Says) + " [" + where + "]"
}

func severityStyle(v analysis.Severity) style {
	switch v {
	case analysis.Problem:
		return bad
	case analysis.Warning:
		return warn
	}
	return plain
}

// textNext says what to do now.
func textNext(s *sheet, r *analysis.Result, o TextOptions, d detail) {
	var steps []string
	if m := r.Remaining; m != nil {
		text := fmt.Sprintf("%.3g steps a second", m.StepRate)
		if m.LimitNS != nil {
			text += ", the scheduler ends the job at " + utc(*m.LimitNS) + " UTC"
		}
		if m.StepsUntilLimit != nil {
			text += ", " + count(*m.StepsUntilLimit) + " steps until then"
		}
		if m.Note != "" {
			text += "; " + clean(m.Note)
		}
		steps = append(steps, text)
	}
	if o.Dir != "" {
		dir := command([]string{o.Dir})
		steps = append(steps, s.annotated("gswarm report --html report.html "+dir, "all of it on one timeline"))
		if len(r.Data.Missing) > 0 {
			steps = append(steps, s.annotated("gswarm verify "+dir, "what is missing, and where"))
		}
	}
	if len(steps) == 0 {
		return
	}
	s.heading("Next")
	for i, text := range steps {
		if i == d.steps {
			break
		}
		s.sayAsIs("  ", text)
	}
}

// annotated says what a command is for, where there is room.
func (s *sheet) annotated(command, what string) string {
	const indent, gap = 2, "    "
	if indent+len([]rune(command+gap+what)) > s.width {
		return command
	}
	return command + gap + what
}

// sayAsIs adds a line as it is where it fits, so that a command can be copied.
func (s *sheet) sayAsIs(indent, text string) {
	if len([]rune(indent+text)) <= s.width {
		s.lines = append(s.lines, line{text: indent + text})
		return
	}
	s.say(plain, indent, indent+"  ", text, 3)
}

// textData says how far the rest can be trusted.
func textData(s *sheet, r *analysis.Result, d detail) {
	parts := dataParts(r, d.places)
	s.gap()
	st := plain
	if len(r.Data.Missing) > 0 || len(r.Data.Unaligned) > 0 {
		st = warn
	}
	s.say(st, "", "  ", "Data: "+strings.Join(parts, ", "), 3)
	for i, m := range r.Data.Missing {
		if i == d.missing {
			s.say(faint, "  ", "  ", fmt.Sprintf("and %s more", count(int64(len(r.Data.Missing)-i))), 1)
			break
		}
		s.say(plain, "  missing: ", "    ", clean(m), 2)
	}
	for i, n := range r.Data.Notes {
		if i == d.missing {
			break
		}
		s.say(faint, "  ", "    ", clean(n), 2)
	}
}

// late is the share of readings below which more is lacking than a few late
// ticks explain.
const late = 0.97

// dataParts says how complete the data are and how well aligned.
func dataParts(r *analysis.Result, most int) []string {
	var parts []string
	if len(r.Data.Missing) > 0 {
		parts = append(parts, "INCOMPLETE")
	} else {
		parts = append(parts, "complete")
	}
	if c := r.Data.Coverage; c != nil {
		text := fmt.Sprintf("%s of the GPU readings that were due", percentExact(*c))
		if len(r.Data.Missing) == 0 && *c < late {
			parts = nil
			text = "nothing was lost, but only " + text + " were taken"
		}
		parts = append(parts, text)
	}
	switch n := len(r.Data.Unaligned); {
	case n > 0:
		parts = append(parts, fmt.Sprintf("NOT aligned: %s", cleanSome(r.Data.Unaligned, most)))
	case r.Job.Nodes > 1:
		parts = append(parts, "clocks aligned within ±"+nanos(r.Data.BoundNS))
	case r.Data.BoundNS > 0:
		parts = append(parts, "one node, stamps within ±"+nanos(r.Data.BoundNS))
	}
	return parts
}

// percentExact does not round 99.96 % up to the whole.
func percentExact(share float64) string {
	if share < 1 && share > 0.99 {
		return fmt.Sprintf("%.2f %%", min(100*share, 99.99))
	}
	return percent(share)
}

func cleanSome(names []string, most int) string {
	var safe []string
	for _, n := range names {
		safe = append(safe, clean(n))
	}
	return some(safe, most)
}
