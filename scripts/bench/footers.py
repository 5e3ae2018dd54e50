#!/usr/bin/env python3
"""Measure what footers cost by how many row groups a file of the timeline has.

Writes timelines of made-up row groups, one for each node and tile of an hour,
with few rows each: a footer's length hardly depends on them. For each number of
row groups in a file: files, the greatest footer, all footers, and how long DuckDB
takes, with a new connection each time, until it knows the columns of one file, and
until it has answered a query of one GPU over ten minutes, for which it reads all
footers. Times are medians of interleaved rounds with a warm page cache, two threads.
"""

import argparse
import os
import shutil
import statistics
import struct
import subprocess
import time
from pathlib import Path

import duckdb

from programs import MAKER, processors, words


def footer(path):
    with path.open("rb") as f:
        f.seek(-8, os.SEEK_END)
        return struct.unpack("<I", f.read(4))[0]


def asked(sql, threads):
    begin = time.monotonic()
    con = duckdb.connect()
    con.execute(f"SET threads={threads}")
    con.execute(sql).fetchall()
    con.close()
    return (time.monotonic() - begin) * 1e3


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                epilog="Each option's default is the environment variable of its name in capitals.")
    env = os.environ.get
    p.add_argument("--nodes", type=int, default=int(env("NODES", "1024")))
    p.add_argument("--tiles", type=int, default=int(env("TILES", "12")))
    p.add_argument("--per-file", nargs="+", default=words("PER_FILE", "64 128 256 512 1024 2048 4096 12288"), help="row groups in a file")
    p.add_argument("--tables", nargs="+", default=words("TABLES", "gpu host"))
    p.add_argument("--rounds", type=int, default=int(env("ROUNDS", "5")))
    p.add_argument("--where", type=Path, default=Path(env("WHERE", "/dev/shm")))
    s = p.parse_args()
    (cpus,) = processors()
    os.sched_setaffinity(0, cpus)
    root = s.where / "gswarm-footers"
    for table in s.tables:
        shutil.rmtree(root, ignore_errors=True)
        total = s.nodes * s.tiles
        subprocess.run([MAKER, "-o", root, "-table", table, "-nodes", str(s.nodes), "-groups", str(total), "-footers", ",".join(s.per_file)], check=True)
        dirs = {n: root / n for n in s.per_file}
        queries = {}
        for n, d in dirs.items():
            (middle,), = duckdb.sql(f"SELECT min(time_ns) + 1800000000000 FROM '{d}/*.parquet'").fetchall()
            where = f"node = 'node0003' AND time_ns BETWEEN {middle} AND {middle} + 600000000000"
            queries[n] = f"FROM '{d}/part-0000.parquet' LIMIT 0", f"SELECT count(*) FROM '{d}/*.parquet' WHERE {where}"
        times = {n: ([], []) for n in dirs}
        for _ in range(s.rounds):
            for n in dirs:
                for got, sql in zip(times[n], queries[n], strict=True):
                    got.append(asked(sql, len(cpus)))
        print(f"\n### {table}: {s.nodes} nodes, {s.tiles} tiles, {total} row groups\n")
        print("| row groups in a file | files | greatest footer, MB | all footers, MB | columns of one file, ms | one node, ten minutes, ms |")
        print("|---|---|---|---|---|---|")
        for n, d in dirs.items():
            lengths = [footer(f) / 1e6 for f in d.iterdir()]
            print(f"| {n} | {len(lengths)} | {max(lengths):.2f} | {sum(lengths):.1f} | {statistics.median(times[n][0]):.0f} | {statistics.median(times[n][1]):.0f} |")
        shutil.rmtree(root, ignore_errors=True)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
