"""Do with DuckDB or Polars what gswarm merge does to one table: read all
shards, correct the time stamps, add the node, write one Parquet dataset.

    correct.py PROGRAM RUN TABLE OUT

PROGRAM is duckdb-copy, duckdb-sort, duckdb-sort-2gb, polars-copy or
polars-sort. The clock models are given (clocks.csv), a line for each node; to
fit them is no part of what is measured here. Both programs use THREADS threads
(2) and write zstd at their own default level. Once the libraries are loaded a
line says when that was and how much processor time it took.
"""

import os
import sys
import time
from pathlib import Path

THREADS = os.environ.get("THREADS", "2")
os.environ["POLARS_MAX_THREADS"] = THREADS


def loaded():
    print(f"loaded {time.monotonic()} {time.process_time()}", flush=True)


def duckdb_(run, table, out, sort, limit):
    import duckdb

    loaded()
    con = duckdb.connect()
    con.execute(f"SET threads={THREADS}; SET preserve_insertion_order=false")
    con.execute(f"SET temp_directory='{out}.tmp'")
    if limit:
        con.execute(f"SET memory_limit='{limit}'")
    con.execute(f"CREATE TABLE clocks AS FROM read_csv('{run}/clocks.csv')")
    order = "ORDER BY time_ns, node" if sort else ""
    con.execute(f"""
        COPY (
            SELECT make_timestamp(time_ns // 1000)::TIMESTAMPTZ AS time, * FROM (
                SELECT wall0 + ((t_raw_ns - raw0) * (1 - ppb * 1e-9))::BIGINT AS time_ns,
                       45100 + (read_ns + 1) // 2 AS time_bound_ns, node, read_ns,
                       s.* EXCLUDE (t_raw_ns, read_ns, filename)
                FROM read_parquet('{run}/nodes/*/{table}-*.parquet', filename=true) s
                JOIN clocks ON node = regexp_extract(filename, 'nodes/([^/]+)/', 1)
            ) {order}
        ) TO '{out}' (FORMAT parquet, COMPRESSION zstd)""")


def polars_(run, table, out, sort):
    import polars as pl

    loaded()
    clocks = pl.scan_csv(f"{run}/clocks.csv")
    rows = (
        pl.scan_parquet(f"{run}/nodes/*/{table}-*.parquet", include_file_paths="filename")
        .with_columns(node=pl.col("filename").str.extract(r"nodes/([^/]+)/", 1))
        .join(clocks, on="node")
        .with_columns(
            time_ns=pl.col("wall0") + ((pl.col("t_raw_ns") - pl.col("raw0")) * (1 - pl.col("ppb") * 1e-9)).cast(pl.Int64),
            time_bound_ns=45100 + (pl.col("read_ns") + 1) // 2,
        )
        .with_columns(time=(pl.col("time_ns") // 1000).cast(pl.Datetime("us", "UTC")))
        .drop("filename", "t_raw_ns", "raw0", "ppb", "wall0")
    )
    if sort:
        rows = rows.sort("time_ns", "node")
    rows.sink_parquet(out, compression="zstd")


def main(argv):
    program, run, table, out = argv[1:]
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    kind, _, rest = program.partition("-")
    if kind == "duckdb":
        duckdb_(run, table, out, rest.startswith("sort"), "2GB" if rest.endswith("2gb") else None)
    elif kind == "polars":
        polars_(run, table, out, rest == "sort")
    else:
        sys.exit(f"unknown program {program}")


if __name__ == "__main__":
    main(sys.argv)
