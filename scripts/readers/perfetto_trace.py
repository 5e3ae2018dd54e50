#!/usr/bin/env python3
"""Compare a Perfetto trace with the timeline that it was made from.

    perfetto_trace.py TRACE TIMELINE

TRACE is what `gswarm export --to perfetto` wrote of a run that is small enough
not to be thinned. Perfetto's own trace processor opens it, without a complaint,
and every value of every counter and every event must be the timeline's, to the
last digit.

Exit status: 0 all agree, 1 they do not, 2 usage.
"""

import sys
from pathlib import Path

import duckdb

from trace_processor import TraceProcessor

# Counters that are columns of a table: the table, the column that tells its
# things apart and the name before it in the trace, and for each column the
# name of its counter and its factor. The time is the window's begin where there
# is one.
LEVELS = [
    ("gpu", "gpu", "GPU ", {
        "util_gpu_pct": ("a kernel resident", 1), "mem_used_bytes": ("memory used", 1 / 2**30),
        "power_avg_mw": ("power, average of 1 s", 1e-3), "clock_sm_mhz": ("SM clock", 1),
        "clock_mem_mhz": ("memory clock", 1), "temp_c": ("temperature", 1), "temp_mem_c": ("memory temperature", 1),
    }),
    ("gpu_activity", "gpu", "GPU ", {
        "sm_active_pct": ("SMs active", 1), "sm_occupancy_pct": ("SM occupancy", 1), "tensor_pct": ("tensor cores", 1),
        "dram_pct": ("device memory bandwidth", 1), "nvlink_tx_mib_s": ("NVLink sent", 2**20 / 1e9),
        "pcie_rx_mib_s": ("PCIe received", 2**20 / 1e9),
    }),
    ("gpu_power", "gpu", "GPU ", {"power_mw": ("power", 1e-3)}),
    ("host", None, "", {
        "time_bound_ns": ("alignment ±", 1e-3), "mem_available_bytes": ("memory available", 1 / 2**30),
        "procs_running_count": ("runnable threads", 1),
    }),
]  # fmt: skip

# Counters that are the growth of others.
RATES = [
    ("host", None, "", "cpu_user_ns + cpu_nice_ns + cpu_system_ns + cpu_irq_ns + cpu_softirq_ns + cpu_steal_ns", "CPUs in use", 1e-9),
    ("net", "device", "", "rx_bytes", "received", 1e-6),
    ("disk", "device", "", "write_bytes", "written", 1e-6),
]


def counters(trace: TraceProcessor) -> dict[tuple[str, str, str], list[tuple[int, float]]]:
    """The values of each counter by node, group and name, in order of time."""
    parents = {r["id"]: r for r in trace.query("select id, name, parent_id from track")}
    found: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for row in trace.query("select ts, value, track_id from counter order by track_id, ts, id"):
        track = parents[row["track_id"]]
        group = parents[track["parent_id"]]
        if group["parent_id"] is None:
            key = (group["name"], "", track["name"])
        else:
            key = (parents[group["parent_id"]]["name"], group["name"], track["name"])
        found.setdefault(key, []).append((row["ts"], row["value"]))
    return found


def wanted(con, timeline: Path) -> dict[tuple[str, str, str], list[tuple[int, float]]]:
    """The same from the timeline."""
    want: dict[tuple[str, str, str], list[tuple[int, float]]] = {}

    def add(table, thing, prefix, name, time, value, where):
        group = f"'{prefix}' || {thing}" if thing else "''"
        rows = con.execute(
            f"SELECT node, {group}, {time}, {value} FROM {table} WHERE {where} ORDER BY time_ns"
        ).fetchall()
        for node, key, t, v in rows:
            want.setdefault((node, key, name), []).append((t, v))

    for p in timeline.iterdir():
        if p.is_dir():
            con.execute(f"CREATE VIEW {p.name} AS SELECT * FROM read_parquet('{p}/*.parquet')")
    for table, thing, prefix, columns in LEVELS:
        time = "time_begin_ns" if table == "gpu_activity" else "time_ns"
        for column, (name, scale) in columns.items():
            add(table, thing, prefix, name, time, f"{column} * {scale!r}::DOUBLE", f"{column} IS NOT NULL")
    for table, thing, prefix, value, name, scale in RATES:
        over = f"OVER (PARTITION BY node{', ' + thing if thing else ''} ORDER BY time_ns)"
        view = (
            f"(SELECT *, lag(time_ns) {over} AS t0, ({value} - lag({value}) {over})::DOUBLE"
            f" / (time_ns - lag(time_ns) {over}) * 1e9 * {scale!r}::DOUBLE AS v FROM {table})"
        )
        add(view, thing, prefix, name, "t0", "v", "v >= 0")
    return want


def check(trace: Path, timeline: Path) -> tuple[list[str], str]:
    problems = []
    con = duckdb.connect()
    with TraceProcessor(trace) as tp:
        for r in tp.query("select name, value from stats where value != 0 and severity in ('error', 'data_loss')"):
            problems.append(f"the trace processor complains: {r['name']} {r['value']}")
        have, want = counters(tp), wanted(con, timeline)
        values = 0
        for key, points in want.items():
            got = have.get(key, [])
            if [t for t, _ in got] != [t for t, _ in points]:
                problems.append(f"{key}: {len(got)} values, want {len(points)}, or at other times")
                continue
            far = [(t, g, w) for (t, g), (_, w) in zip(got, points) if abs(g - w) > 1e-9 * max(abs(w), 1)]
            if far:
                problems.append(f"{key}: {far[0][1]} at {far[0][0]}, want {far[0][2]}; {len(far)} such")
            values += len(got)
        events = con.execute("SELECT node, kind, time_ns FROM event ORDER BY ALL").fetchall()
        got = tp.query(
            "select n.name as node, extract_arg(s.arg_set_id, 'debug.kind') as kind, s.ts as ts from slice s"
            " join track t on t.id = s.track_id join track g on g.id = t.parent_id"
            " join track n on n.id = coalesce(g.parent_id, g.id) where t.name = 'events' and s.dur = 0"
        )
        got = sorted((r["node"], r["kind"], r["ts"]) for r in got)
        if got != sorted(events):
            problems.append(f"{len(got)} events, want {len(events)}, or others")
        unended = tp.query("select count(*) as n from slice where dur < 0")[0]["n"]
        if unended:
            problems.append(f"{unended} slices have no end")
    if not values or not events:
        problems.append("nothing was compared")
    return problems, f"{values} values of {len(want)} counters and {len(events)} events are the timeline's"


def main(args: list[str]) -> int:
    if len(args) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    problems, say = check(Path(args[0]), Path(args[1]))
    for p in problems:
        print("wrong:", p, file=sys.stderr)
    if not problems:
        print(say)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
