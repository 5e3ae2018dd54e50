package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/gswarm/gswarm/control"
)

// settingsFile is read from the working directory where --config names none.
const settingsFile = "gswarm.yaml"

// settings are what a user may set for wrap, by flag, variable or file.
type settings struct {
	Out                  string
	Interval, Tile, Sync time.Duration
	Ports, GPUs          string
	Budget               time.Duration
	// ProcessUtil is dear and therefore asked for.
	ProcessUtil, Quiet, Strict bool
	// NVLinks is as well.
	NVLinks bool
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
	f.BoolVar(&s.NVLinks, "nvlink-per-link", s.NVLinks, "also read the counters of each NVLink, every 10 s or as seldom as they are dear")
	f.BoolVar(&s.ProcessUtil, "gpu-process-util", s.ProcessUtil, "also read the SM use of each process, which costs the driver 2.5 ms")
	f.BoolVarP(&s.Quiet, "quiet", "q", s.Quiet, "leave out the closing line")
	f.BoolVar(&s.Strict, "strict", s.Strict, "do not start the command if it cannot be sampled")
}

// load fills in what no flag has set: from GSWARM_* variables, then from the
// file. It returns what the user should be told though it is no error.
func (s *settings) load(f *pflag.FlagSet, file string, env []string) (notes []string, err error) {
	fromFile, err := readSettings(file, settingNames)
	if err != nil {
		return nil, err
	}
	fromEnv := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		key, ours := strings.CutPrefix(name, "GSWARM_")
		if !ours || strings.HasPrefix(key, "X_") || name == control.MarkVar {
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
		source := "GSWARM_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if !ok {
			var v fileSetting
			v, ok = fromFile[flag.Name]
			value, source = v.value, v.place
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
	m["nvlink-per-link"] = strconv.FormatBool(s.NVLinks)
	if s.Ports != "" {
		m["ports"] = s.Ports
	}
	return m
}

// settingNames are the settings, by which the flags, the keys of the file and,
// in capitals behind GSWARM_, the variables go.
var settingNames = []string{"output", "interval", "tile", "sync", "ports", "gpus", "budget", "gpu-process-util", "nvlink-per-link", "quiet", "strict"}

// fileSetting is a value in a settings file and where it stands.
type fileSetting struct{ value, place string }

// readSettings reads a settings file: of no name the usual one, if there is one.
// An unknown key is an error that names its line.
func readSettings(file string, names []string) (map[string]fileSetting, error) {
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
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(doc.Content) == 0 {
		return nil, nil // nothing but comments
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: line %d: settings are written as name: value", path, top.Line)
	}
	found := map[string]fileSetting{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		place := fmt.Sprintf("%s, line %d", path, key.Line)
		if !slices.Contains(names, key.Value) {
			return nil, fmt.Errorf("%s: there is no setting %q; the settings are %s", place, key.Value, strings.Join(names, ", "))
		}
		if _, twice := found[key.Value]; twice {
			return nil, fmt.Errorf("%s: %s stands there twice", place, key.Value)
		}
		if value.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("%s: %s is one value", place, key.Value)
		}
		found[key.Value] = fileSetting{value.Value, place}
	}
	return found, nil
}
