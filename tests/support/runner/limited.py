"""limited.py SECONDS COMMAND...: runs the command, and ends it when its time is over.

A second in which more processes want a core than there are counts less: with six for two cores it
counts a third. So a job has its time on a machine that does other work, too.

Then it says what the command was doing: each of its processes, with what that one waits for. Its
status is the command's, or 124. What the command leaves in its group of processes ends with it.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

GRACE_S = 30  # between SIGTERM and SIGKILL


def share():
    """The part of a core that each process that wants one has now, at most 1."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("procs_running "):
            others = int(line.split()[1]) - 1  # this one asks
            return min(1.0, len(os.sched_getaffinity(0)) / max(others, 1))
    return 1.0


def ends_within(process, seconds):
    """Waits for it; False when its seconds are over."""
    left, at = seconds, time.monotonic()
    while left > 0:
        try:
            process.wait(min(1.0, seconds / 4))
            return True
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            left -= (now - at) * share()
            at = now
    return False


def field(pid, name):
    try:
        words = Path(f"/proc/{pid}/{name}").read_bytes().replace(b"\0", b" ")
        return words.decode(errors="replace").strip()
    except OSError:
        return ""


def processes():
    """Of this machine, by parent."""
    children = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        stat = field(pid, "stat").rpartition(")")[2].split()
        if stat:
            children.setdefault(int(stat[1]), []).append((int(pid), stat))
    return children


def describe(children, pid, depth=0):
    """One line for each process below this one: its state, what the kernel waits for, its seconds on a core."""
    tick = os.sysconf("SC_CLK_TCK")
    for child, stat in sorted(children.get(pid, [])):
        seconds = (int(stat[11]) + int(stat[12])) / tick
        yield (f"{'  ' * depth}{child} {stat[0]} {field(child, 'wchan')} {seconds:.1f} s on a core: "
               f"{field(child, 'cmdline')[:160]}")
        yield from describe(children, child, depth + 1)


def signal_group(group, number):
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass


def main():
    seconds, command = float(sys.argv[1]), sys.argv[2:]
    process = subprocess.Popen(command, process_group=0)
    signal.signal(signal.SIGTERM, lambda *_: signal_group(process.pid, signal.SIGTERM))
    began = time.monotonic()
    if ends_within(process, seconds):
        status = process.returncode
    else:
        told = "\n".join(describe(processes(), os.getpid()))
        print(f"ran out of time after {seconds:.0f} s ({time.monotonic() - began:.0f} s by the "
              f"clock); its processes:\n{told}", flush=True)
        signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            pass
        status = 124
    signal_group(process.pid, signal.SIGKILL)
    return status if status >= 0 else 128 - status


sys.exit(main())
