#!/usr/bin/env python3
"""Compare gswarm merge with DuckDB and Polars doing the same correction.

Makes a run of made-up shards, one for each node, and lets every program turn it
into one timeline, one program after the other, round by round, so that what else
the machine does meets all alike; each round begins with another program. A
program's time begins when its libraries are loaded and ends when its output is
synced. Printed are medians with the least and the greatest, the largest resident
size, and ratios within each round.

Every measurement is a line of RESULTS at once. Run again, what is there is not
measured again, so that a long comparison can be made in several windows; lines
of another build of gswarm are left out.

gswarm's tiled timeline is ordered by tile, node and time; gswarm's sorted one
and those of the -sort programs are totally ordered by time; those of the -copy
programs are in no order.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import threading
import time
from pathlib import Path

from programs import CORRECT, GSWARM, MAKER, ROOT, build_id, make_run, measure, processors, words

PROGRAMS = ["gswarm", "gswarm-sort", "copy", "times", "duckdb-copy", "duckdb-sort", "duckdb-sort-2gb", "polars-copy", "polars-sort"]
# A program, and those whose sum it is compared with.
RATIOS = [
    ("duckdb-sort", ["gswarm"]),
    ("duckdb-copy", ["gswarm"]),
    ("gswarm", ["copy", "times"]),
    ("duckdb-sort", ["gswarm-sort"]),
    ("duckdb-sort-2gb", ["gswarm-sort"]),
    ("polars-sort", ["gswarm-sort"]),
]


def settings():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                epilog="Each option's default is the environment variable of its name in capitals.")
    env = os.environ.get
    p.add_argument("--rows", nargs="+", type=int, default=[int(n) for n in words("ROWS", "50000000")])
    p.add_argument("--nodes", nargs="+", type=int, default=[int(n) for n in words("NODES", "64 1024")])
    p.add_argument("--tile", nargs="+", default=words("TILE", "5m"), help="lengths of the row groups in the shards")
    p.add_argument("--table", default=env("TABLE", "host"))
    p.add_argument("--pairs", type=int, default=int(env("PAIRS", "10")), help="rounds")
    p.add_argument("--where", nargs="+", default=words("WHERE", f"/dev/shm {ROOT}/build/bench"), help="directories")
    p.add_argument("--programs", nargs="+", default=words("PROGRAMS", " ".join(PROGRAMS)), choices=PROGRAMS, metavar="PROGRAM")
    p.add_argument("--lanes", type=int, default=int(env("LANES", "1")), help="rounds side by side, each on processors of its own")
    p.add_argument("--cpus", type=int, default=int(env("CPUS", "2")), help="processors, and threads, of a lane")
    p.add_argument("--limit", type=float, default=float(env("LIMIT", "inf")), help="seconds; no round begins that would end later")
    p.add_argument("--results", type=Path, default=Path(env("RESULTS", ROOT / "build/bench/merge.jsonl")))
    p.add_argument("--print", action="store_true", help="only print the tables of the results")
    return p.parse_args()


def command(program, run, table, out):
    """The command and where its output is."""
    if program.startswith("gswarm"):
        return [GSWARM, "merge", *(["--sort"] if program == "gswarm-sort" else []), run], run / "timeline"
    if program == "copy":
        return ["cp", "-r", f"{run}/nodes/.", out], out
    if program == "times":
        return [MAKER, "-times", "-table", table, "-o", run], out
    return [*CORRECT, program, run, table, out / "all.parquet"], out


def measure_one(program, run, table, cpus):
    out = run / "out"
    for d in (out, run / "timeline"):
        shutil.rmtree(d, ignore_errors=True)
    out.mkdir()
    wall, cpu, rss, size = measure(*command(program, run, table, out), cpus)
    for d in (out, run / "timeline"):
        shutil.rmtree(d, ignore_errors=True)
    return {"wall": wall, "cpu": cpu, "rss": rss, "size": size}


class Results:
    """Measurements in a file, by case (where, nodes, rows, tile), round and program."""

    def __init__(self, path, table, cpus):
        self.path, self.lock = path, threading.Lock()
        self.fixed = {"build": build_id(), "table": table, "cpus": cpus}
        self.lines = []
        if path.exists():
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            self.lines = [x for x in lines if self.fixed.items() <= x.items()]
            if len(lines) > len(self.lines):
                print(f"{len(lines) - len(self.lines)} of {len(lines)} measurements in {path} are of another build or setting and left out", file=sys.stderr)

    def add(self, **line):
        line |= self.fixed | {"load": os.getloadavg()[0]}
        with self.lock:
            self.lines.append(line)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as f:
                f.write(json.dumps(line) + "\n")
        print(f"round {line['round']}: {line['program']}: {line['wall']:.1f} s, {line['cpu']:.1f} s of processors, load {line['load']:.0f}", file=sys.stderr, flush=True)

    def rounds(self, case, programs):
        """Whole rounds of a case: a list of {program: measurement}."""
        got = {}
        for x in self.lines:
            if case.items() <= x.items():
                got.setdefault(x["round"], {})[x["program"]] = x
        return {n: r for n, r in got.items() if all(p in r for p in programs)}


class Deadline:
    """Says whether another round fits."""

    def __init__(self, limit):
        self.end, self.longest = time.monotonic() + limit, 0.0

    def fits(self):
        return time.monotonic() + self.longest <= self.end


def lane_of(run, name):
    """A run directory with the shards of run, for one lane alone."""
    lane = run.parent / f"{run.name}-{name}"
    shutil.rmtree(lane, ignore_errors=True)
    lane.mkdir()
    for p in run.iterdir():
        if p.is_file():
            shutil.copy(p, lane)
    (lane / "nodes").symlink_to(run / "nodes")
    return lane


def compare(s, case, results, deadline):
    """Measure what is left of a case."""
    done = results.rounds(case, s.programs)
    left = [n for n in range(s.pairs) if n not in done]
    if not left or not deadline.fits():
        return
    run = Path(case["where"]).resolve() / "gswarm-bench"
    shutil.rmtree(run, ignore_errors=True)
    make_run(run, case["nodes"], case["rows"], s.table, case["tile"])
    failed, lock = [], threading.Lock()

    def rounds(lane, cpus):
        while True:
            with lock:
                if failed or not left or not deadline.fits():
                    return
                n = left.pop(0)
            begin, k = time.monotonic(), n % len(s.programs)
            try:
                for p in s.programs[k:] + s.programs[:k]:
                    results.add(**case, round=n, program=p, lanes=s.lanes, **measure_one(p, lane, s.table, cpus))
            except (Exception, SystemExit) as err:
                failed.append(err)
            deadline.longest = max(deadline.longest, time.monotonic() - begin)

    lanes = [lane_of(run, i) for i in range(s.lanes)]
    threads = [threading.Thread(target=rounds, args=a) for a in zip(lanes, processors(s.lanes, s.cpus), strict=True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for d in (run, *lanes):
        shutil.rmtree(d, ignore_errors=True)
    if failed:
        raise failed[0]


def spread(values, digits=1):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def tables(s, case, results):
    """Print the tables of a case."""
    rounds = list(results.rounds(case, s.programs).values())
    name = "RAM disk" if case["where"].startswith("/dev/shm") else "disk"
    rows = f"{case['rows']:,}".replace(",", " ")
    print(f"\n### {rows} rows of {s.table}, {case['nodes']} shards, tiles of {case['tile']}, {name}, rounds: {len(rounds)}\n")
    if not rounds:
        return print("None.")
    loads = [x["load"] for r in rounds for x in r.values()]
    lanes = sorted({x["lanes"] for r in rounds for x in r.values()})
    print(f"{s.cpus} processors a program, {' and '.join(map(str, lanes))} at a time; the machine's load was {min(loads):.0f} to {max(loads):.0f}.\n")
    print("| program | wall s | CPU s | RSS MiB | output MB |")
    print("|---|---|---|---|---|")
    for p in s.programs:
        x = [r[p] for r in rounds]
        print(f"| {p} | {spread([v['wall'] for v in x])} | {spread([v['cpu'] for v in x])} | {max(v['rss'] for v in x):.0f} | {x[0]['size'] / 1e6:.0f} |")
    print("\n| ratio, by round | wall | CPU |")
    print("|---|---|---|")
    for over, under in RATIOS:
        if {over, *under} <= set(s.programs):
            of = [spread([r[over][k] / sum(r[p][k] for p in under) for r in rounds]) for k in ("wall", "cpu")]
            low = " + ".join(under)
            print(f"| {over} / {low if len(under) == 1 else f'({low})'} | {of[0]} | {of[1]} |")
    sys.stdout.flush()


def main():
    s = settings()
    processors(s.lanes, s.cpus)
    results, deadline = Results(s.results, s.table, s.cpus), Deadline(s.limit)
    cases = [{"where": w, "nodes": n, "rows": r, "tile": t} for w in s.where for n in s.nodes for r in s.rows for t in s.tile]
    for case in cases:
        if not s.print:
            Path(case["where"]).mkdir(parents=True, exist_ok=True)
            compare(s, case, results, deadline)
    for case in cases:
        tables(s, case, results)


if __name__ == "__main__":
    main()
