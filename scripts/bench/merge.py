#!/usr/bin/env python3
"""Compare gswarm merge with DuckDB and Polars doing the same correction.

    merge.py            settings by environment: ROWS (50000000), NODES ("64 1024"), PAIRS (10),
                        TILE (5m), BUDGET (seconds after which no round begins), WHERE (directories, default /dev/shm and build/bench),
                        PROGRAMS (all of the names below)

Makes a run of made-up shards for each number of nodes, one shard each, and then
lets every program turn it into one timeline, one program after the other, PAIRS
times over, so that what else the machine does meets all alike. A program's time
ends when its output is synced to the disk. Printed are medians with the least
and the greatest, processor time and the largest resident size.

gswarm's tiled timeline is ordered by tile, node and time; gswarm's sorted one
and those of the -sort programs are totally ordered by time; those of the -copy
programs are in no order.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv/bin/python"
GSWARM, MAKER = ROOT / "bin/gswarm", ROOT / "bin/mergebench"
PROGRAMS = ["gswarm", "gswarm-sort", "copy", "times", "duckdb-copy", "duckdb-sort", "duckdb-sort-2gb", "polars-copy", "polars-sort"]
TABLE = "host"


def command(program, run, out):
    if program == "gswarm":
        return [GSWARM, "merge", run]
    if program == "gswarm-sort":
        return [GSWARM, "merge", "--sort", run]
    if program == "copy":
        return ["cp", "-r", run / "nodes", out]
    if program == "times":
        return [MAKER, "-times", "-table", TABLE, "-o", run]
    return [PYTHON, ROOT / "scripts/bench/correct.py", program, run, TABLE, out / "all.parquet"]


def sync(path):
    """Sync every file below path."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    for p in files:
        fd = os.open(p, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    return sum(p.stat().st_size for p in files)


def measure(program, run, out):
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(run / "timeline", ignore_errors=True)
    out.mkdir(parents=True)
    os.sync()
    begin = time.monotonic()
    with subprocess.Popen([str(c) for c in command(program, run, out)], stdout=subprocess.DEVNULL, env=os.environ | {"GOMAXPROCS": "2"}) as p:
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode not in (0, 3):
        sys.exit(f"{program} failed with {p.returncode}")
    size = sync(run / "timeline" if program.startswith("gswarm") else out)
    wall = time.monotonic() - begin
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(run / "timeline", ignore_errors=True)
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, size / 1e6


def spread(values, digits=1):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def compare(where, nodes, rows, pairs, programs, tile):
    run, out = where / f"gswarm-bench-{nodes}", where / "gswarm-bench-out"
    shutil.rmtree(run, ignore_errors=True)
    subprocess.run([MAKER, "-o", run, "-nodes", str(nodes), "-rows", str(rows), "-table", TABLE, "-tile", tile], check=True)
    size = sync(run / "nodes") / 1e6
    print(f"\n### {where}: {rows:,} rows x 27 columns, {nodes} shards of {size / nodes:.1f} MB, tiles of {tile}, {pairs} rounds\n", flush=True)
    got = {p: [] for p in programs}
    begin = time.monotonic()
    for n in range(pairs):
        for p in programs:
            got[p].append(measure(p, run, out))
            print(f"round {n + 1}: {p}: {got[p][-1][0]:.1f} s, {got[p][-1][1]:.1f} s of processors, load {os.getloadavg()[0]:.0f}", file=sys.stderr, flush=True)
        if time.monotonic() - begin > float(os.environ.get("BUDGET", "inf")):
            print(f"stopped after {n + 1} rounds: BUDGET is spent\n")
            break
    print("| program | wall s | CPU s | RSS MiB | output MB | gswarm's wall, times |")
    print("|---|---|---|---|---|---|")
    for p in programs:
        wall, cpu, rss, size = zip(*got[p])
        ratio = "" if "gswarm" not in got else spread([w / g[0] for w, g in zip(wall, got["gswarm"])])
        print(f"| {p} | {spread(wall)} | {spread(cpu)} | {max(rss):.0f} | {size[0]:.0f} | {ratio} |", flush=True)
    shutil.rmtree(run, ignore_errors=True)


def main():
    rows, pairs = int(os.environ.get("ROWS", 50_000_000)), int(os.environ.get("PAIRS", 10))
    nodes = [int(n) for n in os.environ.get("NODES", "64 1024").split()]
    wheres = os.environ.get("WHERE", f"/dev/shm {ROOT}/build/bench").split()
    programs = os.environ.get("PROGRAMS", " ".join(PROGRAMS)).split()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the beginning")
    for where in wheres:
        for n in nodes:
            compare(Path(where), n, rows, pairs, programs, os.environ.get("TILE", "5m"))
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    main()
