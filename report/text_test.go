package report

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gswarm/gswarm/analysis"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, have []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, have, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(have)); diff != "" {
		t.Errorf("%s: run go test ./report -update if this is right\n%s", path, diff)
	}
}

// TestText holds the text against golden files: every kind of run, and three
// widths of the page for the story of the slow rank.
func TestText(t *testing.T) {
	for name, r := range results() {
		for _, width := range []int{60, 80, 120} {
			if name != "slow-rank" && width != 80 {
				continue
			}
			t.Run(fmt.Sprintf("%s-%d", name, width), func(t *testing.T) {
				var b bytes.Buffer
				if err := Text(&b, r, TextOptions{Width: width, Dir: "gswarm-4711"}); err != nil {
					t.Fatal(err)
				}
				golden(t, fmt.Sprintf("%s-%d.txt", name, width), b.Bytes())
			})
		}
	}
}

// TestTextFits: whatever the run, no line is wider than the page, none steers
// the terminal, and all fit a screen.
func TestTextFits(t *testing.T) {
	for name, r := range results() {
		for _, width := range []int{30, 60, 61, 80, 100, 200} {
			var b bytes.Buffer
			if err := Text(&b, r, TextOptions{Width: width, Dir: "gswärm runs/it's"}); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
			if len(lines) > MaxLines && width >= 60 {
				t.Errorf("%s at %d: %d lines", name, width, len(lines))
			}
			for _, l := range lines {
				if utf8.RuneCountInString(l) > max(width, 40) {
					t.Errorf("%s at %d: %d wide: %q", name, width, utf8.RuneCountInString(l), l)
				}
				if strings.ContainsFunc(l, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }) || !utf8.ValidString(l) {
					t.Errorf("%s at %d: control characters in %q", name, width, l)
				}
			}
		}
	}
}

// TestColour: colours are the only difference.
func TestColour(t *testing.T) {
	var with, without bytes.Buffer
	r := job(1)
	if err := Text(&with, r, TextOptions{Width: 80, Colour: true}); err != nil {
		t.Fatal(err)
	}
	if err := Text(&without, r, TextOptions{Width: 80}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(with.String(), "\x1b[1;31mrank 3 (n1 GPU 3) was 1.5× slower") {
		t.Errorf("begins with %.60q", with.String())
	}
	bare := with.String()
	for _, code := range []style{title, faint, bad, warn, good, normal} {
		bare = strings.ReplaceAll(bare, string(code), "")
	}
	if bare != without.String() {
		t.Error(cmp.Diff(bare, without.String()))
	}
}

func TestHeadline(t *testing.T) {
	once := job(1)
	once.Stragglers[0].Chronic, once.Stragglers[0].Steps, once.Stragglers[0].Cause, once.Findings = false, 1, "", nil
	cause := job(1)
	cause.Stragglers = nil
	info := job(1)
	info.Stragglers, info.Findings = nil, info.Findings[2:]
	for _, c := range []struct {
		r          *analysis.Result
		text, more string
	}{
		{job(1), "rank 3 (n1 GPU 3) was 1.5× slower than the others for 40 s: it has more work than the others", "Also: All GPUs wait for input at the begin of each step (5 % of GPU time)."},
		{once, "rank 3 (n1 GPU 3) was 1.5× slower than the others in 1 step; no cause found", ""},
		{cause, "Rank 3 has more work than the others: 5 % of the job's GPU time", "Also: All GPUs wait for input at the begin of each step (5 % of GPU time)."},
		{info, "No problem found: 8 GPUs for 4 min 2 s, SM active 62 % on average, bound by compute", ""},
		{hostOnly(), "No GPU was sampled: 2 nodes for 4 min 2 s, CPUs busy 11 %", ""},
	} {
		if h := headline(c.r); h.text != c.text || h.more != c.more {
			t.Errorf("%q, %q\nwant %q, %q", h.text, h.more, c.text, c.more)
		}
	}
}

func TestWords(t *testing.T) {
	for want, have := range map[string]string{
		"250 µs": duration(250e-6), "12 ms": duration(0.012), "0.53 s": duration(0.531), "41 s": duration(40.7), "60 s": "60 s", "1 min": duration(59.6),
		"4 min 2 s": duration(242), "1 h": duration(3600), "1 h 3 min": duration(3800), "?": duration(-1),
		"1:09": since(0, 69e9), "1:02:33": since(0, 3753e9), "-0:01": since(1e9, 0),
		"0.4 %": percent(0.004), "0 %": percent(0), "100 %": percent(0.999), "99.99 %": percentExact(0.99999),
		"1.02 MJ": energy(1.02e6), "1.00 kWh": energy(3.6e6), "12,345": count(12345), "999": count(999), "-1,000": count(-1000),
		"950 B": bytesText(950), "1.50 GB": bytesText(1.5e9), "CV = 0.3% (Excellent)": balanceText(analysis.Balance{Spatial: ptr(0.0031), Class: analysis.Excellent}),
		`a "b c" ""`: command([]string{"a", "b c", ""}), "\uFFFD[2J": clean("\x1b[2J"), "é\uFFFD": clean("é\xff"),
	} {
		if have != want {
			t.Errorf("%q, want %q", have, want)
		}
	}
}
