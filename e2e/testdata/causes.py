"""One rank of a job of steps, of which one has the trouble that TROUBLE names."""
import mmap
import os
import subprocess
import time

rank = int(os.environ["SLURM_PROCID"])
seconds = float(os.environ.get("SECONDS_TO_RUN", "20"))
trouble = os.environ.get("TROUBLE", "")
spin = ["sh", "-c", "while :; do :; done"]
others = []
if trouble == "cpu" and rank == 1:  # its CPU is somebody else's too
    cpu = {0}
    others = [subprocess.Popen(spin, preexec_fn=lambda: os.sched_setaffinity(0, cpu), env={}) for _ in range(2)]
if trouble == "affinity" and rank == 1:  # it and its helpers have one CPU where the others have all
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    others = [subprocess.Popen(spin) for _ in range(2)]
if trouble == "memory" and rank == 1:  # more memory than it was given
    data = open(os.environ["DATA"], "rb")
    pages = mmap.mmap(data.fileno(), 0, prot=mmap.PROT_READ)
feed = None
if trouble == "input":  # all ranks wait for what comes through a pipe
    feed = subprocess.Popen(["sh", "-c", "while sleep 0.4; do echo data || exit; done"], stdout=subprocess.PIPE)

begin = time.monotonic()
at = 0
while time.monotonic() - begin < seconds:
    if feed:
        feed.stdout.readline()
    if trouble == "cpu" and rank == 1:
        os.sched_setaffinity(0, {0})
    work = time.monotonic()
    while time.monotonic() - work < (0.2 if trouble in ("cpu", "affinity") and rank == 1 else 0.02):
        sum(range(500))
    if trouble == "memory" and rank == 1:
        for _ in range(300):
            at = (at + 64 * 4096) % len(pages)
            pages[at]
    time.sleep(0.05 if trouble in ("cpu", "affinity", "memory") and rank == 1 else 0.3)
for p in [*others, *([feed] if feed else [])]:
    p.kill()
