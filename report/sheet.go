package report

import (
	"io"
	"strings"
	"unicode/utf8"
)

// style is how a line looks on a terminal that has colours.
type style string

const (
	plain  style = ""
	title  style = "\x1b[1m"
	faint  style = "\x1b[2m"
	bad    style = "\x1b[1;31m"
	warn   style = "\x1b[1;33m"
	good   style = "\x1b[1;32m"
	normal       = "\x1b[0m"
)

// sheet is text under way: lines no wider than width.
type sheet struct {
	width int
	lines []line
}

type line struct {
	text string
	style
}

func (s *sheet) gap() { s.lines = append(s.lines, line{}) }

// say adds a paragraph: its first line after indent, the others after hang, at
// most so many lines, 0 for as many as it takes.
func (s *sheet) say(st style, indent, hang, text string, most int) {
	lines := wrap(indent+text, s.width, hang)
	if most > 0 && len(lines) > most {
		lines = lines[:most]
		lines[most-1] = clip(lines[most-1]+" …", s.width)
	}
	for _, l := range lines {
		s.lines = append(s.lines, line{l, st})
	}
}

func (s *sheet) heading(text string) {
	s.gap()
	s.say(title, "", "  ", text, 2)
}

// units stay on the line of their number.
var units = map[string]bool{"%": true, "s": true, "ms": true, "µs": true, "min": true, "h": true, "W": true, "GB": true, "MB": true, "°C": true, "MHz": true, "kJ": true}

// words splits text at spaces, but not between a number and its unit.
func words(text string) []string {
	var all []string
	for word := range strings.SplitSeq(text, " ") {
		if word == "" {
			continue
		}
		if n := len(all); n > 0 && units[strings.TrimRight(word, ".,;:)")] {
			if last := all[n-1][len(all[n-1])-1]; last >= '0' && last <= '9' {
				all[n-1] += " " + word
				continue
			}
		}
		all = append(all, word)
	}
	return all
}

// wrap breaks text between words; a word that is wider than the page is cut.
func wrap(text string, width int, hang string) []string {
	lead := text[:len(text)-len(strings.TrimLeft(text, " "))]
	var lines []string
	now := lead
	empty := true
	for _, word := range words(text) {
		space := " "
		if empty {
			space = ""
		}
		if !empty && utf8.RuneCountInString(now)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, now)
			now, space = hang, ""
		}
		now += space + word
		empty = false
		for utf8.RuneCountInString(now) > width {
			r := []rune(now)
			lines = append(lines, string(r[:width]))
			now = hang + string(r[width:])
			if len(hang) >= width {
				return lines
			}
		}
	}
	return append(lines, now)
}

// clip cuts text to a width and shows that it did.
func clip(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	r := []rune(strings.TrimRight(string([]rune(text)[:max(width-1, 0)]), " "))
	return string(r) + "…"
}

// column is one column of a table. Where the page is too narrow, the columns
// with the lowest keep go first.
type column struct {
	head  string
	right bool
	keep  int
	cells []string
}

// table adds rows of cells; a column without a cell that says something goes, and
// no cell is wider than a third of the page.
func (s *sheet) table(indent string, cols []column) {
	var with []column
	for _, c := range cols {
		said := false
		for i, cell := range c.cells {
			c.cells[i] = clip(cell, s.width/3)
			said = said || cell != ""
		}
		if said {
			with = append(with, c)
		}
	}
	for tableWidth(indent, with) > s.width && len(with) > 1 {
		least := 0
		for i, c := range with {
			if c.keep <= with[least].keep {
				least = i
			}
		}
		with = append(with[:least:least], with[least+1:]...)
	}
	if len(with) == 0 {
		return
	}
	heads := false
	for _, c := range with {
		heads = heads || c.head != ""
	}
	first := 0
	if heads {
		first = -1
	}
	for row := first; row < len(with[0].cells); row++ {
		text := indent
		for i, c := range with {
			cell, gap := c.head, "  "
			if row >= 0 {
				cell = c.cells[row]
			}
			if i == 0 {
				gap = ""
			}
			pad := strings.Repeat(" ", cellWidth(c)-utf8.RuneCountInString(cell))
			if c.right {
				cell = pad + cell
			} else {
				cell += pad
			}
			text += gap + cell
		}
		st := plain
		if row < 0 {
			st = faint
		}
		s.lines = append(s.lines, line{clip(strings.TrimRight(text, " "), s.width), st})
	}
}

func cellWidth(c column) int {
	w := utf8.RuneCountInString(c.head)
	for _, cell := range c.cells {
		w = max(w, utf8.RuneCountInString(cell))
	}
	return w
}

func tableWidth(indent string, cols []column) int {
	w := len(indent) + 2*(len(cols)-1)
	for _, c := range cols {
		w += cellWidth(c)
	}
	return w
}

// print writes the lines, with colours or without.
func (s *sheet) print(w io.Writer, colour bool) error {
	var b strings.Builder
	for _, l := range s.lines {
		if colour && l.style != plain && l.text != "" {
			b.WriteString(string(l.style) + l.text + normal + "\n")
		} else {
			b.WriteString(l.text + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
