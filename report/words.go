package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gswarm/gswarm/analysis"
)

// clean makes a string that came from outside safe to print: what would steer
// a terminal, break a line or turn the direction of writing becomes visible.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// command writes a command line as one would type it, as far as that matters to
// a reader: arguments with spaces are quoted.
func command(args []string) string {
	var words []string
	for _, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n'\"") {
			a = strconv.Quote(a)
		}
		words = append(words, clean(a))
	}
	return strings.Join(words, " ")
}

// duration writes seconds for a person: 0.53 s, 41 s, 4 min 2 s, 1 h 3 min.
func duration(seconds float64) string {
	switch {
	case math.IsNaN(seconds) || seconds < 0:
		return "?"
	case seconds == 0:
		return "0 s"
	case seconds < 0.9995e-3:
		return fmt.Sprintf("%.3g µs", seconds*1e6)
	case seconds < 0.0995:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	case seconds < 9.95:
		return fmt.Sprintf("%.2g s", seconds)
	}
	s := int64(math.Round(seconds))
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600 && s%60 == 0:
		return fmt.Sprintf("%d min", s/60)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s%3600/60 == 0:
		return fmt.Sprintf("%d h", s/3600)
	}
	return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
}

func nanos(ns int64) string { return duration(float64(ns) / 1e9) }

// since writes how long after the run's begin an instant was: 1:09, 1:02:33.
func since(beginNS, ns int64) string {
	s := (ns - beginNS) / 1e9
	sign := ""
	if s < 0 {
		sign, s = "-", -s
	}
	if s < 3600 {
		return fmt.Sprintf("%s%d:%02d", sign, s/60, s%60)
	}
	return fmt.Sprintf("%s%d:%02d:%02d", sign, s/3600, s%3600/60, s%60)
}

func utc(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05") }

// percent writes a share.
func percent(share float64) string {
	p := 100 * share
	if p > 0 && p < 0.95 {
		return fmt.Sprintf("%.1f %%", p)
	}
	return fmt.Sprintf("%.0f %%", p)
}

// si writes a number with three digits and a prefix.
func si(v float64, unit string) string {
	prefixes := []string{"", "k", "M", "G", "T", "P"}
	i := 0
	for math.Abs(v) >= 999.5 && i < len(prefixes)-1 {
		v /= 1000
		i++
	}
	digits := 2
	switch a := math.Abs(v); {
	case a >= 99.95 || i == 0 && a == math.Trunc(a):
		digits = 0
	case a >= 9.995:
		digits = 1
	}
	return fmt.Sprintf("%.*f %s%s", digits, v, prefixes[i], unit)
}

func bytesText(n float64) string { return si(n, "B") }

// megabytes is the unit in which the per-GPU breakdown has memory.
func megabytes(bytes float64) string { return fmt.Sprintf("%.1f MB", bytes/1e6) }

func watts(mw float64) string { return fmt.Sprintf("%.0f W", mw/1e3) }

// energy writes joules, and watt hours once they say more.
func energy(j float64) string {
	if j < 3.6e6 {
		return si(j, "J")
	}
	return si(j/3600, "Wh")
}

// count writes a number with a comma between thousands.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(int64(n)) + " " + what + "s"
}

// gpuName names a GPU: by its node too where there are several.
func gpuName(p analysis.Place, nodes int) string {
	gpu := "GPU ?"
	if p.GPU != nil {
		gpu = fmt.Sprintf("GPU %d", *p.GPU)
	}
	if nodes > 1 && p.Node != "" {
		return clean(p.Node) + " " + gpu
	}
	return gpu
}

// placeText says who and where: rank 3 (n1 GPU 3), n1 GPU 3, n1.
func placeText(p analysis.Place) string {
	where := clean(p.Node)
	if p.GPU != nil {
		where = strings.TrimSpace(fmt.Sprintf("%s GPU %d", where, *p.GPU))
	}
	switch {
	case p.Rank == nil:
		return where
	case where == "":
		return fmt.Sprintf("rank %d", *p.Rank)
	}
	return fmt.Sprintf("rank %d (%s)", *p.Rank, where)
}

func some(names []string, most int) string {
	if len(names) > most {
		return fmt.Sprintf("%s and %s more", strings.Join(names[:most], ", "), count(int64(len(names)-most)))
	}
	return strings.Join(names, ", ")
}

// causeWords say in a clause what each cause does.
var causeWords = map[analysis.Cause]string{
	analysis.PowerCap:       "the power limit holds its clocks down",
	analysis.Thermal:        "heat holds its clocks down",
	analysis.ClockDrop:      "its clocks are low, and neither power nor heat says why",
	analysis.LinkSlow:       "its link moves less than the others'",
	analysis.PCIeSlow:       "its PCIe link moves less than the others'",
	analysis.PCIeReplay:     "its PCIe link repeats transmissions",
	analysis.CPUStarved:     "its threads wait for a CPU core",
	analysis.Affinity:       "it may use too few cores, or cores far from its GPU",
	analysis.MemoryPressure: "its node is short of memory",
	analysis.InputStall:     "it waits for input",
	analysis.CommBound:      "communication",
	analysis.LaunchBound:    "its kernels are too short to fill the GPU",
	analysis.MemoryBound:    "device memory",
	analysis.TransferBound:  "copies between host and device",
	analysis.Imbalance:      "it has more work than the others",
	analysis.SerialRank:     "it alone works while the others wait",
	analysis.GPUFault:       "its GPU reported a fault",
	analysis.NetRetransmit:  "its node's network repeats what it sent",
	analysis.NodeMissing:    "its node left no data",
	analysis.ClockStep:      "its node's wall clock jumped",
	analysis.LowUse:         "it did little",
}

// activityWords are the activities as a reader knows them.
var activityWords = map[analysis.Activity]string{
	analysis.Compute:       "compute",
	analysis.Memory:        "device memory",
	analysis.Communication: "communication",
	analysis.Transfer:      "PCIe copies",
	analysis.Launch:        "kernel launches",
	analysis.Input:         "input",
	analysis.Serial:        "one rank alone",
	analysis.Idle:          "idle",
	analysis.Unknown:       "not measured",
}

// bottleneckWord names what bounds the work.
func bottleneckWord(b analysis.Bottleneck) string {
	if w, ok := activityWords[analysis.Activity(b.Name)]; ok {
		return w
	}
	if b.Name == "" {
		return "not known"
	}
	return clean(b.Name)
}

// sharesText lists the largest shares, the largest first.
func sharesText(shares map[analysis.Activity]float64, most int) string {
	type share struct {
		of analysis.Activity
		is float64
	}
	var all []share
	const visible = 0.01
	for of, is := range shares {
		if is >= visible {
			all = append(all, share{of, is})
		}
	}
	slices.SortFunc(all, func(a, b share) int {
		if a.is != b.is {
			if a.is > b.is {
				return -1
			}
			return 1
		}
		return strings.Compare(string(a.of), string(b.of))
	})
	var words []string
	for i, s := range all {
		if i == most {
			break
		}
		name, ok := activityWords[s.of]
		if !ok {
			name = clean(string(s.of))
		}
		words = append(words, name+" "+percent(s.is))
	}
	return strings.Join(words, ", ")
}

// className is a class as the documents spell it: Excellent.
func className(c analysis.Class) string {
	if c == "" {
		return ""
	}
	return strings.ToUpper(string(c[:1])) + string(c[1:])
}

// metric is how a column is shown: its name, and its value for a reader.
type metric struct {
	column, name string
	// scale and unit turn a value into what pictures show.
	scale float64
	unit  string
}

// metrics are the columns that reports show, in this order.
var metrics = []metric{
	{"sm_active_pct", "SM active", 1, "%"},
	{"tensor_pct", "tensor cores", 1, "%"},
	{"dram_pct", "memory bandwidth", 1, "%"},
	{"util_gpu_pct", "“GPU utilisation”", 1, "%"},
	{"mem_used_bytes", "memory used", 1e-9, "GB"},
	{"power_now_mw", "power", 1e-3, "W"},
	{"power_avg_mw", "power, 1 s average", 1e-3, "W"},
	{"temp_c", "temperature", 1, "°C"},
	{"clock_sm_mhz", "SM clock", 1, "MHz"},
	{"nvlink_tx_mib_s", "NVLink sent", 1.048576e-3, "GB/s"},
	{"nvlink_rx_mib_s", "NVLink received", 1.048576e-3, "GB/s"},
	{"pcie_tx_mib_s", "PCIe sent", 1.048576e-3, "GB/s"},
	{"pcie_rx_mib_s", "PCIe received", 1.048576e-3, "GB/s"},
}

// metricOf finds a metric; energy_j is one too, which no column holds.
func metricOf(column string) metric {
	for _, m := range metrics {
		if m.column == column {
			return m
		}
	}
	if column == "energy_j" {
		return metric{column, "energy", 1e-3, "kJ"}
	}
	return metric{column, clean(column), 1, ""}
}

// value writes a value of the metric with its unit.
func (m metric) value(v float64) string {
	v *= m.scale
	switch m.unit {
	case "%", "W", "MHz", "°C":
		return fmt.Sprintf("%.0f %s", v, m.unit)
	case "":
		return fmt.Sprintf("%.3g", v)
	}
	digits := 1
	if math.Abs(v) >= 99.95 {
		digits = 0
	}
	return fmt.Sprintf("%.*f %s", digits, v, m.unit)
}

// powerOf returns a GPU's power in mW: the instant's reading where the driver
// gives it, else the average of a second.
func powerOf(g map[string]analysis.Stat) (analysis.Stat, bool) {
	if s, ok := g["power_now_mw"]; ok {
		return s, true
	}
	s, ok := g["power_avg_mw"]
	return s, ok
}

// activeColumn is the column that says how busy GPUs were: SM activity, and
// where no GPU has that, the driver's utilisation.
func activeColumn(r *analysis.Result) string {
	for _, c := range []string{"sm_active_pct", "util_gpu_pct", "power_now_mw", "power_avg_mw"} {
		if _, ok := r.Totals.Metrics[c]; ok {
			return c
		}
	}
	return ""
}
