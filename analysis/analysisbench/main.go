// Command analysisbench makes a run directory on which the analysis can be timed
// at the size that it is meant for, and times it. The run is a job of steps put
// together from the recorded GPUs (package analysis/plant): a few nodes of it are
// made, and the others are these again under other names, with GPUs, ranks and
// clocks of their own. It has every table that an agent records by default.
//
//	analysisbench -o DIR              the shards; gswarm merge DIR makes the timeline
//	analysisbench -analyse DIR        reads the timeline and prints seconds and peak memory
//
// It is no part of gswarm's binary.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

func main() {
	var s settings
	analyse := flag.String("analyse", "", "analyse the merged run in `DIR` and print what that took")
	flag.StringVar(&s.out, "o", "", "the run directory to make")
	flag.IntVar(&s.nodes, "nodes", 128, "nodes of eight GPUs")
	flag.IntVar(&s.made, "made", 3, "nodes that are made; the others repeat them")
	flag.DurationVar(&s.length, "duration", time.Hour, "length of the run")
	flag.Parse()
	var err error
	switch {
	case *analyse != "":
		err = measure(*analyse)
	case s.out != "" && s.nodes > 0 && s.made > 0:
		err = s.run()
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "analysisbench:", err)
		os.Exit(1)
	}
}

// measure analyses a run as gswarm report does, and prints what that took.
func measure(dir string) error {
	now := clock.System{}
	begin := now.Now()
	tl, err := dataset.Open(rundir.Dir(dir))
	if err != nil {
		return err
	}
	facts, err := tl.Facts(time.Unix(0, wallBegin).Add(24 * time.Hour)) // long after its end
	if err != nil {
		return err
	}
	r, err := analysis.Analyze(context.Background(), tl, facts)
	if err != nil {
		return err
	}
	took := time.Duration(now.Now() - begin)
	rows := int64(0)
	for _, t := range table.All() {
		rows += tl.Count(t)
	}
	found := map[string]int{}
	for _, f := range r.Findings {
		found[fmt.Sprintf("%s (%s)", f.Cause, f.Severity)]++
	}
	fmt.Printf("%d nodes, %d GPUs, %d ranks, %d rows of which %d of gpu: %.1f s, %s; %d steps, %d phases, findings %v\n",
		r.Job.Nodes, r.Job.GPUs, r.Job.Ranks, rows, tl.Count(table.GPU), took.Seconds(), peak(), r.Steps.Count, len(r.Phases), found)
	return nil
}

// peak is the most memory that the process had resident.
func peak() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "peak memory unknown: " + err.Error()
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSpace(v) + " resident at most"
		}
	}
	return "peak memory unknown"
}
