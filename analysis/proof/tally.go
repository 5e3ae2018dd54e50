package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/analysis/plant"
)

// verdict is what was said of one run.
type verdict struct {
	cause   analysis.Cause // planted; empty in a clean run
	variant string
	size    float64
	longer  float64 // by how much the steps became longer
	seed    uint64
	// said are the causes found, in order; alarms those among them that are a
	// problem or a warning.
	said, alarms []analysis.Cause
	// place and span say whether the first finding of the planted cause names
	// whom and when it concerns; excess is the step time that it states.
	place, span bool
	excess      *float64
}

func (v verdict) first() bool { return len(v.said) > 0 && v.said[0] == v.cause }

// judge analyses a run.
func judge(c *plant.Case) (verdict, error) {
	v := verdict{cause: c.Cause, variant: c.Variant, size: c.Size, longer: c.Excess, seed: c.Seed}
	r, err := analysis.Analyze(context.Background(), c.Source, c.Facts)
	if err != nil {
		return v, fmt.Errorf("analyse %v: %w", c, err)
	}
	named := false
	for _, f := range r.Findings {
		v.said = append(v.said, f.Cause)
		if f.Severity != analysis.Info {
			v.alarms = append(v.alarms, f.Cause)
		}
		if f.Cause == c.Cause && !named {
			named = true
			v.place, v.span, v.excess = rightPlace(c, f.Places), overlaps(c.Active, f.Span), f.StepExcess
		}
	}
	return v, nil
}

// rightPlace says whether one of the places is among those concerned and none is
// elsewhere.
func rightPlace(c *plant.Case, places []analysis.Place) bool {
	if len(c.Ranks) == 0 && len(c.Nodes) == 0 {
		return true
	}
	for _, p := range places {
		switch {
		case p.Rank != nil && len(c.Ranks) > 0:
			if !slices.Contains(c.Ranks, *p.Rank) {
				return false
			}
		case !slices.Contains(c.Nodes, p.Node):
			return false
		case p.GPU != nil && len(c.Ranks) == 1 && c.Ranks[0]%8 != *p.GPU:
			return false
		}
	}
	return len(places) > 0
}

// overlaps says whether two stretches have at least half of the shorter one in
// common.
func overlaps(a, b analysis.Span) bool {
	common := min(a.EndNS, b.EndNS) - max(a.BeginNS, b.BeginNS)
	return common >= 0 && 2*common >= min(a.EndNS-a.BeginNS, b.EndNS-b.BeginNS)
}

// tally is what came out of all runs.
type tally struct {
	s        *settings
	verdicts []verdict
}

func (s *settings) tally(m *plant.Material) (*tally, error) {
	type task struct {
		cause analysis.Cause
		size  float64
		seed  uint64
	}
	var tasks []task
	for _, size := range s.sizes {
		for _, cause := range s.causes {
			for i := range s.runs {
				tasks = append(tasks, task{cause, size, s.first + uint64(i)})
			}
		}
	}
	for i := range s.clean {
		tasks = append(tasks, task{seed: s.first + uint64(i)})
	}
	t := &tally{s: s, verdicts: make([]verdict, len(tasks))}
	errs := make([]error, len(tasks))
	next := make(chan int)
	var all sync.WaitGroup
	for range s.workers {
		all.Go(func() {
			for i := range next {
				var c *plant.Case
				if k := tasks[i]; k.cause == "" {
					c = m.Clean(k.seed)
				} else {
					c = m.Make(k.cause, k.size, k.seed)
				}
				t.verdicts[i], errs[i] = judge(c)
			}
		})
	}
	for i := range tasks {
		next <- i
	}
	close(next)
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// write prints the tables.
func (t *tally) write(out io.Writer) {
	for _, size := range t.s.sizes {
		t.writeSize(out, size)
	}
	if t.s.clean > 0 {
		t.writeClean(out)
	}
}

func (t *tally) writeSize(out io.Writer, size float64) {
	fmt.Fprintf(out, "### +%g %%, %d runs of each cause, seeds %d to %d\n\n", size*100, t.s.runs, t.s.first, t.s.first+uint64(t.s.runs)-1)
	fmt.Fprintln(out, "| cause | named first | named | place | time | step excess stated / true | precision of its alarms | named first instead |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|")
	sumFirst, sumRuns := 0, 0
	for _, cause := range t.s.causes {
		var first, named, place, span, runs int
		var ratios []float64
		instead := map[string]int{}
		for _, v := range t.verdicts {
			if v.cause != cause || v.size != size {
				continue
			}
			runs++
			if v.first() {
				first++
			} else if len(v.said) == 0 {
				instead["nothing"]++
			} else {
				instead[string(v.said[0])]++
			}
			if slices.Contains(v.said, cause) {
				named++
				place += one(v.place)
				span += one(v.span)
				if v.excess != nil && v.longer > 0 {
					ratios = append(ratios, *v.excess/v.longer)
				}
			}
		}
		sumFirst, sumRuns = sumFirst+first, sumRuns+runs
		fmt.Fprintf(out, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", cause, share(first, runs), share(named, runs), share(place, named), share(span, named),
			median(ratios), t.precision(cause, size), most(instead))
	}
	fmt.Fprintf(out, "| all | %s | | | | | | |\n\n", share(sumFirst, sumRuns))
}

// precision is the share of the alarms of a cause that were raised in runs into
// which it was planted; clean runs count as well.
func (t *tally) precision(cause analysis.Cause, size float64) string {
	right, all := 0, 0
	for _, v := range t.verdicts {
		if (v.size == size || v.cause == "") && slices.Contains(v.alarms, cause) {
			all++
			right += one(v.cause == cause)
		}
	}
	return share(right, all)
}

func (t *tally) writeClean(out io.Writer) {
	alarms, runs := map[string]int{}, 0
	raised := 0
	for _, v := range t.verdicts {
		if v.cause != "" {
			continue
		}
		runs++
		raised += one(len(v.alarms) > 0)
		for _, c := range v.alarms {
			alarms[string(c)]++
		}
	}
	fmt.Fprintf(out, "### Clean runs, seeds %d to %d\n\n%d of %d raised an alarm: %s\n", t.s.first, t.s.first+uint64(t.s.clean)-1, raised, runs, most(alarms))
}

// failures lists each run that went wrong with how to see it.
func (t *tally) failures() string {
	var b strings.Builder
	for _, v := range t.verdicts {
		switch {
		case v.cause == "" && len(v.alarms) > 0:
			fmt.Fprintf(&b, "clean (%s), seed %d: alarms %v\n\tgo run ./analysis/proof -show clean,0,%d\n", v.variant, v.seed, v.alarms, v.seed)
		case v.cause != "" && !v.first():
			fmt.Fprintf(&b, "%s (%s), %g %%, seed %d: named %v\n\tgo run ./analysis/proof -show %s,%g,%d\n", v.cause, v.variant, v.size*100, v.seed, v.said, v.cause, v.size, v.seed)
		}
	}
	return b.String()
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func share(n, of int) string {
	if of == 0 {
		return "–"
	}
	return fmt.Sprintf("%d/%d", n, of)
}

func median(v []float64) string {
	if len(v) == 0 {
		return "–"
	}
	slices.Sort(v)
	m := v[len(v)/2]
	return fmt.Sprintf("%.2f", math.Round(m*100)/100)
}

// most lists what came most often, the three first.
func most(n map[string]int) string {
	if len(n) == 0 {
		return "–"
	}
	var words []string
	for w := range n {
		words = append(words, w)
	}
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(n[b]-n[a], strings.Compare(a, b)) })
	for i, w := range words {
		words[i] = fmt.Sprintf("%s %d", w, n[w])
	}
	return strings.Join(words[:min(4, len(words))], ", ")
}
