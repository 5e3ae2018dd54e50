package analysis

import (
	"fmt"
	"math"
)

// rule is one cause that can make a GPU late. What it is, what it needs, what
// it explains and what to do about it stand together; the engine knows none of
// them by name.
type rule struct {
	cause Cause
	// explains returns the share of the suspect's excess that the cause
	// accounts for, 0 where nothing shows it or what it needs was not read,
	// and the rows that show it.
	explains func(s *suspect) (share float64, shows []Evidence)
	// title says what is so, after the name of the place.
	title  string
	remedy string
}

// enough is the share of the excess that a cause must explain to be named.
const enough = 0.3

// lateRules are the causes of one GPU being late, those with the sharper
// evidence first: of two that explain the same the first is named.
func lateRules() []rule {
	return append(append(faultRules(), gpuRules()...), hostRules()...)
}

// explain names the cause that explains most of a suspect's excess; nil where
// none explains enough.
func explain(s *suspect, rules []rule) (*rule, float64, []Evidence) {
	var best *rule
	most := enough
	var shows []Evidence
	for i := range rules {
		share, ev := rules[i].explains(s)
		if math.IsNaN(share) {
			continue
		}
		if share = clamp(share, 0, 1); share > most || best == nil && share == most {
			best, most, shows = &rules[i], share, ev
		}
	}
	return best, most, shows
}

// lateFinding is the finding that a rule makes of a suspect.
func (s *suspect) lateFinding(r *rule, explained float64, shows []Evidence) Finding {
	f := Finding{
		Cause: r.cause, Title: s.device.who() + " " + r.title, Places: []Place{s.device.Place}, Span: s.span,
		Remedy: r.remedy, Severity: Problem, Confidence: confidence(s, explained),
		StepExcess: ptr(s.excess / (1 - min(s.excess, 0.99))),
	}
	f.Detail = fmt.Sprintf("The others waited %s of the time%s for it, good to %s. This explains %s of that.",
		percent(s.excess), s.milliseconds(s.excess), percent(s.bound), percent(explained))
	f.Evidence = append([]Evidence{s.waited()}, shows...)
	return f
}

// waited is the evidence that a suspect was waited for.
func (s *suspect) waited() Evidence {
	return s.m.unitsShow(s.device, s.span, fmt.Sprintf(
		"it worked %s of the time, others %s; it was empty %s, others %s; it waited %s, others %s",
		percent(s.shares.work), percent(s.typical.work), percent(s.shares.idle), percent(s.typical.idle),
		percent(s.shares.wait), percent(s.typical.wait)), unitColumns...)
}

// confidence grows with how far the excess stands above what it is good to and
// with how much of it is explained.
func confidence(s *suspect, explained float64) float64 {
	clear := 1 - math.Exp(-s.excess/(2*s.bound))
	return math.Round(100*clamp(clear*(0.5+0.5*explained), 0.05, 0.99)) / 100
}

// extra is how much more of the time the suspect spent than the others.
func (s *suspect) extraWork() float64 { return s.shares.work - s.typical.work }
func (s *suspect) extraIdle() float64 { return s.shares.idle - s.typical.idle }

// extraCopy is what is left of the excess: the GPU held something that neither
// worked nor waited.
func (s *suspect) extraCopy() float64 {
	return max(0, s.excess-max(0, s.extraWork())-max(0, s.extraIdle()))
}

// slowClock is the share of the time by which the suspect's work took longer for
// its clock being below the others', and the ratio of the clocks.
func (s *suspect) slowClock() (share, ratio float64) {
	ratio = s.own.loadClock / s.rest.loadClock
	if math.IsNaN(ratio) || ratio >= 1 {
		return 0, ratio
	}
	return s.shares.work * (1 - ratio), ratio
}
