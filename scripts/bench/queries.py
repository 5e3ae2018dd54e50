#!/usr/bin/env python3
"""Compare queries in DuckDB on gswarm's tiled timeline and on DuckDB's own sorted output.

For each number of nodes and each length of the tiles: bytes, the time of a
merge, and the queries, whose times are medians of interleaved rounds with a warm
page cache. The answers are compared, too: the clocks that DuckDB is given and
those that gswarm fits differ by microseconds, so they may differ by little.
"""

import argparse
import os
import shutil
import statistics
import sys
import time
from pathlib import Path

import duckdb

from programs import CORRECT, GSWARM, make_run, measure, processors, words

QUERIES = {
    "one GPU over time": "SELECT time_ns, power_now_mw FROM {gpu} WHERE node = 'node0003' AND gpu = 5 ORDER BY time_ns",
    "CV over GPUs": "SELECT avg(cv) FROM (SELECT time_ns // 10000000000 AS t, stddev(power_now_mw) / avg(power_now_mw) AS cv FROM {gpu} GROUP BY t)",
    "ASOF join, one node": "SELECT count(h.time_ns), avg(h.mem_free_bytes) FROM (FROM {gpu} WHERE node = 'node0003') g ASOF JOIN (FROM {host} WHERE node = 'node0003') h ON g.time_ns >= h.time_ns",
    "ASOF join, all": "SELECT count(h.time_ns), avg(h.mem_free_bytes) FROM {gpu} g ASOF JOIN {host} h ON g.node = h.node AND g.time_ns >= h.time_ns",
    "all GPUs in one minute": "SELECT node, gpu, avg(util_gpu_pct), max(power_now_mw) FROM {gpu} WHERE time_ns BETWEEN {mid} AND {mid} + 60000000000 GROUP BY ALL ORDER BY node, gpu",
}


def settings():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                epilog="Each option's default is the environment variable of its name in capitals.")
    env = os.environ.get
    p.add_argument("--rows", type=int, default=int(env("ROWS", "10000000")), help="rows of the gpu table; host has one for each node and second")
    p.add_argument("--nodes", nargs="+", type=int, default=[int(n) for n in words("NODES", "64")], help="at least 4")
    p.add_argument("--tiles", nargs="+", default=words("TILES", "1m 5m 15m"))
    p.add_argument("--rounds", type=int, default=int(env("ROUNDS", "11")))
    p.add_argument("--merges", type=int, default=int(env("MERGES", "3")), help="merges, of whose time the median is given")
    p.add_argument("--where", type=Path, default=Path(env("WHERE", "/dev/shm")))
    return p.parse_args()


def timed(con, sql):
    begin = time.monotonic()
    rows = con.execute(sql).fetchall()
    return time.monotonic() - begin, rows


def near(a, b):
    """Whether two answers are the same but for microseconds."""
    if len(a) != len(b):
        return abs(len(a) - len(b)) <= max(len(a), len(b)) / 1000
    close = sum(
        all(x == y or isinstance(x, (int, float)) and isinstance(y, (int, float)) and abs(x - y) <= 1e-2 * max(abs(x), abs(y)) for x, y in zip(r, q, strict=True))
        for r, q in zip(a, b, strict=True)
    )
    return close >= 0.99 * len(a)


def volume(path):
    return sum(p.stat().st_size for p in path.rglob("*.parquet")) / 1e6


def compare(s, con, nodes, tile, cpus):
    run, out = s.where / "gswarm-queries", s.where / "gswarm-queries-duckdb"
    for d in (run, out):
        shutil.rmtree(d, ignore_errors=True)
    make_run(run, nodes, s.rows, "gpu", tile, "-with-host")
    merges = [measure([GSWARM, "merge", run], run / "timeline", cpus) for _ in range(s.merges)]
    for t in ("gpu", "host"):
        measure([*CORRECT, "duckdb-sort", run, t, out / t / "all.parquet"], out, cpus)
    ours = {t: f"'{run}/timeline/{t}/*.parquet'" for t in ("gpu", "host")}
    theirs = {t: f"'{out}/{t}/all.parquet'" for t in ("gpu", "host")}
    (groups,), = con.execute(f"SELECT count(*) FROM (SELECT DISTINCT file_name, row_group_id FROM parquet_metadata({ours['gpu']}))").fetchall()
    wall, cpu = (statistics.median(m[i] for m in merges) for i in (0, 1))
    rows = f"{s.rows:,}".replace(",", " ")
    print(f"\n### {nodes} nodes, {rows} rows of gpu, tiles of {tile}\n")
    print(f"Shards {volume(run / 'nodes'):.0f} MB, timeline {volume(run / 'timeline'):.0f} MB in {groups} row groups of gpu, DuckDB's {volume(out):.0f} MB;"
          f" merged in {wall:.1f} s, {cpu:.1f} s of processors.\n")
    (lo, hi), = con.execute(f"SELECT min(time_ns), max(time_ns) FROM {theirs['gpu']}").fetchall()
    print("| query | gswarm tiled, ms | DuckDB sorted, ms | ratio |")
    print("|---|---|---|---|")
    wrong = []
    for name, sql in QUERIES.items():
        a, b = sql.format(mid=(lo + hi) // 2, **ours), sql.format(mid=(lo + hi) // 2, **theirs)
        if not near(timed(con, a)[1], timed(con, b)[1]):
            wrong.append(name)
        times = [(timed(con, a)[0], timed(con, b)[0]) for _ in range(s.rounds)]
        x, y = (statistics.median(t) * 1e3 for t in zip(*times, strict=True))
        print(f"| {name} | {x:.1f} | {y:.1f} | {x / y:.2f} |", flush=True)
    for d in (run, out):
        shutil.rmtree(d, ignore_errors=True)
    return wrong


def main():
    s = settings()
    (cpus,) = processors()
    os.sched_setaffinity(0, cpus)
    s.where.mkdir(parents=True, exist_ok=True)
    con = duckdb.connect()
    con.execute(f"SET threads={len(cpus)}")
    wrong = []
    for nodes in s.nodes:
        for tile in s.tiles:
            wrong += [f"{nodes} nodes, tiles of {tile}: {name}" for name in compare(s, con, nodes, tile, cpus)]
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")
    if wrong:
        sys.exit("the two datasets answer differently: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
