package table_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gswarm/gswarm/table"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

// TestMetricsPage holds docs/metrics.md against the definitions.
func TestMetricsPage(t *testing.T) {
	const path = "../docs/metrics.md"
	want := metricsPage()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(have), want); diff != "" {
		t.Errorf("docs/metrics.md is stale; run: go test ./table -run TestMetricsPage -update\n%s", diff)
	}
}

func metricsPage() string {
	var b strings.Builder
	b.WriteString(`# Tables and columns

Generated from package table by ` + "`go test ./table -run TestMetricsPage -update`" + `. Format version ` + fmt.Sprint(table.Version) + `.

In the timeline the raw time columns give way to ` + "`time`, `time_ns`, `time_bound_ns`, `node`" + ` and, for windows, ` + "`time_begin_ns`" + `.
A value that could not be had is null; the table ` + "`absence`" + ` says why.
`)
	for _, t := range table.All() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", t.Name, t.Doc)
		fmt.Fprintf(&b, "Cadence: %s.", t.Cadence)
		if len(t.Keys) > 0 {
			fmt.Fprintf(&b, " Keys: `%s`.", strings.Join(t.Keys, "`, `"))
		}
		b.WriteString("\n\n| column | type | unit | window | age | source | rate | cost on an H200 | GPUs | meaning |\n|---|---|---|---|---|---|---|---|---|---|\n")
		for _, c := range t.Columns {
			name := "`" + c.Name + "`"
			if !c.Required {
				name += " (nullable)"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name, c.Type, c.Unit, c.Window, c.Age, c.Source, c.Rate, c.Cost, c.GPUs, c.Doc)
		}
	}
	return b.String()
}

// TestDefinitions checks what every reader relies on.
func TestDefinitions(t *testing.T) {
	units := map[string]string{
		"_ns": "ns", "_bytes": "bytes", "_mw": "mW", "_mhz": "MHz", "_us": "us", "_mj": "mJ", "_pct": "percent",
		"_c": "degrees Celsius", "_count": "count", "_mib_s": "MiB/s", "_s": "s",
	}
	for _, tab := range table.All() {
		if table.ByName(tab.Name) != tab {
			t.Errorf("%s: ByName does not find it", tab.Name)
		}
		if tab.Columns[table.ColT].Name != table.TRaw || tab.Columns[table.ColRead].Name != table.ReadNS {
			t.Errorf("%s: does not begin with its time columns", tab.Name)
		}
		if (tab.Shape == table.Windowed) != (tab.Index(table.TBeginRaw) == table.ColBegin) {
			t.Errorf("%s: its shape and its columns disagree", tab.Name)
		}
		seen := map[string]bool{}
		for _, c := range tab.Columns {
			if seen[c.Name] {
				t.Errorf("%s.%s: twice", tab.Name, c.Name)
			}
			seen[c.Name] = true
			if c.Doc == "" || c.Source == "" {
				t.Errorf("%s.%s: no doc or no source", tab.Name, c.Name)
			}
			longest := ""
			for suffix := range units {
				if strings.HasSuffix(c.Name, suffix) && len(suffix) > len(longest) {
					longest = suffix
				}
			}
			if longest != "" && c.Unit != units[longest] {
				t.Errorf("%s.%s: its name says %s, its unit %q", tab.Name, c.Name, units[longest], c.Unit)
			}
		}
		if f := tab.Foreign; f.Column != "" {
			if i := tab.Index(f.Column); i < 0 || tab.Columns[i].Type != table.Int64 || !tab.Columns[i].Required || f.UnitNS <= 0 || f.Clock == "" {
				t.Errorf("%s: its foreign stamp %+v is none", tab.Name, f)
			}
		}
		for _, k := range tab.Keys {
			if tab.Index(k) < 0 {
				t.Errorf("%s: key %s is no column", tab.Name, k)
			}
		}
		tl := table.Timeline(tab)
		if tl.Columns[table.TLTimeNS].Name != table.TimeNS || tl.Columns[table.TLNode].Name != table.Node {
			t.Errorf("%s: timeline columns are not where they belong", tab.Name)
		}
		own := 2
		if tab.Shape == table.Windowed {
			own = 3
		}
		if got, want := len(tl.Columns), len(tab.Columns)-own+5+(own-2); got != want {
			t.Errorf("%s: timeline has %d columns, want %d", tab.Name, got, want)
		}
	}
}

// TestColumnIndexes checks the index constants at both ends of each table: a
// column inserted in one list and not in the other shifts the last.
func TestColumnIndexes(t *testing.T) {
	for _, c := range []struct {
		tab  *table.Table
		last int
		name string
	}{
		{table.GPU, table.GPUPowerNow, "power_now_mw"},
		{table.GPU, table.GPUMemUsed, "mem_used_bytes"},
		{table.GPUActivity, table.ActNVLinkRx, "nvlink_rx_mib_s"},
		{table.GPUActivity, table.ActDRAM, "dram_pct"},
		{table.GPUPower, table.PowPower, "power_mw"},
		{table.GPUCounter, table.CntThrottleHWBrake, "throttle_hw_brake_ns"},
		{table.GPUCounter, table.CntPCIeReplay, "pcie_replay_count"},
		{table.GPUProcess, table.ProcSMUtil, "sm_util_pct"},
		{table.Host, table.HostPSIIOFull, "psi_io_full_ns"},
		{table.Host, table.HostMemTotal, "mem_total_bytes"},
		{table.Host, table.HostOOMKills, "oom_kills_count"},
		{table.Host, table.HostTCPInSegs, "tcp_in_segs_count"},
		{table.NUMA, table.NUMAOther, "other_node_count"},
		{table.Infiniband, table.IBFirstCounter, table.IBCounters[0].Column},
		{table.Filesystem, table.FSTimeouts, "timeouts_count"},
		{table.Net, table.NetTxDropped, "tx_dropped_count"},
		{table.Disk, table.DiskBusy, "busy_ns"},
		{table.Disk, table.DiskFlushTime, "flush_time_ns"},
		{table.Rank, table.RankPSIIOFull, "cgroup_psi_io_full_ns"},
		{table.Rank, table.RankRSS, "rss_bytes"},
		{table.Event, table.EventDetail, "detail"},
		{table.Absence, table.AbsDetail, "detail"},
		{table.ClockExchange, table.ExT4, "t4_ns"},
		{table.ClockBracket, table.BrTAIOffset, "tai_offset_s"},
		{table.ClockBracket, table.BrClocksource, "clocksource"},
		{table.Sampler, table.SamDroppedRows, "dropped_rows_count"},
	} {
		if got := c.tab.Index(c.name); got != c.last {
			t.Errorf("%s.%s is column %d, its constant says %d", c.tab.Name, c.name, got, c.last)
		}
	}
}

// TestBatch follows rows through append, truncate, copy and reset.
func TestBatch(t *testing.T) {
	b := table.NewBatch(table.Event, 0)
	r := b.Append()
	r.Read(10, 20)
	r.String(table.EventKind, "start")
	b.Append().Int(table.EventGPU, 7)
	if b.Rows() != 2 || b.Ints(table.ColT)[0] != 15 || b.Ints(table.ColRead)[0] != 10 {
		t.Fatalf("rows %d, t %v", b.Rows(), b.Ints(table.ColT))
	}
	if b.Valid(table.EventKind)[1] || !b.Valid(table.EventGPU)[1] {
		t.Error("wrong nulls")
	}
	o := table.NewBatch(table.Event, 1)
	o.AppendBatch(b)
	o.AppendRange(b, 0, 1)
	b.Reset()
	if o.Rows() != 3 || o.Strings(table.EventKind)[2] != "start" || b.Rows() != 0 {
		t.Errorf("copy has %d rows, %v", o.Rows(), o.Strings(table.EventKind))
	}
	o.Truncate(1)
	if o.Rows() != 1 || len(o.Strings(table.EventKind)) != 1 {
		t.Error("truncate left rows")
	}
	if n := testing.AllocsPerRun(100, func() { b.Reset(); b.Append().Int(table.EventGPU, 1) }); n != 0 {
		t.Errorf("a row allocates %v times after warm-up", n)
	}
}
