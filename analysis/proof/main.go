// Command proof holds package analysis against runs whose trouble is known: it
// plants each cause again and again, has the run analysed, and prints how often
// the cause was named first, who and when it was said to concern, what else was
// said, and how often runs without trouble raised an alarm.
//
//	go run ./analysis/proof                                  100 runs of each cause at +10 %, 100 clean ones
//	go run ./analysis/proof -sizes 0.02,0.05,0.1,0.2,0.5     recall and precision by effect size
//	go run ./analysis/proof -show imbalance,0.1,7            one run, with all that is said of it
//
// Runs are made from the seeds FIRST, FIRST+1, ...; the same seed makes the same
// run. It is no part of gswarm's binary.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/analysis/plant"
)

type settings struct {
	runs, clean, workers int
	sizes                []float64
	causes               []analysis.Cause
	first                uint64
	failures             string
	show                 string
}

func main() {
	s, err := parse(os.Args[1:])
	if err == nil {
		err = s.run(os.Stdout)
	}
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("proof", flag.ContinueOnError)
	f.IntVar(&s.runs, "runs", 100, "runs of each cause and size")
	f.IntVar(&s.clean, "clean", 100, "clean runs")
	f.IntVar(&s.workers, "workers", 2, "runs made and analysed at once")
	f.Uint64Var(&s.first, "first", 1, "the first seed")
	f.StringVar(&s.failures, "failures", "", "write what failed, with how to see it, to `FILE`")
	f.StringVar(&s.show, "show", "", "print what is said of one run: `CAUSE,SIZE,SEED`, or clean,0,SEED")
	sizes := f.String("sizes", "0.1", "effect sizes, as shares of the step")
	causes := f.String("causes", "", "only these causes")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	for _, word := range strings.Split(*sizes, ",") {
		v, err := strconv.ParseFloat(word, 64)
		if err != nil || v <= 0 || v > 1 {
			return nil, fmt.Errorf("-sizes: %q is no share between 0 and 1", word)
		}
		s.sizes = append(s.sizes, v)
	}
	s.causes = plant.Causes()
	if *causes != "" {
		s.causes = nil
		for _, word := range strings.Split(*causes, ",") {
			if !slices.Contains(plant.Causes(), analysis.Cause(word)) {
				return nil, fmt.Errorf("-causes: %q cannot be planted; these can: %v", word, plant.Causes())
			}
			s.causes = append(s.causes, analysis.Cause(word))
		}
	}
	return s, nil
}

func (s *settings) run(out io.Writer) error {
	m, err := plant.Load()
	if err != nil {
		return err
	}
	if s.show != "" {
		return s.print(m, out)
	}
	t, err := s.tally(m)
	if err != nil {
		return err
	}
	t.write(out)
	if s.failures != "" {
		return os.WriteFile(s.failures, []byte(t.failures()), 0o644)
	}
	return nil
}

// print shows one run and all that is said of it.
func (s *settings) print(m *plant.Material, out io.Writer) error {
	words := strings.Split(s.show, ",")
	if len(words) != 3 {
		return fmt.Errorf("-show: %q is not CAUSE,SIZE,SEED", s.show)
	}
	size, err := strconv.ParseFloat(words[1], 64)
	if err != nil {
		return fmt.Errorf("-show: %w", err)
	}
	seed, err := strconv.ParseUint(words[2], 10, 64)
	if err != nil {
		return fmt.Errorf("-show: %w", err)
	}
	var c *plant.Case
	switch cause := analysis.Cause(words[0]); {
	case cause == "clean":
		c = m.Clean(seed)
	case slices.Contains(plant.Causes(), cause):
		c = m.Make(cause, size, seed)
	default:
		return fmt.Errorf("-show: %q cannot be planted", cause)
	}
	r, err := analysis.Analyze(context.Background(), c.Source, c.Facts)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%v\nrun %d to %d, cause %d to %d (%.1f s to %.1f s of %.1f s), step %.0f ms, %d steps\n", c,
		c.Facts.BeginNS, c.Facts.EndNS, c.Active.BeginNS, c.Active.EndNS, float64(c.Active.BeginNS-c.Facts.BeginNS)/1e9,
		float64(c.Active.EndNS-c.Facts.BeginNS)/1e9, float64(c.Facts.EndNS-c.Facts.BeginNS)/1e9, float64(c.StepNS)/1e6, len(c.Steps))
	r.Steps.List = nil
	e := json.NewEncoder(out)
	e.SetIndent("", " ")
	return e.Encode(struct {
		Findings   []analysis.Finding
		Stragglers []analysis.Straggler
		Phases     []analysis.Phase
		Steps      analysis.Steps
	}{r.Findings, r.Stragglers, r.Phases, r.Steps})
}
