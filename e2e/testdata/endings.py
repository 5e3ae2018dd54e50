#!/usr/bin/python3
"""endings.py CASES RESULTS ATONCE: runs commands, so many at once, and writes what wait4(2) says of each.

CASES is a list of {"argv": […], "dir": …, "env": […]}, RESULTS gets {"status", "out", "err", "ms"} for each, in the same order.
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

PATIENCE = 40


def run(case):
    os.makedirs(case["dir"], exist_ok=True)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.monotonic()
        p = subprocess.Popen(case["argv"], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=case["dir"],
                             env=os.environ | dict(kv.split("=", 1) for kv in case["env"]))
        hung = False
        while True:
            pid, status = os.waitpid(p.pid, os.WNOHANG)
            if pid:
                break
            if not hung and time.monotonic() - begin > PATIENCE:
                hung = True
                p.kill()
            time.sleep(0.002)
        p.returncode = status  # so that subprocess does not wait, too
        ms = int((time.monotonic() - begin) * 1000)
        text = []
        for f in out, err:
            f.seek(0)
            text.append(f.read().decode("latin-1"))
    return {"status": status, "out": text[0], "err": text[1], "ms": ms, "hung": hung}


with open(sys.argv[1]) as f:
    cases = json.load(f)
with concurrent.futures.ThreadPoolExecutor(int(sys.argv[3])) as pool:
    results = list(pool.map(run, cases))
with open(sys.argv[2] + ".tmp", "w") as f:
    json.dump(results, f)
os.rename(sys.argv[2] + ".tmp", sys.argv[2])
