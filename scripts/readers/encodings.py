#!/usr/bin/env python3
"""Say what each column of Parquet files costs, and would cost otherwise.

    encodings.py FILE...

For each column: its encoding and bytes per row in the file, and the bytes per
row of the same values in each encoding that Parquet's readers share, zstd-1
behind it, one row group and one page, as the file has it.

Exit status: 0, 2 usage.
"""

import io
import sys

import pyarrow as pa
import pyarrow.parquet as pq

PLANS = {
    "plain": {"use_dictionary": False},
    "dict": {"use_dictionary": True},
    "delta": {"use_dictionary": False, "column_encoding": "DELTA_BINARY_PACKED"},
    "split": {"use_dictionary": False, "column_encoding": "BYTE_STREAM_SPLIT"},
}


def cost(column: pa.Table, plan: dict) -> int | None:
    out = io.BytesIO()
    name = column.column_names[0]
    kwargs = dict(plan)
    if "column_encoding" in kwargs:
        kwargs["column_encoding"] = {name: kwargs["column_encoding"]}
    try:
        pq.write_table(column, out, compression="zstd", compression_level=1, data_page_size=1 << 30, store_schema=False, **kwargs)
    except (OSError, pa.ArrowException):
        return None  # no such encoding of this type
    out.seek(0)
    return pq.ParquetFile(out).metadata.row_group(0).column(0).total_compressed_size


def main(paths: list[str]) -> int:
    if not paths:
        print(__doc__, file=sys.stderr)
        return 2
    for path in paths:
        f = pq.ParquetFile(path)
        rows = f.metadata.num_rows
        print(f"{path}: {rows} rows, {sum(f.metadata.row_group(i).total_byte_size for i in range(f.num_row_groups))} bytes before compression")
        print(f"{'column':24} {'has':24} {'B/row':>7} " + " ".join(f"{p:>7}" for p in PLANS) + "  least")
        table = f.read()
        for i, name in enumerate(table.column_names):
            chunks = [f.metadata.row_group(g).column(i) for g in range(f.num_row_groups)]
            have = sum(c.total_compressed_size for c in chunks)
            costs = {p: cost(table.select([name]), plan) for p, plan in PLANS.items()}
            least = min((p for p in costs if costs[p] is not None), key=lambda p: costs[p])
            shown = " ".join(f"{costs[p] / rows:7.3f}" if costs[p] is not None else "      -" for p in PLANS)
            encodings = ",".join(e for e in chunks[0].encodings if e != "RLE")
            print(f"{name:24} {encodings:24} {have / rows:7.3f} {shown}  {least}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
