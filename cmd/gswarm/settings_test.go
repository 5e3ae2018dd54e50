package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		name  string
		file  string // ./gswarm.yaml
		named string // --config's
		env   []string
		flags []string
		want  func(s *settings) bool
		notes string
		err   string
	}{
		{name: "defaults", want: func(s *settings) bool {
			return s.Interval == 100*time.Millisecond && s.Tile == 5*time.Minute && s.Sync == 0 && s.Ports == "" && !s.Quiet && !s.Strict && s.Out == ""
		}},
		{name: "file", file: "interval: 50ms\nquiet: true\noutput: d # a comment\nports: 20000-20100\n", want: func(s *settings) bool {
			return s.Interval == 50*time.Millisecond && s.Quiet && s.Out == "d" && s.Ports == "20000-20100"
		}},
		{name: "variable over file", file: "interval: 50ms\ntile: 1m\n", env: []string{"GSWARM_INTERVAL=20ms"}, want: func(s *settings) bool {
			return s.Interval == 20*time.Millisecond && s.Tile == time.Minute
		}},
		{name: "flag over variable", env: []string{"GSWARM_INTERVAL=20ms", "GSWARM_QUIET=true", "GSWARM_OUTPUT=v"}, flags: []string{"--interval=30ms", "--quiet=false", "-o", "f"}, want: func(s *settings) bool {
			return s.Interval == 30*time.Millisecond && !s.Quiet && s.Out == "f"
		}},
		{name: "flag over a wrong variable", env: []string{"GSWARM_INTERVAL=soon"}, flags: []string{"--interval=30ms"}, want: func(s *settings) bool { return s.Interval == 30*time.Millisecond }},
		{name: "named file over the usual one", file: "nonsense: 1\n", named: "strict: true\n", want: func(s *settings) bool { return s.Strict }},
		{name: "empty file", file: "", named: "\n# nothing\n", want: func(s *settings) bool { return s.Interval == 100*time.Millisecond }},
		{name: "unknown key", file: "interval: 50ms\n\nintervall: 1s\n", err: `gswarm.yaml, line 3: there is no setting "intervall"; the settings are output, interval,`},
		{name: "internal key", file: "x-nvml: /lib\n", err: `line 1: there is no setting "x-nvml"`},
		{name: "wrong value in file", file: "quiet: maybe\n", err: "gswarm.yaml"},
		{name: "wrong duration in file", file: "interval: soon\n", err: `gswarm.yaml, line 1: invalid argument "soon"`},
		{name: "no value in file", file: "quiet: true\ntile: {}\n", err: "line 2: tile is one value"},
		{name: "damaged file", file: "interval: [\n", err: "gswarm.yaml: "},
		{name: "a list", file: "- interval\n", err: "gswarm.yaml: "},
		{name: "key twice", file: "quiet: true\nquiet: false\n", err: "line 2"},
		{name: "wrong variable", env: []string{"GSWARM_TILE=long"}, err: "GSWARM_TILE: "},
		{name: "empty variable", file: "interval: 50ms\n", env: []string{"GSWARM_INTERVAL="}, want: func(s *settings) bool { return s.Interval == 50*time.Millisecond }},
		{name: "wrong variable of two words", env: []string{"GSWARM_GPU_PROCESS_UTIL=perhaps"}, err: "GSWARM_GPU_PROCESS_UTIL: "},
		{name: "unknown variable", env: []string{"GSWARM_INTERVALL=1s", "GSWARM_TOKEN=hunter2", "NOTGSWARM_X=1"}, notes: "the variable GSWARM_INTERVALL is none of gswarm's settings; the variable GSWARM_TOKEN is none of gswarm's settings"},
		{name: "internal variables", env: []string{"GSWARM_X_RUN=1", "GSWARM_X_AGENT=1", "GSWARM_MARK=gswarm/0/x"}},
		{name: "hidden flag as variable", env: []string{"GSWARM_CONFIG=c", "GSWARM_HELP=1"}, notes: "the variable GSWARM_CONFIG is none of gswarm's settings; the variable GSWARM_HELP is none of gswarm's settings"},
		{name: "too fast", flags: []string{"--interval=1ms"}, err: "the least is 10ms"},
		{name: "too slow", env: []string{"GSWARM_INTERVAL=1h"}, err: "the most is 1m"},
		{name: "tile", file: "tile: 1ms\n", err: "--tile 1ms"},
		{name: "sync", flags: []string{"--sync=-1s"}, err: "--sync -1s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if c.file != "" {
				write(t, settingsFile, c.file)
			}
			config := ""
			if c.named != "" {
				config = filepath.Join(t.TempDir(), "c.yaml")
				write(t, config, c.named)
			}
			s := defaultSettings()
			f := pflag.NewFlagSet("wrap", pflag.ContinueOnError)
			s.flags(f)
			if err := f.Parse(c.flags); err != nil {
				t.Fatal(err)
			}
			notes, err := s.load(f, config, c.env)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.want != nil && !c.want(s) {
				t.Errorf("%+v", s)
			}
			if got := strings.Join(notes, "; "); got != c.notes {
				t.Errorf("notes %q, want %q", got, c.notes)
			}
		})
	}
}

func TestSettingsFileMissing(t *testing.T) {
	t.Chdir(t.TempDir())
	s := defaultSettings()
	f := pflag.NewFlagSet("wrap", pflag.ContinueOnError)
	s.flags(f)
	if _, err := s.load(f, "none.yaml", nil); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("a file that was asked for: %v", err)
	}
}

// TestSettingsKnowEveryFlag: what can be set by flag can be set in the file.
func TestSettingsKnowEveryFlag(t *testing.T) {
	s := defaultSettings()
	f := pflag.NewFlagSet("wrap", pflag.ContinueOnError)
	s.flags(f)
	f.VisitAll(func(flag *pflag.Flag) {
		path := filepath.Join(t.TempDir(), "c.yaml")
		write(t, path, flag.Name+": "+flag.DefValue+"\n")
		if values, err := readSettings(path, settingNames); err != nil || len(values) != 1 {
			t.Errorf("%s: %v, %v", flag.Name, values, err)
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
