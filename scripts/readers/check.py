#!/usr/bin/env python3
"""Open a timeline with DuckDB, pandas, PyArrow and Polars and compare them.

    check.py TIMELINE

TIMELINE is the directory that `gswarm merge` writes: one directory for each
table with Parquet files in it. They are opened as they are, with no option
that would repair a type. Each reader must see the same rows, the same types,
the same nulls and the same integers to the last digit, and a join on time_ns
must find the same pairs.

Exit status: 0 all readers agree, 1 they do not or the data is not what the
format says, 2 usage.
"""

import sys
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

VERSIONS = {m.__name__: m.__version__ for m in (duckdb, pd, pa, pl)}

# The columns that every table of a timeline begins with.
REQUIRED = {
    "time": pa.timestamp("us", tz="UTC"),
    "time_ns": pa.int64(),
    "time_bound_ns": pa.int64(),
    "node": pa.string(),
    "read_ns": pa.int64(),
}
NEVER_NULL = ("time", "time_ns", "node", "read_ns")

# The unit that a column's name ends in and how its metadata spells it; values
# of exact units are integers.
UNITS = {
    "_ns": "ns",
    "_bytes": "bytes",
    "_mw": "mW",
    "_mj": "mJ",
    "_mhz": "MHz",
    "_pct": "percent",
    "_count": "count",
}
EXACT = ("_ns", "_bytes", "_count")

# Below this many rows all stamps may end in zeros by chance.
MIN_DIGIT_ROWS = 16


class Problems(list):
    """What is wrong, in words, each with the table it is wrong in."""

    table = ""

    def unless(self, ok, text):
        if not ok:
            self.append(f"{self.table}: {text}")
        return ok


def exact_sum(values):
    """Sum of an int64 array without overflow: the sums of its halves."""
    v = np.asarray(values, dtype=np.int64)
    return int((v // 10**9).sum()) * 10**9 + int((v % 10**9).sum())


# A column's digest is what all readers must agree on: the number of nulls and
# the least and greatest value, and the exact sum of integers.


def digest_pyarrow(table, name):
    c = table.column(name)
    v = pc.cast(c, pa.int64()) if pa.types.is_timestamp(c.type) else c
    if pa.types.is_boolean(v.type) or v.null_count == len(v):
        return (c.null_count, None, None, None)
    m = pc.min_max(v).as_py()
    total = exact_sum(v.drop_null().to_numpy()) if pa.types.is_integer(v.type) else None
    return (c.null_count, m["min"], m["max"], total)


def digest_pandas(frame, name):
    s = frame[name]
    nulls = int(s.isna().sum())
    v = s.dropna()
    if len(v) == 0:
        return (nulls, None, None, None)
    if isinstance(s.dtype, pd.ArrowDtype):
        t = s.dtype.pyarrow_dtype
        if pa.types.is_timestamp(t):
            v = pa.chunked_array(v.array.__arrow_array__()).cast(pa.int64()).to_numpy()
            return (nulls, int(v.min()), int(v.max()), exact_sum(v))
        if pa.types.is_integer(t):
            v = v.to_numpy(dtype=np.int64)
            return (nulls, int(v.min()), int(v.max()), exact_sum(v))
    return (nulls, v.min(), v.max(), None)


def digest_polars(frame, name):
    s = frame[name]
    nulls = s.null_count()
    if nulls == len(s):
        return (nulls, None, None, None)
    if s.dtype == pl.Datetime("us", "UTC"):
        s = s.to_physical()
    total = int(s.cast(pl.Int128).sum()) if s.dtype.is_integer() else None
    return (nulls, s.min(), s.max(), total)


def digest_duckdb(con, source, name, kind):
    q = '"' + name.replace('"', '""') + '"'
    v = f"epoch_us({q})" if kind == "TIMESTAMP WITH TIME ZONE" else q
    integer = kind.endswith(("INT", "INTEGER")) or v != q
    total = f"sum({v})" if integer else "NULL"
    n, have, least, most, total = con.execute(
        f"SELECT count(*), count({q}), min({v}), max({v}), {total} FROM {source}"
    ).fetchone()
    return (n - have, least, most, None if total is None else int(total))


def check_table(problems, con, path):
    files = sorted(path.glob("*.parquet"))
    if not problems.unless(files, "has no Parquet files"):
        return None
    schema = pq.read_schema(files[0])
    for f in files[1:]:
        problems.unless(pq.read_schema(f).equals(schema, check_metadata=True), f"{f.name} has another schema than {files[0].name}")

    # "As it is": each reader gets the plain directory or a glob.
    source = "read_parquet('" + str(path / "*.parquet").replace("'", "''") + "')"
    arrow = ds.dataset(path, format="parquet").to_table()
    plain = pd.read_parquet(path)
    typed = pd.read_parquet(path, dtype_backend="pyarrow")
    polars = pl.read_parquet(path / "*.parquet")
    kinds = dict(con.execute(f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {source})").fetchall())

    # Rows and columns.
    rows = {
        "PyArrow": arrow.num_rows,
        "pandas": len(plain),
        "Polars": polars.height,
        "DuckDB": con.execute(f"SELECT count(*) FROM {source}").fetchone()[0],
    }
    problems.unless(len(set(rows.values())) == 1, f"the readers count different rows: {rows}")
    for reader, names in (("pandas", list(plain.columns)), ("Polars", polars.columns), ("DuckDB", list(kinds))):
        problems.unless(names == schema.names, f"{reader} sees columns {names}, the files have {schema.names}")

    # Types.
    for name, want in REQUIRED.items():
        if not problems.unless(name in schema.names, f"has no column {name}"):
            return None
        problems.unless(schema.field(name).type == want, f"{name} is {schema.field(name).type}, want {want}")
        if name in NEVER_NULL:
            problems.unless(arrow.column(name).null_count == 0, f"{name} has nulls")
    for name, want in (("time", "datetime64[us, UTC]"), ("time_ns", "int64"), ("read_ns", "int64")):
        problems.unless(str(plain[name].dtype) == want, f"pandas has {plain[name].dtype} for {name}, want {want}")
    for name, want in (("time", pl.Datetime("us", "UTC")), ("time_ns", pl.Int64), ("time_bound_ns", pl.Int64), ("node", pl.String)):
        problems.unless(polars[name].dtype == want, f"Polars has {polars[name].dtype} for {name}, want {want}")
    for name, want in (("time", "TIMESTAMP WITH TIME ZONE"), ("time_ns", "BIGINT"), ("time_bound_ns", "BIGINT"), ("node", "VARCHAR")):
        problems.unless(kinds[name] == want, f"DuckDB has {kinds[name]} for {name}, want {want}")
    problems.unless(schema.field("time_bound_ns").nullable, "time_bound_ns is not nullable")

    # Metadata.
    for f in schema:
        unit = (f.metadata or {}).get(b"unit", b"").decode()
        for suffix, want in UNITS.items():
            if f.name.endswith(suffix):
                problems.unless(unit == want, f"{f.name} has unit {unit!r} in its metadata, want {want!r}")
        if f.name.endswith(EXACT):
            problems.unless(pa.types.is_integer(f.type), f"{f.name} is {f.type}, want an integer")

    # Values: every column, every reader, to the last digit.
    for name in schema.names:
        want = digest_pyarrow(arrow, name)
        for reader, digest in (
            ("pandas", lambda: digest_pandas(typed, name)),
            ("Polars", lambda: digest_polars(polars, name)),
            ("DuckDB", lambda: digest_duckdb(con, source, name, kinds[name])),
        ):
            got = digest()
            # The least and the greatest string depend on the collation.
            same = got[0] == want[0] if isinstance(want[1], str) else got == want
            problems.unless(same, f"{name}: {reader} has (nulls, min, max, sum) {got}, PyArrow {want}")
        # What pandas does to integers with nulls by default, it must not do
        # to their number.
        nulls = int(plain[name].isna().sum())
        problems.unless(nulls == want[0], f"{name}: pandas has {nulls} nulls by default, PyArrow {want[0]}")

    # The two times agree, and the exact one has digits that neither a float64
    # nor a microsecond can hold.
    if not (pa.types.is_timestamp(schema.field("time").type) and pa.types.is_integer(schema.field("time_ns").type)):
        return source
    us = pc.cast(arrow.column("time"), pa.int64()).drop_null().to_numpy()
    ns = arrow.column("time_ns").drop_null().to_numpy()
    if len(us) == len(ns):
        problems.unless((ns // 1000 == us).all(), "time is not time_ns without its last three digits")
    if len(ns) >= MIN_DIGIT_ROWS:
        for step, what in ((1000, "microseconds"), (128, "float64")):
            problems.unless((ns % step != 0).any(), f"every time_ns is a multiple of {step}: digits were lost to {what}")
    bound = arrow.column("time_bound_ns").drop_null()
    if pa.types.is_integer(bound.type) and len(bound):
        problems.unless(pc.min(bound).as_py() >= 0, "time_bound_ns is negative")
    return source


def check_join(problems, con, root, left, right):
    """For each row of left, the last row of right on its node at or before it."""
    problems.table = f"{left} with {right}"
    cols = ["node", "time_ns"]
    where = {t: "read_parquet('" + str(root / t / "*.parquet").replace("'", "''") + "')" for t in (left, right)}
    got = {}
    got["DuckDB"] = con.execute(
        f"SELECT count(r.time_ns), sum(l.time_ns - r.time_ns) FROM {where[left]} l "
        f"ASOF LEFT JOIN {where[right]} r ON l.node = r.node AND l.time_ns >= r.time_ns"
    ).fetchone()

    def frame(t):
        return pd.read_parquet(root / t, columns=cols).sort_values("time_ns")

    r = frame(right)
    r["found"] = r["time_ns"].astype("Int64")
    j = pd.merge_asof(frame(left), r, on="time_ns", by="node")
    gap = (j["time_ns"].astype("Int64") - j["found"]).dropna()
    got["pandas"] = (len(gap), int(gap.sum()))

    def lazy(t):
        return pl.scan_parquet(root / t / "*.parquet").select(cols).sort("time_ns")

    j = lazy(left).join_asof(lazy(right).with_columns(found="time_ns"), on="time_ns", by="node", check_sortedness=False).collect()
    got["Polars"] = (j["found"].count(), (j["time_ns"] - j["found"]).sum())

    got = {k: (int(a), int(b or 0)) for k, (a, b) in got.items()}
    problems.unless(len(set(got.values())) == 1, f"the readers join differently (pairs, sum of distances in ns): {got}")
    problems.unless(max(a for a, _ in got.values()) > 0, "no row finds a partner")
    return got["DuckDB"][0]


def check(root):
    """Check a timeline; returns the problems and lines that tell what was seen."""
    root = Path(root)
    problems, lines = Problems(), []
    con = duckdb.connect()
    tables = sorted(p.name for p in root.iterdir() if p.is_dir()) if root.is_dir() else []
    sound = {}
    for name in tables:
        problems.table, before = name, len(problems)
        try:
            source = check_table(problems, con, root / name)
        except Exception as e:  # a reader that refuses the file
            problems.append(f"{name}: {type(e).__name__}: {e}")
            continue
        if source and len(problems) == before:
            sound[name] = con.execute(f"SELECT count(*) FROM {source}").fetchone()[0]
            lines.append(f"{name}: {sound[name]} rows")
    problems.table = str(root)
    if not problems.unless(tables, "holds no tables"):
        return problems, lines
    if problems:
        return problems, lines

    partners = [t for t in ("gpu", "net", "sampler", "disk") if sound.get(t)]
    if problems.unless(sound.get("host") and partners, "has no rows of host and of another table to join"):
        for left in partners:
            try:
                n = check_join(problems, con, root, left, "host")
                lines.append(f"{left} joined with host: {n} pairs")
            except Exception as e:
                problems.append(f"{left} with host: {type(e).__name__}: {e}")
    return problems, lines


def main(argv):
    if len(argv) != 2 or argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    print(", ".join(f"{k} {v}" for k, v in VERSIONS.items()))
    problems, lines = check(argv[1])
    for line in lines:
        print(line)
    for p in problems:
        print("wrong:", p, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
