#!/usr/bin/python3
"""signals.py LOG SECONDS [GRACE]: writes each signal it gets into LOG.RANK.

At SIGTERM it works on for GRACE seconds, as a job that saves its state, and
ends with 0. It ends with 0 after SECONDS in any case.
"""
import os
import signal
import sys
import time

log = open(f"{sys.argv[1]}.{os.environ.get('SLURM_PROCID', '0')}", "a", buffering=1)
end = time.monotonic() + float(sys.argv[2])
grace = float(sys.argv[3]) if len(sys.argv) > 3 else None


def note(number, _):
    global end
    name = signal.Signals(number).name
    print(name, file=log)
    if number == signal.SIGTERM and grace is not None:
        print(f"term {time.time_ns()}", file=log)
        end = time.monotonic() + grace


for s in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT):
    signal.signal(s, note)
print("ready", file=log)
while time.monotonic() < end:
    time.sleep(0.02)
print(f"done {time.time_ns()}", file=log)
