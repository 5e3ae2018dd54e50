package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
)

// openTimeline opens a run's timeline and makes it first where there is none,
// or where the one there is was made while the run still went on. Partial takes
// what is there of a run that still does.
func (a *app) openTimeline(ctx context.Context, dir rundir.Dir, partial bool) (*dataset.Timeline, error) {
	tl, err := dataset.Open(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !slices.ContainsFunc(tl.Meta.Missing, func(m merge.Missing) bool { return m.Code == merge.Running }):
		return tl, nil
	}
	bar := newProgress(a.stderr)
	_, err = merge.Run(ctx, string(dir), merge.Options{Partial: partial, Progress: bar.show})
	bar.clear()
	if err != nil {
		return nil, err
	}
	return dataset.Open(dir)
}

// analyze opens a run and says what is to be said of it.
func (a *app) analyze(ctx context.Context, dir rundir.Dir, partial bool) (*dataset.Timeline, *analysis.Result, error) {
	tl, err := a.openTimeline(ctx, dir, partial)
	if err != nil {
		return nil, nil, err
	}
	facts, err := tl.Facts(a.now())
	if err != nil {
		return nil, nil, err
	}
	r, err := analysis.Analyze(ctx, tl, facts)
	if err != nil {
		return nil, nil, fmt.Errorf("analysing %s: %w", dir, err)
	}
	return tl, r, nil
}
