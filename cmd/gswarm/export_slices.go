package main

import (
	"fmt"
	"iter"
	"strconv"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/export"
)

// jobSlices are what the analysis found, as stretches of time to show beside the
// readings: the job's phases and steps, and each finding where it concerns
// somebody.
func jobSlices(r *analysis.Result) iter.Seq[export.Slice] {
	return func(yield func(export.Slice) bool) {
		whole := func(track, name string, s analysis.Span) bool {
			return yield(export.Slice{Node: export.Job, Track: track, Name: name, Begin: s.BeginNS, End: s.EndNS})
		}
		for _, p := range r.Phases {
			name := p.Bottleneck.Name
			if p.StepNS != nil {
				name += fmt.Sprintf(", steps of %.3g s", float64(*p.StepNS)/1e9)
			}
			if !whole("phases", name, p.Span) {
				return
			}
		}
		for i, s := range r.Steps.List {
			if !whole("steps", "step "+strconv.Itoa(i*max(r.Steps.ListEvery, 1)+1), s.Span) {
				return
			}
		}
		for i, f := range r.Findings {
			// Findings may overlap; each has a track of its own.
			track := fmt.Sprintf("finding %d: %s", i+1, f.Cause)
			if len(f.Places) == 0 && !whole(track, f.Title, f.Span) {
				return
			}
			for _, at := range f.Places {
				s := export.Slice{Node: at.Node, Track: track, Name: f.Title, Begin: f.BeginNS, End: f.EndNS}
				if at.GPU != nil {
					s.Group = "GPU " + strconv.Itoa(*at.GPU)
				} else if at.Rank != nil {
					s.Group = "rank " + strconv.Itoa(*at.Rank)
				}
				if s.Node == "" {
					s.Node = export.Job
				}
				if !yield(s) {
					return
				}
			}
		}
	}
}
