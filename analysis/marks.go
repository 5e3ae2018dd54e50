package analysis

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// fewMarks is how often a mark must come again to be a step's.
const fewMarks = 5

// markedSteps are the steps that the job marked itself: the text that one rank
// marks most often, numbers in it apart. Nil where nothing comes again.
func (m *model) markedSteps() []int64 {
	type key struct {
		node string
		rank int
		text string
	}
	by := map[key][]int64{}
	for _, h := range m.tables.events.list {
		if h.kind != "mark" {
			continue
		}
		var d struct {
			Text string `json:"text"`
		}
		if json.Unmarshal([]byte(h.detail), &d) != nil {
			continue
		}
		k := key{node: h.node, rank: -1, text: withoutNumbers(d.Text)}
		if h.rank != nil {
			k.rank = *h.rank
		}
		by[k] = append(by[k], h.t)
	}
	var best key
	for k, times := range by {
		if len(times) < fewMarks {
			continue
		}
		if c := cmp.Or(cmp.Compare(len(times), len(by[best])), cmp.Compare(best.rank, k.rank), cmp.Compare(best.text, k.text)); c > 0 {
			best = k
		}
	}
	times := by[best]
	slices.Sort(times)
	return times
}

// withoutNumbers replaces each run of digits in a text.
func withoutNumbers(s string) string {
	var b strings.Builder
	digits := false
	for _, r := range s {
		if r >= '0' && r <= '9' {
			if !digits {
				b.WriteByte('#')
			}
			digits = true
			continue
		}
		digits = false
		b.WriteRune(r)
	}
	return b.String()
}
