"""hold.py PID SECONDS [--in PHASE] [--while-there GLOB] [--kill]

Holds the main thread of a rank, like a disk that does not answer, while its other threads continue.
With --in: when the rank is in that phase (comm::Phase's name). With --while-there: while such a
file exists. With --kill: at the end the process is killed by SIGKILL where it was held, and the
time of that is printed.
If the system does not allow it, prints why and ends with a status other than 0.
"""

import argparse
import ctypes
import functools
import glob
import os
import signal
import struct
import subprocess
import sys
import time

PHASES = ["start-up", "data", "forward", "backward", "reduction", "update", "end of step",
          "weight audit", "checkpoint", "evaluation", "ending"]
ATTACH, DETACH = 16, 17
PATIENCE_S = 60

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


@functools.cache
def offset_of_table(program):
    """Of the functions of what std::make_shared has made for comm::ActivityTracker."""
    symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True).stdout
    found = [line for line in symbols.splitlines() if "ActivityTracker::Marks" in line and
             "vtable for" in line]
    return int(found[0].split()[0], 16) + 16


def marks_of(pid, memory):
    """The address of the marks of comm::ActivityTracker in that process, or None before it has
    made them. On the heap, a pointer to their functions and two counts are in front of them."""
    program = os.readlink(f"/proc/{pid}/exe")
    with open(f"/proc/{pid}/maps") as file:
        maps = [(*(int(end, 16) for end in line.split()[0].split("-")), line.rstrip())
                for line in file]
    base = min(first for first, _, line in maps if line.endswith(program))
    table = struct.pack("<Q", base + offset_of_table(program))
    for first, last, line in maps:
        if line.endswith("[heap]"):
            at = os.pread(memory, last - first, first).find(table)
            return first + at + 16 if at >= 0 else None
    return None


class Rank:
    def __init__(self, pid):
        self.pid = pid
        try:
            self.memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        except OSError as error:
            sys.exit(f"/proc/{pid}/mem: {error.strerror}")
        self.marks = None

    def phase(self):
        """The byte after step, bytes, movements and bucket."""
        self.marks = self.marks or marks_of(self.pid, self.memory)
        if not self.marks:
            return PHASES[0]
        return PHASES[struct.unpack_from("<B", os.pread(self.memory, 1, self.marks + 28))[0]]

    def hold(self):
        if libc.ptrace(ATTACH, self.pid, None, None) != 0:
            sys.exit(f"ptrace: {os.strerror(ctypes.get_errno())}")
        os.waitpid(self.pid, 0x40000000)  # __WALL

    def let_go(self):
        libc.ptrace(DETACH, self.pid, None, None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pid", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--in", dest="phase", choices=PHASES)
    parser.add_argument("--while-there")
    parser.add_argument("--kill", action="store_true")
    wanted = parser.parse_args()
    rank = Rank(wanted.pid)

    def there():
        return (not wanted.phase or wanted.phase == rank.phase()) and (
            not wanted.while_there or glob.glob(wanted.while_there))

    end = time.monotonic() + PATIENCE_S
    while True:
        while not there():
            if time.monotonic() > end:
                sys.exit(f"it was not there within {PATIENCE_S} s; last in {rank.phase()}")
        rank.hold()
        if there():
            break
        rank.let_go()
    for _ in range(round(wanted.seconds / 0.05)):  # in steps, so that the others run too
        time.sleep(0.05)
    if wanted.kill:
        print(f"{time.time():.6f}")
        os.kill(wanted.pid, signal.SIGKILL)
    else:
        rank.let_go()


main()
