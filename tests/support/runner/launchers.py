"""Ends an mpirun that stays for ever after its ranks have ended.

PMIx 4.2.2 (Debian 12), seen once in 18 starts on a machine at load 10: PMIx_server_finalize waits
for a thread that waits for the mutex of an object which it releases; openpmix issue 1244 is a hang
in the same place. What a law says of such a start cannot be known, so it fails now, for this
reason, and not after the time limit of its script.
"""

import os
import signal
import threading
import time
from pathlib import Path

LOOK_S, LOOKS = 10, 3


def left_alone(lockstep):
    """Our launchers whose ranks have all ended: process numbers of mpirun."""
    states, children, launchers = {}, {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(errors="replace")  # a name may be any bytes
            name, after = stat.split("(", 1)[1].rsplit(") ", 1)
        except (OSError, IndexError):
            continue  # it has ended
        pid, (state, parent) = int(folder.name), after.split()[:2]
        states[pid] = state
        children.setdefault(int(parent), []).append(pid)
        if name.startswith(("mpirun", "orterun")):
            launchers.append(pid)
    for pid in launchers:
        ranks = children.get(pid, [])
        if states[pid] in "TtZ" or not ranks or any(states[rank] != "Z" for rank in ranks):
            continue
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        # One that was told to give its ranks time to end waits like this, too.
        ours = f"LOCKSTEP={lockstep}".encode() in environ.split(b"\0")
        if ours and b"sigkill_timeout" not in command:
            yield pid


def watch(lockstep):
    """Looks every LOOK_S seconds, until the process ends."""

    def look():
        seen = {}
        while True:
            time.sleep(LOOK_S)
            seen = {pid: seen.get(pid, 0) + 1 for pid in left_alone(lockstep)}
            for pid, times in seen.items():
                if times == LOOKS:
                    print(f"-- mpirun (process {pid}) stayed after its ranks had ended, as in "
                          "openpmix issue 1244: ended", flush=True)
                    os.kill(pid, signal.SIGKILL)

    threading.Thread(target=look, daemon=True).start()
