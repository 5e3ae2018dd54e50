#!/usr/bin/python3
"""signals.py LOG SECONDS [GRACE]: writes each signal it gets into LOG.RANK.

At SIGTERM it works on for GRACE seconds, as a job that saves its state, and
ends with 0. It ends with 0 after SECONDS in any case.
"""
import os
import signal
import sys
import time

log = os.open(f"{sys.argv[1]}.{os.environ.get('SLURM_PROCID', '0')}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
end = time.monotonic() + float(sys.argv[2])
grace = float(sys.argv[3]) if len(sys.argv) > 3 else None


def say(text):
    os.write(log, (text + "\n").encode())  # whole lines, whatever interrupts it


def size():
    try:
        size = os.get_terminal_size(0)
        return f"{size.lines}x{size.columns}"
    except OSError:
        return "no terminal"


def note(number, _):
    global end
    name = signal.Signals(number).name
    say(f"{name} {size()}" if number == signal.SIGWINCH else name)
    if number == signal.SIGTERM and grace is not None:
        end = min(end, time.monotonic() + grace)


for s in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGQUIT, signal.SIGWINCH):
    signal.signal(s, note)
say("ready " + size() if os.isatty(0) else "ready")
while time.monotonic() < end:
    time.sleep(0.02)
say(f"done {time.time_ns()}")
