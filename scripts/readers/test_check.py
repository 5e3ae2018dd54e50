"""The check of the readers accepts what the format says and nothing else."""

import tempfile
import unittest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import check

T0 = 1_763_670_000_123_456_789
ROWS = 40


def field(name, kind, unit="", nullable=True):
    return pa.field(name, kind, nullable, {"unit": unit, "window": "instant", "source": "test"})


TIMES = [
    field("time", pa.timestamp("us", tz="UTC"), "us", False),
    field("time_ns", pa.int64(), "ns", False),
    field("time_bound_ns", pa.int64(), "ns"),
    field("node", pa.string(), nullable=False),
    field("read_ns", pa.int64(), "ns", False),
]


def times(offset):
    """Stamps of two nodes, one of which was never aligned."""
    ns = [T0 + offset + 1_000_000_007 * (i // 2) + i for i in range(ROWS)]
    return [
        [n // 1000 for n in ns],
        ns,
        [None if i % 2 else 1_234_567 + i for i in range(ROWS)],
        [f"node{i % 2}" for i in range(ROWS)],
        [1000 + i for i in range(ROWS)],
    ]


def host():
    own = [field("cpu_user_ns", pa.int64(), "ns"), field("procs_running_count", pa.int32(), "count"), field("load1", pa.float32())]
    values = times(0) + [
        [2**62 + i if i % 3 else None for i in range(ROWS)],
        [i if i % 5 else None for i in range(ROWS)],
        [i / 3 for i in range(ROWS)],
    ]
    return make(TIMES + own, values)


def net():
    own = [field("device", pa.string(), nullable=False), field("rx_bytes", pa.int64(), "bytes"), field("tx_bytes", pa.int64(), "bytes")]
    values = times(500_001) + [["eth0"] * ROWS, [2**63 - 1 - i for i in range(ROWS)], [None] * ROWS]
    return make(TIMES + own, values)


def make(fields, values):
    return pa.Table.from_arrays([pa.array(v, f.type) for v, f in zip(values, fields)], schema=pa.schema(fields))


def replace(table, name, kind=None, unit=None, values=None, nullable=None):
    """The table with one column of another type, unit or content."""
    i = table.schema.get_field_index(name)
    f = table.schema.field(i)
    column = table.column(i)
    if values is not None:
        column = pa.array(values, kind or f.type)
    elif kind is not None:
        column = column.cast(kind, safe=False)
    f = field(name, column.type, f.metadata[b"unit"].decode() if unit is None else unit, f.nullable if nullable is None else nullable)
    return table.set_column(i, f, column)


def through_float(values):
    return [int(float(v)) for v in values]


class Check(unittest.TestCase):
    def problems(self, tables):
        """Check a timeline of name -> table or list of tables (files)."""
        with tempfile.TemporaryDirectory() as d:
            for name, files in tables.items():
                (Path(d) / name).mkdir()
                for i, t in enumerate(files if isinstance(files, list) else [files]):
                    pq.write_table(t, Path(d) / name / f"part-{i}.parquet")
            return check.check(d)

    def assertWrong(self, tables, text):
        problems, _ = self.problems(tables)
        self.assertTrue(any(text in p for p in problems), f"want {text!r} in {problems}")

    def test_good(self):
        problems, lines = self.problems({"host": host(), "net": net()})
        self.assertEqual(problems, [])
        self.assertEqual(lines, ["host: 40 rows", "net: 40 rows", "net joined with host: 40 pairs"])

    def test_two_files_and_an_empty_table(self):
        h = host()
        problems, _ = self.problems({"host": [h.slice(0, 15), h.slice(15)], "net": net(), "event": host().slice(0, 0)})
        self.assertEqual(problems, [])

    def test_integers_turned_to_float(self):
        self.assertWrong({"host": replace(host(), "cpu_user_ns", pa.float64()), "net": net()}, "cpu_user_ns is double")
        self.assertWrong({"host": replace(host(), "time_bound_ns", pa.float64()), "net": net()}, "time_bound_ns is double")
        self.assertWrong({"host": replace(host(), "time_ns", pa.float64()), "net": net()}, "time_ns is double")

    def test_wrong_timezone_or_precision(self):
        for kind in (pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns", "UTC"), pa.timestamp("ms", "UTC")):
            t = host()
            values = [v.value // 1000 for v in t.column("time")]
            if kind.unit == "ns":
                values = [v * 1000 for v in values]
            if kind.unit == "ms":
                values = [v // 1000 for v in values]
            self.assertWrong({"host": replace(t, "time", kind, values=values), "net": net()}, "host: time is timestamp")

    def test_lost_digits(self):
        h = host()
        ns = h.column("time_ns").to_pylist()
        micro = replace(h, "time_ns", values=[n // 1000 * 1000 for n in ns])
        self.assertWrong({"host": micro, "net": net()}, "digits were lost to microseconds")
        lossy = replace(h, "time_ns", values=through_float(ns))
        lossy = replace(lossy, "time", values=[n // 1000 for n in through_float(ns)])
        self.assertWrong({"host": lossy, "net": net()}, "digits were lost to float64")

    def test_times_that_disagree(self):
        h = host()
        us = [v // 1000 + 1 for v in h.column("time_ns").to_pylist()]
        self.assertWrong({"host": replace(h, "time", values=us), "net": net()}, "time is not time_ns")

    def test_nulls_in_keys(self):
        h = host()
        ns = h.column("time_ns").to_pylist()
        self.assertWrong({"host": replace(h, "time_ns", values=[None] + ns[1:], nullable=True), "net": net()}, "time_ns has nulls")

    def test_bounds(self):
        h = host()
        self.assertWrong({"host": replace(h, "time_bound_ns", values=[-1] * ROWS), "net": net()}, "time_bound_ns is negative")
        self.assertWrong({"host": replace(h, "time_bound_ns", values=[1] * ROWS, nullable=False), "net": net()}, "time_bound_ns is not nullable")

    def test_missing_column_or_unit(self):
        self.assertWrong({"host": host().drop_columns(["node"]), "net": net()}, "has no column node")
        self.assertWrong({"host": replace(host(), "cpu_user_ns", unit=""), "net": net()}, "cpu_user_ns has unit ''")

    def test_schemas_that_differ(self):
        h = host()
        self.assertWrong({"host": [h, replace(h, "load1", pa.float64())], "net": net()}, "has another schema")

    def test_nothing_to_join(self):
        self.assertWrong({"host": host()}, "to join")
        far = net()
        ns = [n - 10**18 for n in far.column("time_ns").to_pylist()]
        far = replace(replace(far, "time_ns", values=ns), "time", values=[n // 1000 for n in ns])
        self.assertWrong({"host": host(), "net": far}, "no row finds a partner")

    def test_damage(self):
        with tempfile.TemporaryDirectory() as d:
            for name, t in {"host": host(), "net": net()}.items():
                (Path(d) / name).mkdir()
                pq.write_table(t, Path(d) / name / "a.parquet")
            p = Path(d) / "net" / "a.parquet"
            p.write_bytes(p.read_bytes()[:-9])
            problems, _ = check.check(d)
            self.assertTrue(any(p.startswith("net: ") for p in problems), problems)

    def test_digests_tell_readers_apart(self):
        """A reader that made nulls 0, or lost digits, has another digest."""
        t = host()
        want = check.digest_pyarrow(t, "cpu_user_ns")
        values = t.column("cpu_user_ns").to_pylist()
        zeros = replace(t, "cpu_user_ns", values=[v or 0 for v in values])
        lossy = replace(t, "cpu_user_ns", values=[v if v is None else int(float(v)) for v in values])
        for other in (zeros, lossy):
            self.assertNotEqual(check.digest_pyarrow(other, "cpu_user_ns"), want)

    def test_nothing_there(self):
        problems, _ = check.check("/nonexistent")
        self.assertEqual(problems, ["/nonexistent: holds no tables"])
        self.assertWrong({"host": [], "net": net()}, "host: has no Parquet files")


if __name__ == "__main__":
    unittest.main()
