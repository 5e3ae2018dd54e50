package report

import (
	"fmt"
	"strings"

	"github.com/gswarm/gswarm/analysis"
)

// answer is what a report begins with.
type answer struct {
	style
	// text is the answer, remedy what to do, more what else one should know
	// at once.
	text, remedy, more string
}

// headline puts the result into a sentence: who was slow, how much and why; or
// what else cost most; or that nothing did.
func headline(r *analysis.Result) answer {
	a := answer{style: good}
	switch {
	case len(r.Stragglers) > 0:
		a.style, a.text = bad, stragglerSentence(r)
		for _, f := range r.Findings {
			if f.Cause == r.Stragglers[0].Cause && f.Cause != "" {
				a.remedy = clean(f.Remedy)
				break
			}
		}
	case len(r.Findings) > 0 && r.Findings[0].Severity != analysis.Info:
		f := r.Findings[0]
		a.style, a.text, a.remedy = severityStyle(f.Severity), clean(f.Title), clean(f.Remedy)
		if f.Effect != nil {
			a.text += ": " + percent(*f.Effect) + " of the job's GPU time"
		}
	case r.Job.GPUs == 0:
		a.style, a.text = plain, "No GPU was sampled: "+hostSentence(r)
	default:
		a.text = "No problem found: " + evenSentence(r)
	}
	if also := others(r); len(also) > 0 {
		f := also[0]
		a.more = "Also: " + clean(f.Title)
		if f.Effect != nil {
			a.more += " (" + percent(*f.Effect) + " of GPU time)"
		}
		if n := len(also) - 1; n > 0 {
			a.more += fmt.Sprintf(", and %s", plural(n, "more problem"))
		}
		a.more += "."
	}
	if len(r.Data.Missing) > 0 {
		a.more = strings.TrimSpace(a.more + " The data lack something: see the end.")
	}
	return a
}

// others are the problems that the headline does not name.
func others(r *analysis.Result) []analysis.Finding {
	var also []analysis.Finding
	named := analysis.Cause("")
	if len(r.Stragglers) > 0 {
		named = r.Stragglers[0].Cause
	} else if len(r.Findings) > 0 {
		named = r.Findings[0].Cause
	}
	first := true
	for _, f := range r.Findings {
		if f.Cause == named && first {
			first = false
			continue
		}
		if f.Severity == analysis.Problem {
			also = append(also, f)
		}
	}
	return also
}

// stragglerSentence names the dearest straggler. The step of a rank that the
// others wait for is 1/(1-excess) times as long as theirs.
func stragglerSentence(r *analysis.Result) string {
	g := r.Stragglers[0]
	if g.ExcessNS == 0 { // it worked alone
		return placeText(g.Place) + " worked alone for " + duration(g.Seconds()) + " while the others waited"
	}
	text := placeText(g.Place) + " was slower than the others"
	if g.Excess > 0 && g.Excess < 1 {
		text = fmt.Sprintf("%s was %.1f× slower than the others", placeText(g.Place), 1/(1-g.Excess))
	}
	if g.Chronic {
		text += " for " + duration(g.Seconds())
	} else {
		text += " in " + plural(g.Steps, "step")
	}
	if g.Cause == "" {
		return text + "; no cause found"
	}
	return text + ": " + causeClause(g.Cause)
}

func causeClause(c analysis.Cause) string {
	if w, ok := causeWords[c]; ok {
		return w
	}
	return clean(string(c))
}

// evenSentence says how a job without problems spent its time.
func evenSentence(r *analysis.Result) string {
	text := plural(r.Job.GPUs, "GPU") + " for " + duration(r.Job.Seconds())
	if c := activeColumn(r); c != "" {
		text += fmt.Sprintf(", %s %s on average", metricOf(c).name, metricOf(c).value(r.Totals.Metrics[c].Mean))
	}
	if r.Overall.Name != "" && r.Overall.Name != string(analysis.Unknown) {
		text += ", bound by " + bottleneckWord(r.Overall)
	}
	return text
}

func hostSentence(r *analysis.Result) string {
	text := plural(r.Job.Nodes, "node") + " for " + duration(r.Job.Seconds())
	sum, n := 0.0, 0
	for _, h := range r.Hosts {
		if h.CPUShare != nil {
			sum += *h.CPUShare
			n++
		}
	}
	if n > 0 {
		text += ", CPUs busy " + percent(sum/float64(n))
	}
	return text
}
