"""One rank of a job in which each rank has a host trouble of its own."""
import mmap
import os
import socket
import subprocess
import time

rank = int(os.environ["SLURM_PROCID"])
seconds = float(os.environ.get("SECONDS_TO_RUN", "10"))
data = os.environ["DATA"]  # a large file, all holes
marks = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def mark(text):
    for _ in range(50):  # the agents start beside the job
        try:
            return marks.sendto(text.encode(), socket.MSG_DONTWAIT, "\0" + os.environ["GSWARM_MARK"])
        except OSError:
            time.sleep(0.1)


hogs = []
if rank == 0:  # bound to one CPU where the others have all
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
if rank == 1:  # its CPU is somebody else's too
    os.sched_setaffinity(0, {0})
    hogs = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2)]
if rank == 2:  # more memory than it was given
    with open(data, "rb") as f:
        pages = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)

mark("begin")
begin = time.monotonic()
at = 0
with open(data, "rb", buffering=0) as f:
    while time.monotonic() - begin < seconds:
        if rank == 1:
            spin = time.monotonic()
            while time.monotonic() - spin < 0.05:
                pass
        elif rank == 2:
            for _ in range(300):
                at = (at + 64 * 4096) % len(pages)
                pages[at]
            time.sleep(0.05)
        # What it works on; one rank's comes slowly.
        f.seek(0)
        f.read(1 << 10 if rank == 3 else 1 << 16)
        time.sleep(0.02)
mark("end")
for h in hogs:
    h.kill()
