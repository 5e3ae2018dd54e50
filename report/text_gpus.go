package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gswarm/gswarm/analysis"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// misleading is by how many percent points the driver's utilisation exceeds SM
// activity where the reader is told what it means.
const misleading = 10

// textGPUs says what the GPUs did, all and each, and how evenly; without GPUs
// it says what the hosts did.
func textGPUs(s *sheet, r *analysis.Result, d detail) {
	if len(r.GPUs) == 0 {
		textHosts(s, r, d)
		return
	}
	s.heading("GPUs")
	var means []string
	for _, m := range metrics {
		switch m.column {
		case "sm_active_pct", "tensor_pct", "dram_pct", "util_gpu_pct", "mem_used_bytes", "temp_c", "power_now_mw":
		case "power_avg_mw":
			if _, ok := r.Totals.Metrics["power_now_mw"]; ok {
				continue
			}
		default:
			continue
		}
		all, ok := r.Totals.Metrics[m.column]
		if !ok {
			continue
		}
		text := fmt.Sprintf("%s %s", m.name, m.value(all.Mean))
		switch m.column {
		case "util_gpu_pct":
			if active, ok := r.Totals.Metrics["sm_active_pct"]; ok && all.Mean > active.Mean+misleading {
				text += " (a kernel was resident, busy or not)"
			}
		case "mem_used_bytes":
			if of := r.GPUs[0].MemoryBytes; of > 0 {
				text += " of " + m.value(float64(of))
			}
		case "power_now_mw", "power_avg_mw":
			text += ", at most " + m.value(all.Max)
		}
		means = append(means, text)
	}
	if len(means) > 0 {
		s.say(plain, "  ", "    ", "mean: "+strings.Join(means, ", "), 4)
	}
	var sums []string
	if e := r.Totals.EnergyJ; e != nil {
		sums = append(sums, "energy "+energy(*e))
	}
	spent := "the time"
	if r.Totals.GPUHours > 0 {
		spent = hours(r.Totals.GPUHours)
	}
	if i := r.Totals.IdleShare; i != nil {
		sums = append(sums, fmt.Sprintf("idle %s of %s", percent(*i), spent))
	}
	if n := spares(r); n > 0 {
		sums = append(sums, plural(n, "GPU")+" did nothing at all")
	}
	if len(sums) > 0 {
		s.say(plain, "  ", "    ", strings.Join(sums, ", "), 2)
	}
	textBreakdown(s, r, d)
}

func hours(h float64) string {
	if h < 1 {
		return fmt.Sprintf("%.2g GPU-minutes", h*60)
	}
	return fmt.Sprintf("%.3g GPU-hours", h)
}

func spares(r *analysis.Result) (n int) {
	for _, g := range r.GPUs {
		if g.Spare {
			n++
		}
	}
	return n
}

// textBreakdown lists the GPUs one by one, or where they are many the extremes,
// and how evenly the load lay.
func textBreakdown(s *sheet, r *analysis.Result, d detail) {
	active := activeColumn(r)
	shown := r.GPUs
	note := ""
	if len(shown) > d.gpus {
		shown = extremeGPUs(r.GPUs, active, d.gpus)
		note = fmt.Sprintf(" (%s of %s: least and most %s)", count(int64(len(shown))), count(int64(len(r.GPUs))), strings.Trim(metricOf(active).name, "“”"))
	}
	s.heading("Per-GPU Breakdown" + note)
	cols := []column{
		{keep: 10}, {right: true, keep: 9}, {keep: 8}, {head: "active", right: true, keep: 7}, {head: "tensor", right: true, keep: 3},
		{head: "power", right: true, keep: 6}, {head: "energy", right: true, keep: 4}, {head: "idle", right: true, keep: 5}, {head: "ranks", keep: 2},
	}
	for _, g := range shown {
		memory, spread := "", ""
		if m, ok := g.Metrics["mem_used_bytes"]; ok {
			memory, spread = megabytes(m.Mean), fmt.Sprintf("(±%.1f)", m.SD/1e6)
		}
		power := ""
		if p, ok := powerOf(g.Metrics); ok {
			power = watts(p.Mean)
		}
		joules, idle := "", ""
		if g.EnergyJ != nil {
			joules = energy(*g.EnergyJ)
		}
		if g.IdleShare != nil {
			idle = percent(*g.IdleShare)
		}
		name := gpuName(g.Place, r.Job.Nodes)
		if g.Spare {
			name += " (spare)"
		}
		for i, cell := range []string{
			name + ":", memory, spread, valueOf(g.Metrics, active), valueOf(g.Metrics, "tensor_pct"), power, joules, idle, ranksOf(g.Ranks),
		} {
			cols[i].cells = append(cols[i].cells, cell)
		}
	}
	s.table("    ", cols)
	if len(r.Job.GPUNames) > 0 && r.Job.Nodes > 1 && len(r.GPUs) > d.gpus {
		textNodes(s, r, active)
	}
	textBalance(s, r)
}

func ranksOf(ranks []int) string {
	const most = 3
	var words []string
	for _, r := range ranks {
		words = append(words, fmt.Sprint(r))
	}
	if len(words) > most {
		return fmt.Sprintf("%s, … (%d)", words[0], len(words))
	}
	return strings.Join(words, ", ")
}

func valueOf(metrics map[string]analysis.Stat, column string) string {
	m, ok := metrics[column]
	if !ok {
		return ""
	}
	return metricOf(column).value(m.Mean)
}

// extremeGPUs are the half with the least and the half with the most of a
// metric, in that order. GPUs without the metric come before those with the
// least: nothing was seen of them.
func extremeGPUs(gpus []analysis.GPU, column string, most int) []analysis.GPU {
	sorted := slices.Clone(gpus)
	mean := func(g analysis.GPU) float64 {
		if m, ok := g.Metrics[column]; ok {
			return m.Mean
		}
		return -1
	}
	slices.SortStableFunc(sorted, func(a, b analysis.GPU) int { return cmp.Compare(mean(a), mean(b)) })
	low := (most + 1) / 2
	return append(sorted[:low:low], sorted[len(sorted)-(most-low):]...)
}

// textNodes names the nodes at both ends.
func textNodes(s *sheet, r *analysis.Result, column string) {
	sum, n := make(map[string]float64), make(map[string]int)
	for _, g := range r.GPUs {
		if m, ok := g.Metrics[column]; ok && !g.Spare {
			sum[g.Node] += m.Mean
			n[g.Node]++
		}
	}
	nodes := sortedKeys(sum)
	if len(nodes) < 2 {
		return
	}
	mean := func(node string) float64 { return sum[node] / float64(n[node]) }
	slices.SortStableFunc(nodes, func(a, b string) int { return cmp.Compare(mean(a), mean(b)) })
	low, high := nodes[0], nodes[len(nodes)-1]
	m := metricOf(column)
	s.say(plain, "    ", "      ", fmt.Sprintf("By node: least %s %s, most %s %s, median %s",
		clean(low), m.value(mean(low)), clean(high), m.value(mean(high)), m.value(mean(nodes[len(nodes)/2]))), 2)
}

// textBalance says how evenly the load lay over the GPUs, memory first.
func textBalance(s *sheet, r *analysis.Result) {
	total, seen := 0.0, false
	for _, g := range r.GPUs {
		if m, ok := g.Metrics["mem_used_bytes"]; ok {
			total += m.Mean
			seen = true
		}
	}
	if seen {
		s.say(plain, "    ", "      ", "Total: "+megabytes(total), 1)
	}
	var others []string
	for _, b := range r.Balance {
		text := balanceText(b)
		switch {
		case text == "":
		case b.Metric == "mem_used_bytes":
			s.say(plain, "    ", "      ", "Balance: "+text, 1)
		case b.Metric == "power_now_mw" || b.Metric == "power_avg_mw" || b.Metric == activeColumn(r):
			others = append(others, strings.Trim(metricOf(b.Metric).name, "“”")+" "+text)
		}
	}
	if len(others) > 0 {
		s.say(plain, "    ", "      ", "Balance of "+strings.Join(others, "; "), 2)
	}
}

// balanceText is a coefficient of variation and its class: CV = 0.3% (Excellent).
func balanceText(b analysis.Balance) string {
	if b.Spatial == nil {
		return ""
	}
	return fmt.Sprintf("CV = %.1f%% (%s)", 100**b.Spatial, className(b.Class))
}

// textHosts is for runs without GPUs.
func textHosts(s *sheet, r *analysis.Result, d detail) {
	if len(r.Hosts) == 0 {
		return
	}
	s.heading("Hosts")
	cols := []column{{head: "node", keep: 9}, {head: "CPUs", right: true, keep: 5}, {head: "busy", right: true, keep: 8}, {head: "memory", right: true, keep: 7}, {head: "of", right: true, keep: 4}}
	for i, h := range r.Hosts {
		if i == d.gpus {
			break
		}
		row := []string{clean(h.Node), "", "", "", ""}
		if h.CPUs > 0 {
			row[1] = fmt.Sprint(h.CPUs)
		}
		if h.CPUShare != nil {
			row[2] = percent(*h.CPUShare)
		}
		if h.MemoryUsedBytes != nil {
			row[3] = bytesText(float64(*h.MemoryUsedBytes))
		}
		if h.MemoryBytes > 0 {
			row[4] = bytesText(float64(h.MemoryBytes))
		}
		if h.Missing {
			row[2] = "no data"
		}
		for k := range cols {
			cols[k].cells = append(cols[k].cells, row[k])
		}
	}
	s.table("  ", cols)
	if n := len(r.Hosts) - d.gpus; n > 0 {
		s.say(faint, "  ", "  ", fmt.Sprintf("and %s more", plural(n, "node")), 1)
	}
	textRanks(s, r, d)
}

func textRanks(s *sheet, r *analysis.Result, d detail) {
	if len(r.Ranks) == 0 {
		return
	}
	s.heading("Ranks")
	cols := []column{{head: "rank", right: true, keep: 9}, {head: "node", keep: 8}, {head: "cores", right: true, keep: 7}, {head: "waited for a core", right: true, keep: 5}, {head: "memory", right: true, keep: 6}}
	for i, k := range r.Ranks {
		if i == d.gpus {
			break
		}
		row := []string{"", clean(k.Node), "", "", ""}
		if k.Rank != nil {
			row[0] = fmt.Sprint(*k.Rank)
		}
		if k.CPUShare != nil {
			row[2] = fmt.Sprintf("%.2f", *k.CPUShare)
		}
		if k.RunDelayShare != nil {
			row[3] = percent(*k.RunDelayShare)
		}
		if k.RSSBytes != nil {
			row[4] = bytesText(float64(*k.RSSBytes))
		}
		for c := range cols {
			cols[c].cells = append(cols[c].cells, row[c])
		}
	}
	s.table("  ", cols)
	if n := len(r.Ranks) - d.gpus; n > 0 {
		s.say(faint, "  ", "  ", fmt.Sprintf("and %s more", plural(n, "rank")), 1)
	}
}
