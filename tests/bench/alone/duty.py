"""duty.py RANK STOPPED_MS RUNNING_MS COMMAND...: runs the command; on that rank it is stopped again
and again for so long, as on a core that others use."""
import contextlib
import os
import signal
import sys
import time

rank, stopped_ms, running_ms = map(int, sys.argv[1:4])
own = os.getpid()
mine = str(rank) == os.environ.get('OMPI_COMM_WORLD_RANK', os.environ.get('SLURM_PROCID'))
if mine and os.fork() == 0:
    with contextlib.suppress(OSError):  # for root: it wakes on time
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    while os.getppid() == own:
        try:
            os.kill(own, signal.SIGSTOP)
            time.sleep(stopped_ms / 1e3)
            os.kill(own, signal.SIGCONT)
        except ProcessLookupError:
            break
        time.sleep(running_ms / 1e3)
    os._exit(0)
os.execvp(sys.argv[4], sys.argv[4:])
