package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"
)

// settingsFile is read from the working directory where --config names none.
const settingsFile = "gswarm.yaml"

// settings are what a user may set for wrap, by flag, variable or file.
type settings struct {
	Out      string        `yaml:"output"`
	Interval time.Duration `yaml:"interval"`
	Tile     time.Duration `yaml:"tile"`
	Sync     time.Duration `yaml:"sync"`
	Ports    string        `yaml:"ports"`
	GPUs     string        `yaml:"gpus"`
	Budget   time.Duration `yaml:"budget"`
	// ProcessUtil is dear and therefore asked for.
	ProcessUtil bool `yaml:"gpu-process-util"`
	Quiet       bool `yaml:"quiet"`
	Strict      bool `yaml:"strict"`
}

func defaultSettings() *settings {
	return &settings{Interval: 100 * time.Millisecond, Tile: defaultTile, GPUs: "all", Budget: 500 * time.Microsecond}
}

// flags declares the flags; their names are the keys of the YAML file.
func (s *settings) flags(f *pflag.FlagSet) {
	f.StringVarP(&s.Out, "output", "o", s.Out, "write the run into this `DIR`, instead of gswarm-JOBID here")
	f.DurationVar(&s.Interval, "interval", s.Interval, "time between readings of the GPUs' cheap values")
	f.DurationVar(&s.Tile, "tile", s.Tile, "stretch of time that is sealed into one shard")
	f.DurationVar(&s.Sync, "sync", s.Sync, "time between syncs of the spool to disk (default 1s, on shared filesystems 30s)")
	f.StringVar(&s.Ports, "ports", s.Ports, "ports that the head may use, `LO-HI` (default any)")
	f.StringVar(&s.GPUs, "gpus", s.GPUs, "`GPUS` to sample: all that can be seen, those of the job, or a list of ordinals and UUIDs")
	f.DurationVar(&s.Budget, "budget", s.Budget, "driver time that each GPU may cost per interval, averaged over a minute")
	f.BoolVar(&s.ProcessUtil, "gpu-process-util", s.ProcessUtil, "also read the SM use of each process, which costs the driver 2.5 ms")
	f.BoolVarP(&s.Quiet, "quiet", "q", s.Quiet, "leave out the closing line")
	f.BoolVar(&s.Strict, "strict", s.Strict, "do not start the command if it cannot be sampled")
}

// load fills in what no flag has set: from GSWARM_* variables, then from the
// file. It returns what the user should be told though it is no error.
func (s *settings) load(f *pflag.FlagSet, file string, env []string) (notes []string, err error) {
	fromFile, err := readSettings(file)
	if err != nil {
		return nil, err
	}
	fromEnv := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		key, ours := strings.CutPrefix(name, "GSWARM_")
		if !ours || strings.HasPrefix(key, "X_") {
			continue
		}
		flag := strings.ToLower(strings.ReplaceAll(key, "_", "-"))
		if f.Lookup(flag) == nil || f.Lookup(flag).Hidden || flag == "config" || flag == "help" {
			notes = append(notes, fmt.Sprintf("the variable %s is none of gswarm's settings", name))
			continue
		}
		if value != "" {
			fromEnv[flag] = value
		}
	}
	f.VisitAll(func(flag *pflag.Flag) {
		value, ok := fromEnv[flag.Name]
		source := "GSWARM_" + strings.ToUpper(flag.Name)
		if !ok {
			value, ok = fromFile[flag.Name]
			source = flag.Name + " in the settings file"
		}
		if flag.Changed || !ok || err != nil {
			return
		}
		if serr := f.Set(flag.Name, value); serr != nil {
			err = fmt.Errorf("%s: %w", source, serr)
		}
	})
	if err != nil {
		return nil, err
	}
	return notes, s.check()
}

func (s *settings) check() error {
	switch {
	case s.Interval < 10*time.Millisecond:
		return fmt.Errorf("--interval %s: the driver's values change no faster than every 20 ms; the least is 10ms", s.Interval)
	case s.Interval > time.Minute:
		return fmt.Errorf("--interval %s: the most is 1m", s.Interval)
	case s.Tile < time.Second || s.Tile > 24*time.Hour:
		return fmt.Errorf("--tile %s: must lie between 1s and 24h", s.Tile)
	case s.Budget < time.Microsecond || s.Budget > time.Minute:
		return fmt.Errorf("--budget %s: must lie between 1us and 1m", s.Budget)
	case s.Sync < 0:
		return fmt.Errorf("--sync %s: must not be negative", s.Sync)
	}
	if _, err := chooseGPUs(s.GPUs, nil); err != nil {
		return err
	}
	return nil
}

// record is what run.yaml says of the settings.
func (s *settings) record() map[string]string {
	m := map[string]string{"interval": s.Interval.String(), "tile": s.Tile.String(), "sync": "auto", "ports": "any"}
	if s.Sync > 0 {
		m["sync"] = s.Sync.String()
	}
	m["gpus"], m["budget"], m["gpu-process-util"] = s.GPUs, s.Budget.String(), strconv.FormatBool(s.ProcessUtil)
	if s.Ports != "" {
		m["ports"] = s.Ports
	}
	return m
}

// unknownKey picks the line and the key out of the YAML decoder's message.
var unknownKey = regexp.MustCompile(`line (\d+): field (\S+) not found`)

// readSettings reads a settings file into flag values. An unknown key is an
// error that names its line.
func readSettings(file string) (map[string]string, error) {
	path := file
	if path == "" {
		path = settingsFile
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && file == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the settings: %w", err)
	}
	var s settings
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		if m := unknownKey.FindStringSubmatch(err.Error()); m != nil {
			return nil, fmt.Errorf("%s, line %s: there is no setting %q; the settings are output, interval, tile, sync, ports, gpus, budget, gpu-process-util, quiet, strict", path, m[1], m[2])
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	// Which keys are there, and their text, so that flags parse them alike.
	values := map[string]string{}
	var raw map[string]yaml.Node
	if err := yaml.Unmarshal(b, &raw); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for k, n := range raw {
		values[k] = n.Value
	}
	return values, nil
}
