#!/usr/bin/env python3
"""Compare what is exported in frames with the timeline that it was made from.

    frames.py EXPORTS TIMELINE

EXPORTS holds `frames.json`, `gputop/`, `temperatures.csv` and `tb/`, written by
`gswarm export` with the default frames of a second. Each is opened as its users
do: JSON by Python, CSV by pandas, event files by TensorBoard's own reader, and
imported by Trackio. The means are made anew from the timeline by DuckDB.

Exit status: 0 all agree, 1 they do not, 2 usage.
"""

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path

import duckdb
import pandas as pd

EVERY = 10**9
TOLERANCE = 2e-6  # six decimals are written

Key = tuple[str, int, int]  # node, GPU, begin of the frame


class Gauges:
    """Means of columns by frame, from the timeline."""

    def __init__(self, timeline: Path):
        self.con, self.timeline = duckdb.connect(), timeline
        self.seen: dict[tuple[str, str], dict[Key, float]] = {}

    def of(self, table: str, column: str) -> dict[Key, float]:
        if (table, column) not in self.seen:
            rows = f"read_parquet('{self.timeline / table}/*.parquet')"
            if table == "gpu_activity":
                # Weighted by how much of each window lies in the frame.
                sql = (
                    f"WITH w AS (SELECT node, gpu, time_begin_ns AS b, time_ns AS e, {column} AS v,"
                    f" unnest(range(time_begin_ns // {EVERY}, (time_ns - 1) // {EVERY} + 1)) AS f FROM {rows} WHERE v IS NOT NULL),"
                    f" p AS (SELECT *, least(e, (f + 1) * {EVERY}) - greatest(b, f * {EVERY}) AS k FROM w)"
                    f" SELECT node, gpu, f * {EVERY}, sum(v::DOUBLE * k) / sum(k) FROM p GROUP BY ALL"
                )
            else:
                sql = f"SELECT node, gpu, time_ns // {EVERY} * {EVERY}, avg({column}::DOUBLE) FROM {rows} WHERE {column} IS NOT NULL GROUP BY ALL"
            self.seen[table, column] = {(n, g, t): v for n, g, t, v in self.con.execute(sql).fetchall()}
        return self.seen[table, column]


class Comparison:
    """What was compared, and what is wrong."""

    def __init__(self):
        self.problems: list[str] = []
        self.said: list[str] = []

    def same(self, what: str, have: dict, want: dict, relative: float = 1e-9):
        """Both have the same keys and, but for rounding, the same values."""
        if not want:
            self.problems.append(f"{what}: there is nothing to compare with")
        if have.keys() != want.keys():
            odd = sorted(map(str, have.keys() ^ want.keys()))
            self.problems.append(f"{what}: {len(have)} values, want {len(want)}, such as {odd[0]}")
            return
        far = [k for k, v in have.items() if abs(v - want[k]) > TOLERANCE + relative * abs(want[k])]
        if far:
            self.problems.append(f"{what}: {have[far[0]]} for {far[0]}, want {want[far[0]]}; {len(far)} such")

    def unless(self, ok: bool, text: str):
        if not ok:
            self.problems.append(text)


def scaled(values: dict[Key, float], factor: float) -> dict[Key, float]:
    return {k: v * factor for k, v in values.items()}


def added(a: dict[Key, float], b: dict[Key, float]) -> dict[Key, float]:
    return {k: a[k] + b[k] for k in a.keys() & b.keys()}


def check_json(c: Comparison, path: Path, gauges: Gauges):
    data = json.loads(path.read_text())
    gpus = {g["gpu_id"]: g for g in data["gpus"]}
    have: dict[str, dict[Key, float]] = {}
    for i, frame in enumerate(data["frames"]):
        c.unless(frame["frame_id"] == i + 1, f"frame {i} has the id {frame['frame_id']}")
        c.unless(pd.Timestamp(frame["time"]).value == frame["time_ns"], f"frame {i}: {frame['time']} is not {frame['time_ns']}")
        for field, values in frame.items():
            if isinstance(values, list):
                c.unless(len(values) == len(gpus), f"frame {i}: {len(values)} of {field}")
            if not isinstance(values, list) or field == "gpu_id":
                continue
            for gpu, v in zip(frame["gpu_id"], values, strict=True):
                if v is not None:
                    g = gpus[gpu]
                    have.setdefault(field, {})[g["node"], g["gpu"], frame["time_ns"]] = v
    gb = 2**20 / 1e9
    memory = {(g["node"], g["gpu"]): g["memory_bytes"] for g in gpus.values()}
    peak = {(g["node"], g["gpu"]): g["dram_bandwidth_peak"] for g in gpus.values()}
    want = {
        "gpu_util": scaled(gauges.of("gpu", "util_gpu_pct"), 0.01),
        "gpu_memory": {k: v / memory[k[:2]] for k, v in gauges.of("gpu", "mem_used_bytes").items()},
        "dram_bandwidth": {k: v / 100 * peak[k[:2]] for k, v in gauges.of("gpu_activity", "dram_pct").items()},
        "gpu_bandwidth": scaled(added(gauges.of("gpu_activity", "nvlink_tx_mib_s"), gauges.of("gpu_activity", "nvlink_rx_mib_s")), gb),
        "pcie_bandwidth": scaled(added(gauges.of("gpu_activity", "pcie_tx_mib_s"), gauges.of("gpu_activity", "pcie_rx_mib_s")), gb),
    }
    c.unless(have.keys() == want.keys(), f"the arrays are {sorted(have)}")
    for field in have.keys() & want.keys():
        c.same(f"json {field}", have[field], want[field], 1e-6)
    utils = [v for f in data["frames"] for v in f["gpu_util"] if v is not None]
    c.unless(all(0 <= v <= 1 for v in utils), "gpu_util is not between 0 and 1")
    c.said.append(f"json: {len(data['frames'])} frames of {len(gpus)} GPUs")


def check_gputop(c: Comparison, root: Path, gauges: Gauges):
    fields = {
        "utilization": gauges.of("gpu", "util_gpu_pct"),
        "memory_used": scaled(gauges.of("gpu", "mem_used_bytes"), 1 / 2**20),
        "power": scaled(gauges.of("gpu", "power_avg_mw"), 1e-3),
        "temperature": gauges.of("gpu", "temp_c"),
    }
    have: dict[str, dict[Key, float]] = {f: {} for f in fields}
    multi: dict[str, dict[Key, float]] = {f: {} for f in fields}
    samples = 0

    def take(to, node, stamp, gpu):
        t = pd.Timestamp(stamp, tz="UTC").value
        for f in fields:
            if gpu[f] is not None:
                to[f][node, gpu["gpu_index"], t] = gpu[f]

    for path in sorted(root.glob("*/gpu_stats*.json")):
        for s in json.loads(path.read_text()):
            samples += 1
            if "multi_gpu_data" not in s:
                take(have, path.parent.name, s["timestamp"], s)
                continue
            gpus, total = s["multi_gpu_data"], s["aggregate_stats"]
            for gpu in gpus:
                take(multi, path.parent.name, s["timestamp"], gpu)
            c.unless(total["gpu_count"] == len(gpus), f"gpu_count {total['gpu_count']} of {len(gpus)}")
            if all(g["memory_used"] is not None for g in gpus):
                used, size = sum(g["memory_used"] for g in gpus), sum(g["memory_total"] for g in gpus)
                c.unless(abs(total["total_memory_used"] - used) < 1e-3, f"total_memory_used {total['total_memory_used']}, want {used}")
                c.unless(abs(total["total_memory_percent"] - 100 * used / size) < 1e-3, "total_memory_percent")
            if all(g["power"] is not None for g in gpus):
                c.unless(abs(total["total_power"] - sum(g["power"] for g in gpus)) < 1e-3, "total_power")
            if all(g["utilization"] is not None for g in gpus):
                mean = sum(g["utilization"] for g in gpus) / len(gpus)
                c.unless(abs(total["average_utilization"] - mean) < 1e-3, "average_utilization")
    for f, want in fields.items():
        c.same(f"gputop {f}", have[f], want)
        c.same(f"gputop, all GPUs, {f}", multi[f], want)
    c.said.append(f"gputop: {samples} samples")


def check_csv(c: Comparison, path: Path, gauges: Gauges):
    frame = pd.read_csv(path)
    for column, want in {
        "temperature_c": gauges.of("gpu", "temp_c"),
        "memory_temperature_c": gauges.of("gpu", "temp_mem_c"),
        "power_w": scaled(gauges.of("gpu", "power_avg_mw"), 1e-3),
        "sm_clock_mhz": gauges.of("gpu", "clock_sm_mhz"),
        "memory_clock_mhz": gauges.of("gpu", "clock_mem_mhz"),
    }.items():
        rows = frame[frame[column].notna()]
        c.same(f"csv {column}", dict(zip(zip(rows["node"], rows["gpu"], rows["time_ns"]), rows[column])), want)
    c.unless((pd.to_datetime(frame["time"], format="ISO8601").dt.as_unit("ns").astype("int64") == frame["time_ns"]).all(), "csv: time is not time_ns")
    c.said.append(f"csv: {len(frame)} lines")


def check_tensorboard(c: Comparison, root: Path, gauges: Gauges):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    values = 0
    tags: dict[str, dict[Key, float]] = {}
    for run in sorted(root.iterdir()):
        node, gpu = run.name.rsplit("-gpu", 1)
        events = EventAccumulator(str(run), size_guidance={"scalars": 0}).Reload()
        c.unless(events.file_version == 2.0, f"{run.name}: file version {events.file_version}")
        for tag in events.Tags()["scalars"]:
            for e in events.Scalars(tag):
                c.unless(e.wall_time == int(e.wall_time), f"{run.name}: wall time {e.wall_time}")
                tags.setdefault(tag, {})[node, int(gpu), int(e.wall_time) * 10**9] = e.value
                values += 1
    for tag, have in tags.items():
        table, column = tag.split("/")
        c.same(f"tfevents {tag}", have, gauges.of(table, column), 1e-6)  # 32-bit numbers
    c.unless({"gpu/util_gpu_pct", "gpu_activity/sm_active_pct", "gpu_power/power_mw"} <= tags.keys(), f"tfevents: the tags are {sorted(tags)}")
    c.said.append(f"tfevents: {values} values of {len(tags)} tags in TensorBoard's reader")


def check_trackio(c: Comparison, root: Path):
    with tempfile.TemporaryDirectory() as home:
        os.environ["TRACKIO_DIR"] = home
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        with contextlib.redirect_stdout(io.StringIO()):
            trackio.import_tf_events(log_dir=root, project="gswarm", name="run")
        runs = SQLiteStorage.get_runs("gswarm")
        c.unless(len(runs) == len(list(root.iterdir())), f"Trackio has the runs {runs}")
        rows = 0
        for run in runs:
            log = SQLiteStorage.get_logs("gswarm", run)
            c.unless(any("gpu/util_gpu_pct" in entry for entry in log), f"Trackio's {run} lacks gpu/util_gpu_pct")
            rows += len(log)
        c.said.append(f"trackio: {rows} entries of {len(runs)} runs")


def check(exports: Path, timeline: Path) -> Comparison:
    c, gauges = Comparison(), Gauges(timeline)
    check_json(c, exports / "frames.json", gauges)
    check_gputop(c, exports / "gputop", gauges)
    check_csv(c, exports / "temperatures.csv", gauges)
    check_tensorboard(c, exports / "tb", gauges)
    check_trackio(c, exports / "tb")
    return c


def main(args: list[str]) -> int:
    if len(args) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    c = check(Path(args[0]), Path(args[1]))
    for p in c.problems:
        print("wrong:", p, file=sys.stderr)
    if not c.problems:
        print("\n".join(c.said))
    return 1 if c.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
