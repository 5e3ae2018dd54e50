#!/usr/bin/env python3
"""Compare exported Arrow streams with the timeline that they came from.

    streams.py STREAMS TIMELINE [RAW]

STREAMS is what `gswarm export --to arrow -o STREAMS` wrote. Each stream must be
whole and hold the rows of its table in the timeline, to the last digit. RAW is
the same made with --raw: as many rows of each table, at least (the merge adds
absences of its own), and the raw clock's columns.

Exit status: 0 all agree, 1 they do not, 2 usage.
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def read(path: Path) -> pa.Table:
    with pa.ipc.open_stream(path) as stream:
        table = stream.read_all()
    table.validate(full=True)
    return table


def check(streams: Path, timeline: Path, raw: Path | None) -> list[str]:
    problems = []
    tables = {p.name for p in timeline.iterdir() if p.is_dir()}
    for name in sorted(tables):
        want = pq.read_table(timeline / name)
        path = streams / f"{name}.arrows"
        if not path.exists():
            if want.num_rows:
                problems.append(f"{name}: no stream, {want.num_rows} rows in the timeline")
            continue
        have = read(path)
        if not have.equals(want):
            problems.append(f"{name}: the stream's {have.num_rows} rows are not the timeline's {want.num_rows}")
        if raw is not None and (raw / path.name).exists():
            recorded = read(raw / path.name)
            if recorded.num_rows != want.num_rows and name != "absence":
                problems.append(f"{name}: {recorded.num_rows} rows were recorded, {want.num_rows} are in the timeline")
            if recorded.column_names[:3] != ["node", "t_raw_ns", "read_ns"]:
                problems.append(f"{name}: columns {recorded.column_names[:3]}")
    extra = {p.stem for p in streams.glob("*.arrows")} - tables
    return problems + [f"{name}: a stream of no table" for name in sorted(extra)]


def main(args: list[str]) -> int:
    if len(args) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    problems = check(Path(args[0]), Path(args[1]), Path(args[2]) if len(args) > 2 else None)
    for p in problems:
        print(p)
    if not problems:
        print(f"{len(list(Path(args[0]).glob('*.arrows')))} streams hold what the timeline holds")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
