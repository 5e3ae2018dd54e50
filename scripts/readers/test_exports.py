"""The comparison of exports sees every kind of difference."""

import tempfile
import unittest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import frames

T0 = 1_763_670_000 * 10**9


class Same(unittest.TestCase):
    want = {("n0", 0, T0): 1.0, ("n0", 1, T0): 100.0}

    def problems(self, have):
        c = frames.Comparison()
        c.same("x", have, self.want)
        return c.problems

    def test_equal(self):
        self.assertEqual(self.problems(dict(self.want)), [])

    def test_rounded(self):
        self.assertEqual(self.problems({k: v + 1e-6 for k, v in self.want.items()}), [])

    def test_other_value(self):
        self.assertEqual(len(self.problems({**self.want, ("n0", 1, T0): 100.1})), 1)

    def test_missing_and_extra(self):
        self.assertEqual(len(self.problems({("n0", 0, T0): 1.0})), 1)
        self.assertEqual(len(self.problems({**self.want, ("n0", 2, T0): 0.0})), 1)

    def test_nothing(self):
        c = frames.Comparison()
        c.same("x", {}, {})
        self.assertEqual(len(c.problems), 1)


class FromTimeline(unittest.TestCase):
    """The means are those of the definition, worked out by hand."""

    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        root = Path(self.tmp.name)
        for table, rows in {
            "gpu": {"time_ns": [T0, T0 + 5, T0 + 10**9], "util_gpu_pct": [10, 30, None]},
            # A window of a second, a quarter of it in the first frame.
            "gpu_activity": {"time_begin_ns": [T0 + 75 * 10**7], "time_ns": [T0 + 175 * 10**7], "dram_pct": [8.0]},
        }.items():
            (root / table).mkdir()
            n = len(rows["time_ns"])
            pq.write_table(pa.table({"node": ["n0"] * n, "gpu": [0] * n, **rows}), root / table / "part-0000.parquet")
        self.gauges = frames.Gauges(root)

    def tearDown(self):
        self.tmp.cleanup()

    def test_polled(self):
        self.assertEqual(self.gauges.of("gpu", "util_gpu_pct"), {("n0", 0, T0): 20.0})

    def test_windowed(self):
        self.assertEqual(self.gauges.of("gpu_activity", "dram_pct"), {("n0", 0, T0): 8.0, ("n0", 0, T0 + 10**9): 8.0})


if __name__ == "__main__":
    unittest.main()
