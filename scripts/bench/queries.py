#!/usr/bin/env python3
"""Compare queries in DuckDB on gswarm's tiled timeline and on DuckDB's own sorted output.

    queries.py          settings by environment: ROWS (10000000) of the gpu table, NODES ("64"), TILES ("1m 5m 15m"),
                        ROUNDS (11), WHERE (a directory, default /dev/shm)

Times are medians of interleaved rounds with a warm page cache, two threads.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import duckdb

ROOT = Path(__file__).resolve().parents[2]
PYTHON, GSWARM, MAKER = ROOT / ".venv/bin/python", ROOT / "bin/gswarm", ROOT / "bin/mergebench"

QUERIES = {
    "one GPU over time": "SELECT time_ns, power_now_mw FROM {gpu} WHERE node = 'node0003' AND gpu = 5 ORDER BY time_ns",
    "CV over GPUs": "SELECT avg(cv) FROM (SELECT time_ns // 10000000000 AS t, stddev(power_now_mw) / avg(power_now_mw) AS cv FROM {gpu} GROUP BY t)",
    "ASOF join, one node": "SELECT count(h.time_ns), avg(h.mem_free_bytes) FROM (FROM {gpu} WHERE node = 'node0003') g ASOF JOIN (FROM {host} WHERE node = 'node0003') h ON g.time_ns >= h.time_ns",
    "ASOF join, all": "SELECT count(h.time_ns), avg(h.mem_free_bytes) FROM {gpu} g ASOF JOIN {host} h ON g.node = h.node AND g.time_ns >= h.time_ns",
    "all GPUs in one minute": "SELECT node, gpu, avg(util_gpu_pct), max(power_now_mw) FROM {gpu} WHERE time_ns BETWEEN {mid} AND {mid} + 60000000000 GROUP BY ALL",
}


def timed(con, sql):
    begin = time.monotonic()
    rows = con.execute(sql).fetchall()
    return time.monotonic() - begin, rows


def main():
    rows, rounds = int(os.environ.get("ROWS", 10_000_000)), int(os.environ.get("ROUNDS", 11))
    where = Path(os.environ.get("WHERE", "/dev/shm"))
    con = duckdb.connect()
    con.execute("SET threads=2")
    for nodes in os.environ.get("NODES", "64").split():
        for tile in os.environ.get("TILES", "1m 5m 15m").split():
            run, out = where / "gswarm-queries", where / "gswarm-queries-duckdb"
            for d in (run, out):
                shutil.rmtree(d, ignore_errors=True)
            subprocess.run([MAKER, "-o", run, "-nodes", nodes, "-rows", str(rows), "-table", "gpu", "-with-host", "-tile", tile], check=True)
            begin = time.monotonic()
            subprocess.run([GSWARM, "merge", run], check=True, stdout=subprocess.DEVNULL)
            merge = time.monotonic() - begin
            for t in ("gpu", "host"):
                subprocess.run([PYTHON, ROOT / "scripts/bench/correct.py", "duckdb-sort", run, t, out / t / "all.parquet"], check=True)
            size = {d: sum(p.stat().st_size for p in d.rglob("*.parquet")) / 1e6 for d in (run / "nodes", run / "timeline", out)}
            print(f"\n### {nodes} nodes, {rows:,} rows of gpu, tiles of {tile}: shards {size[run / 'nodes']:.0f} MB, timeline {size[run / 'timeline']:.0f} MB, "
                  f"DuckDB's {size[out]:.0f} MB; merged in {merge:.1f} s\n", flush=True)
            ours = {t: f"'{run}/timeline/{t}/*.parquet'" for t in ("gpu", "host")}
            theirs = {t: f"'{out}/{t}/all.parquet'" for t in ("gpu", "host")}
            (lo, hi), = con.execute(f"SELECT min(time_ns), max(time_ns) FROM {theirs['gpu']}").fetchall()
            print("| query | gswarm tiled, ms | DuckDB sorted, ms | ratio |")
            print("|---|---|---|---|")
            for name, sql in QUERIES.items():
                a, b = sql.format(mid=(lo + hi) // 2, **ours), sql.format(mid=(lo + hi) // 2, **theirs)
                times = [(timed(con, a)[0], timed(con, b)[0]) for _ in range(rounds)]
                x, y = (statistics.median(t) * 1e3 for t in zip(*times))
                print(f"| {name} | {x:.1f} | {y:.1f} | {x / y:.2f} |", flush=True)
            for d in (run, out):
                shutil.rmtree(d, ignore_errors=True)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    main()
