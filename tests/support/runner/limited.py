"""limited.py SECONDS COMMAND...: runs the command, and ends it when its time is over.

A second in which more processes want a core than there are counts less: with six for two cores it
counts a third. The scheduler may share less evenly (by group of processes, by priority), so a
second in which one of the job's threads waited for a core for 0.9 s counts a tenth. So a job has
its time on a machine that does other work, too.

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


class Share:
    """The part of a core that a process that wants one has, between one look and the next."""

    LEAST = 0.05  # so that what hangs ends, whatever else is there

    def __init__(self, process):
        self.process = process
        self.times = {}  # of each thread
        self.at = time.monotonic()

    def look(self):
        """Of the time since the last look; and what that time was, in seconds."""
        now, before = time.monotonic(), self.times
        took, self.at = now - self.at, now
        self.times = dict(thread_times(self.process.pid))
        longest = max((waited(before[thread], new, took) for thread, new in self.times.items()
                       if thread in before), default=0)
        return max(min(share_of_all(), 1 - longest / max(took, 1e-3)), self.LEAST), took


def waited(before, now, took):
    """Seconds in which a thread was ready and got no core; the kernel adds them up when it gets one."""
    if now["ready"] and (before["on core"], before["waits"]) == (now["on core"], now["waits"]):
        return took
    return (now["waits"] - before["waits"]) / 1e9


def share_of_all():
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("procs_running "):
            others = int(line.split()[1]) - 1  # this one asks
            return min(1.0, len(os.sched_getaffinity(0)) / max(others, 1))
    return 1.0


def thread_times(pid):
    """Of each thread of this process, and of those that it started: ns on a core, ns of waiting for
    one, and whether it wants one now."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return  # it has ended
    for thread in threads:
        words = field(pid, f"task/{thread}/schedstat").split()
        state = field(pid, f"task/{thread}/stat").rpartition(")")[2].split()
        if len(words) > 1 and state:
            yield thread, {"on core": int(words[0]), "waits": int(words[1]),
                           "ready": state[0] == "R"}
        for child in field(pid, f"task/{thread}/children").split():
            yield from thread_times(child)


def ends_within(process, seconds):
    """Waits for it; False when its seconds are over."""
    left, share = seconds, Share(process)
    while left > 0:
        try:
            process.wait(min(2.0, seconds / 4))
            return True
        except subprocess.TimeoutExpired:
            part, took = share.look()
            left -= part * took
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


if __name__ == "__main__":
    sys.exit(main())
