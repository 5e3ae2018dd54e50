package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gswarm/gswarm/table"
)

// stage is a phase with what was found in it.
type stage struct {
	Phase
	all      []shares // of the workers
	lost     []float64
	suspects []*suspect
	period   period
	turns    []turn
	// causes are those that explain the suspects, in their order.
	causes []Cause
}

// gpuSeconds is the GPU time of the whole run, in seconds.
func (m *model) gpuSeconds() float64 { return float64(len(m.devices)) * m.span.Seconds() }

// lateFindings explains the suspects of a stage.
func (m *model) lateFindings(st *stage) []Finding {
	var out []Finding
	rules := lateRules()
	for _, s := range st.suspects {
		if s.once {
			st.causes = append(st.causes, "")
			continue
		}
		if s.serial() {
			st.causes = append(st.causes, SerialRank)
			out = append(out, s.serialFinding())
			continue
		}
		r, explained, shows := explain(s, rules)
		if r == nil {
			st.causes = append(st.causes, "")
			continue
		}
		st.causes = append(st.causes, r.cause)
		f := s.lateFinding(r, explained, shows)
		f.Effect = ptr(m.effect(st, s))
		switch {
		case s.steady < steadily && *f.Effect < worthTelling/2:
			f.Severity = Info
		case s.steady < steadily:
			f.Severity = Warning
		}
		out = append(out, f)
	}
	return out
}

// effect is the share of the job's GPU time that the others waited for a
// suspect.
func (m *model) effect(st *stage, s *suspect) float64 {
	sum := 0.0
	for _, v := range m.lost(st.Span, st.all, []*suspect{s}) {
		sum += v
	}
	return sum * st.Seconds() / m.gpuSeconds()
}

// serialFinding says that all waited for one.
func (s *suspect) serialFinding() Finding {
	f := serialFinding(s.device, s.span)
	f.Detail = fmt.Sprintf("The others sat in a collective %s of the time and did nothing of their own; its GPU was empty or copied. Checkpoints, logging and reading by one rank look like that.",
		percent(s.typical.wait))
	f.Confidence = confidence(s, 1)
	f.Evidence = []Evidence{
		s.waited(),
		s.m.readingsShow(s.device, s.span, fmt.Sprintf("something was resident on it %s of the time, on the others %s", percent(s.own.util), percent(s.rest.util)), table.GPUUtil),
	}
	if s.span.Seconds() >= 0.1*s.m.span.Seconds() {
		f.Severity = Problem
	}
	f.Effect = ptr(s.excess * s.span.Seconds() * float64(len(s.others)) / s.m.gpuSeconds())
	return f
}

// mergeFindings joins findings of one cause at the same places in several
// phases, and of several GPUs of a node at the same time, and puts all in
// order: by severity, then by effect.
func mergeFindings(all []Finding) []Finding {
	out := []Finding{}
	for _, f := range all {
		at := slices.IndexFunc(out, func(o Finding) bool { return o.Cause == f.Cause && joins(o, f) })
		if at < 0 {
			out = append(out, f)
			continue
		}
		out[at] = join(out[at], f)
	}
	rank := map[Severity]int{Problem: 0, Warning: 1, Info: 2}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank[a.Severity], rank[b.Severity]), cmp.Compare(effectOf(b), effectOf(a)), cmp.Compare(a.BeginNS, b.BeginNS), cmp.Compare(a.Title, b.Title))
	})
	return out
}

func effectOf(f Finding) float64 {
	if f.Effect == nil {
		return -1
	}
	return *f.Effect
}

// joins says whether two findings of one cause are one: of the same places, or
// of the same node at overlapping times.
func joins(a, b Finding) bool {
	if slices.EqualFunc(a.Places, b.Places, samePlace) {
		return true
	}
	if len(a.Places) == 0 || len(b.Places) == 0 {
		return false
	}
	return a.Places[0].Node == b.Places[0].Node && a.BeginNS < b.EndNS && b.BeginNS < a.EndNS
}

func samePlace(a, b Place) bool {
	same := func(x, y *int) bool { return x == nil && y == nil || x != nil && y != nil && *x == *y }
	return a.Node == b.Node && same(a.GPU, b.GPU) && same(a.Rank, b.Rank)
}

// join puts two findings of one cause into one.
func join(a, b Finding) Finding {
	if effectOf(b) > effectOf(a) {
		a.Detail, a.Title = b.Detail, b.Title
	}
	for _, p := range b.Places {
		if !slices.ContainsFunc(a.Places, func(o Place) bool { return samePlace(o, p) }) {
			a.Places = append(a.Places, p)
		}
	}
	if len(a.Places) > 1 && a.Places[0].GPU != nil {
		list := make([]string, len(a.Places))
		for i, p := range a.Places {
			list[i] = fmt.Sprint(*p.GPU)
		}
		if _, rest, ok := strings.Cut(a.Title, ") "); ok {
			a.Title = fmt.Sprintf("GPUs %s of %s: each %s", strings.Join(list, ", "), a.Places[0].Node, rest)
		}
	}
	a.BeginNS, a.EndNS = min(a.BeginNS, b.BeginNS), max(a.EndNS, b.EndNS)
	if a.Effect != nil && b.Effect != nil {
		a.Effect = ptr(min(1, *a.Effect+*b.Effect))
	} else if a.Effect == nil {
		a.Effect = b.Effect
	}
	if b.StepExcess != nil && (a.StepExcess == nil || *b.StepExcess > *a.StepExcess) {
		a.StepExcess = b.StepExcess
	}
	a.Confidence = max(a.Confidence, b.Confidence)
	rank := map[Severity]int{Problem: 0, Warning: 1, Info: 2}
	if rank[b.Severity] < rank[a.Severity] {
		a.Severity = b.Severity
	}
	a.Evidence = append(a.Evidence, b.Evidence...)
	return a
}
