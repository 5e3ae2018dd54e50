#!/usr/bin/env python3
"""Run the code of docs/tools.md and see that every tool gives the same answer.

    tools.py [--update] PAGE DIR

DIR holds the run that the page is about, called run, and its exports. Every
block of code on the page is run there. Its output must name GPU 3 first, with
the activity that the others find, and have the words that the page shows; with
--update the page is rewritten to show it.

Exit status: 0 all is as the page says, 1 it is not, 2 usage.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

from trace_processor import TraceProcessor

BLOCK = re.compile(r"^```(console|python \w+|sql perfetto)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
NEAR = 1.0  # percent points: means over frames, windows and counters differ a little


def run(kind, code):
    """The output of a block."""
    if kind == "console":
        return subprocess.run(code.removeprefix("$ "), shell=True, check=True, capture_output=True, text=True).stdout
    if kind.startswith("python"):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, kind, "exec"), {})
        return out.getvalue()
    with TraceProcessor("run.perfetto-trace") as trace:
        rows = list(trace.query(code))
    lines = [[str(v) for v in row.values()] for row in rows]
    lines.insert(0, list(rows[0]))
    return "".join("  ".join(v.ljust(10) for v in line).rstrip() + "\n" for line in lines)


def words(text):
    return re.findall(r"[A-Za-z_]{2,}", text)


def activity(kind, output):
    """What the output says of the first GPU: its ordinal and its activity."""
    rows = [re.findall(r"\d+(?:\.\d+)?", line) for line in output.splitlines() if not re.search(r"int|f64|varchar|double|shape", line)]
    first = next(r for r in rows if len(r) >= 2)
    return int(float(first[0])), float(first[1] if kind in ("sql perfetto", "python tensorboard") else first[2])


def main(argv):
    update = "--update" in argv
    args = [a for a in argv[1:] if a != "--update"]
    if len(args) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    page = Path(args[0]).absolute()
    text = page.read_text()
    os.chdir(args[1])
    wrong, found = [], {}

    def block(m):
        kind, code, shown = m.group(1), m.group(2), m.group(3) or ""
        output = run(kind, code)
        output = "\n".join(line.rstrip() for line in output.splitlines()).rstrip() + "\n"
        if words(output) != words(shown) and not update:
            wrong.append(f"{kind}: it prints\n{output}and the page shows\n{shown}")
        if kind == "console":
            if "rank 3" not in output:
                wrong.append(f"{kind}: rank 3 is not named: {output}")
        elif "second" in code:
            if not re.search(r"\b[78]\b", output):
                wrong.append(f"{kind}: the eighth second is not found: {output}")
        else:
            found[kind] = activity(kind, output)
        return f"```{kind}\n{code}```\n\n```text\n{output}```\n"

    new = BLOCK.sub(block, text)
    want = found.get("python duckdb")
    for kind, (gpu, active) in found.items():
        if gpu != 3 or not want or abs(active - want[1]) > NEAR:
            wrong.append(f"{kind}: GPU {gpu} with {active} %, DuckDB has {want}")
    if len(found) < 5:
        wrong.append(f"only {sorted(found)} were run")
    if update:
        page.write_text(new)
    for w in wrong:
        print(w, file=sys.stderr)
    if not wrong:
        print(f"{page.name}: {', '.join(k.split()[-1] for k in found)} all name GPU 3, {want[1]} % active")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
