"""Where the programs of the benchmarks lie, and how a run of one is measured.

BIN names the directory of gswarm and mergebench (default bin); the Python that
runs the benchmark has DuckDB and Polars, in its own directories or in PYTHONPATH.
"""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("BIN", ROOT / "bin")).resolve()
GSWARM, MAKER = BIN / "gswarm", BIN / "mergebench"
CORRECT = [sys.executable, "-B", ROOT / "scripts/bench/correct.py"]


def make_run(run, nodes, rows, table, tile, *more):
    """Make a run of made-up shards; return how many bytes it has."""
    subprocess.run([MAKER, "-o", run, "-nodes", str(nodes), "-rows", str(rows), "-table", table, "-tile", tile, *more], check=True)
    return sync(run)


def sync(path):
    """Sync every file below path; return how many bytes they have."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    for p in files:
        fd = os.open(p, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    return sum(p.stat().st_size for p in files)


def measure(command, outputs, cpus):
    """Run a command on some processors until its outputs are synced.

    Returns seconds, seconds of processors, the largest resident size in MiB and
    the bytes of the outputs. A program that says when it has loaded its
    libraries is measured from then on.
    """

    def pin():
        os.sched_setaffinity(0, cpus)

    env = os.environ | {"GOMAXPROCS": str(len(cpus)), "THREADS": str(len(cpus)), "POLARS_MAX_THREADS": str(len(cpus))}
    begin, before = time.monotonic(), 0.0
    with subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, env=env, preexec_fn=pin, text=True) as p:
        for line in p.stdout:
            if line.startswith("loaded "):
                begin, before = (float(v) for v in line.split()[1:])
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode not in (0, 3):
        sys.exit(f"{' '.join(str(c) for c in command)}: exit status {p.returncode}")
    size = sync(outputs)
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime - before, usage.ru_maxrss / 1024, size


def processors(lanes=1, each=2):
    """Sets of processors, one for each lane."""
    have = sorted(os.sched_getaffinity(0))
    if lanes * each > len(have):
        sys.exit(f"{lanes} lanes of {each} processors need {lanes * each}; there are {len(have)}")
    return [set(have[i * each : (i + 1) * each]) for i in range(lanes)]


def build_id():
    """Tell one build of gswarm from another."""
    return hashlib.sha256(GSWARM.read_bytes()).hexdigest()[:12]


def words(name, default):
    """A setting that is a list, from the environment."""
    return os.environ.get(name, default).split()
