package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
)

// JSON writes the whole comparison.
func (c *Comparison) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(c); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}

// Text writes the comparison for a person: what differs first, then the runs
// side by side, as many as the page is wide for.
func (c *Comparison) Text(w io.Writer, o TextOptions) error {
	const least = 40
	s := &sheet{width: max(o.Width, least)}
	s.say(title, "", "  ", c.answer(), 3)
	s.gap()
	for i, r := range c.Runs {
		const most = 12
		if i == most {
			s.say(faint, "  ", "  ", fmt.Sprintf("and %s: --json", plural(len(c.Runs)-i, "more run")), 1)
			break
		}
		text := fmt.Sprintf("%s  %s: %s, %s, %s", r.Name, clean(r.Run), plural(r.Nodes, "node"), plural(r.GPUs, "GPU"), duration(r.Seconds))
		if r.Missing > 0 {
			text += ", data INCOMPLETE"
		}
		if len(r.Command) > 0 {
			text += ", " + command(r.Command)
		}
		s.say(plain, "  ", "     ", text, 2)
	}
	// Each group of runs is set beside the first: as many as the page is wide
	// for.
	for from := 1; from < max(len(c.Runs), 2); {
		const most = 3
		to := min(from+most, len(c.Runs))
		for to > from+1 && tableWidth("  ", c.columns(from, to)) > s.width {
			to--
		}
		s.gap()
		s.table("  ", c.columns(from, to))
		from = max(to, from+1)
	}
	c.causes(s)
	s.gap()
	s.say(faint, "", "", "≈: the difference is at most twice the standard error of both, by the spread over GPUs, of steps over steps. A change without ≈ or ! has no such measure.", 3)
	return s.print(w, o.Colour)
}

// columns are a table of the runs [from, to) beside the first.
func (c *Comparison) columns(from, to int) []column {
	cols := []column{{keep: 20}, {head: c.Runs[0].Name, right: true, keep: 19}}
	for i := from; i < to; i++ {
		cols = append(cols, column{head: c.Runs[i].Name, right: true, keep: 18}, column{right: true, keep: 17})
	}
	for _, row := range c.Rows {
		cols[0].cells = append(cols[0].cells, row.name)
		cols[1].cells = append(cols[1].cells, row.valueText(0))
		for i := from; i < to; i++ {
			at := 2 + 2*(i-from)
			cols[at].cells = append(cols[at].cells, row.valueText(i))
			cols[at+1].cells = append(cols[at+1].cells, row.changeText(i))
		}
	}
	return cols
}

func (r ComparedRow) valueText(i int) string {
	if r.Values[i] == nil {
		return "–"
	}
	return r.text(*r.Values[i])
}

// changeText is the change in percent, with ≈ where it is within the noise and !
// where it is beyond.
func (r ComparedRow) changeText(i int) string {
	c := r.Change[i]
	if c == nil {
		return ""
	}
	text := signed(*c)
	switch w := r.WithinNoise[i]; {
	case w == nil:
		return text + "  "
	case *w:
		return text + " ≈"
	}
	return text + " !"
}

func signed(share float64) string {
	p := 100 * share
	if math.Abs(p) < 9.95 {
		return fmt.Sprintf("%+.1f %%", p)
	}
	return fmt.Sprintf("%+.0f %%", p)
}

func (c *Comparison) causes(s *sheet) {
	if len(c.Causes) == 0 {
		return
	}
	s.heading("Causes, share of GPU time")
	cols := []column{{keep: 20}}
	const most = 6
	runs := min(len(c.Runs), most)
	for _, r := range c.Runs[:runs] {
		cols = append(cols, column{head: r.Name, right: true, keep: 19})
	}
	for i, f := range c.Causes {
		const mostCauses = 12
		if i == mostCauses {
			break
		}
		cols[0].cells = append(cols[0].cells, clean(string(f.Cause)))
		for k := range runs {
			text := "–"
			switch {
			case f.Effects[k] != nil:
				text = percent(*f.Effects[k])
			case f.Titles[k] != "":
				text = "yes"
			}
			cols[1+k].cells = append(cols[1+k].cells, text)
		}
	}
	s.table("  ", cols)
}

// answer says in a sentence how the last run differs from the first: in its
// steps where both have them, else in its length.
func (c *Comparison) answer() string {
	first, last := 0, len(c.Runs)-1
	name := func(i int) string { return fmt.Sprintf("%s (%s)", c.Runs[i].Name, clean(c.Runs[i].Run)) }
	for _, metric := range []string{"step_s", "length_s"} {
		for _, row := range c.Rows {
			if row.Metric != metric || row.Change[last] == nil || row.Values[first] == nil {
				continue
			}
			what, those, verb, take := "steps", "those", "are", "take"
			if metric == "length_s" {
				what, those, verb, take = "length", "that", "is", "is"
			}
			values := fmt.Sprintf("%s instead of %s", row.valueText(last), row.valueText(first))
			if w := row.WithinNoise[last]; w != nil && *w {
				return fmt.Sprintf("The %s of %s %s as long as %s of %s, within the noise: %s", what, name(last), take, those, name(first), values)
			}
			word := "longer"
			if *row.Change[last] < 0 {
				word = "shorter"
			}
			return fmt.Sprintf("The %s of %s %s %s %s than %s of %s: %s", what, name(last), verb, strings.TrimLeft(signed(*row.Change[last]), "+-"), word, those, name(first), values)
		}
	}
	return fmt.Sprintf("%s and %s have nothing in common that was measured", name(first), name(last))
}
