"""Runs jobs in parallel: up to four that wait, one that builds, one that computes; one more of
these when no job is left to build, and one more when none is left that waits."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

# How many jobs of a lane run at the same time, and how they are started. Jobs that wait have
# deadlines, so the others get a lower priority; what is built decides when the last tests can
# start.
LANES = {"waits": (4, []), "computes": (1, ["nice", "-n", "5"]), "builds": (1, ["nice", "-n", "2"])}
WHEN_BUILT, WHEN_WAITED = 2, 3  # that compute: when no job is left to build, and none that waits
LIMITED = Path(__file__).with_name("limited.py")  # ends a job whose time is over


@dataclass
class Job:
    name: str
    command: list
    seconds: int  # time limit
    lane: str = "computes"
    apart: str = ""  # jobs with the same word do not run at the same time
    alone: bool = False  # no other job of its lane runs at the same time
    after: str = ""  # name of the job that has to end well before this one starts
    script: bool = False  # gets an empty folder, $WORK
    may_be_empty: bool = False  # no verdict is not a failure
    env: dict = field(default_factory=dict)


@dataclass
class Result:
    job: Job
    status: int
    said: str
    log: Path  # where the output is kept
    seconds: float = 0
    cpu_s: float = 0  # of the processes it waited for, not of daemons


class Running:
    """A job that has been started; it writes its log into the folder of logs."""

    def __init__(self, job, logs, env):
        self.job = job
        self.log = logs / (job.name.replace("/", "_").replace(" ", "_") + ".log")
        self.work = tempfile.mkdtemp(prefix="lockstep-test.") if job.script else None
        self.began = time.monotonic()
        env = {**env, **job.env, **({"WORK": self.work} if self.work else {})}
        first = LANES[job.lane][1]
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                [*first, sys.executable, LIMITED, str(job.seconds), *job.command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env)

    def end(self, status, usage):
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.work:
            shutil.rmtree(self.work, ignore_errors=True)
        said = self.log.read_bytes().decode(errors="replace")
        return Result(self.job, self.process.returncode, said, self.log,
                      time.monotonic() - self.began, usage.ru_utime + usage.ru_stime)


def run(jobs, logs, env, finished):
    """Runs all jobs, as many in parallel as their lanes allow; calls finished(result) for each."""
    left, running, broken = list(jobs), {}, set()
    names = {job.name for job in jobs}

    def may_start(job):
        alongside = [other.job for other in running.values()]
        mates = [other for other in alongside if other.lane == job.lane]
        lanes, most = {other.lane for other in left + alongside}, LANES[job.lane][0]
        if job.lane == "computes" and "builds" not in lanes:
            most = WHEN_BUILT if "waits" in lanes else WHEN_WAITED
        return (len(mates) < most and not (mates and (job.alone or mates[0].alone))
                and not (job.apart and any(other.apart == job.apart for other in alongside))
                and job.after not in names)

    def start_some():
        for job in list(left):
            if job.after in broken:
                left.remove(job)
                names.discard(job.name)
                broken.add(job.name)
                finished(Result(job, 1, f"FAIL {job.name}: was not built\n", logs))
            elif may_start(job):
                left.remove(job)
                started = Running(job, logs, env)
                running[started.process.pid] = started

    try:
        start_some()
        while running:
            pid, status, usage = os.wait4(-1, 0)
            if pid not in running:
                continue
            result = running.pop(pid).end(status, usage)
            names.discard(result.job.name)
            if result.status != 0:
                broken.add(result.job.name)
            finished(result)
            start_some()
    except BaseException:
        for started in running.values():
            started.process.send_signal(signal.SIGTERM)  # limited.py passes it on
        for started in running.values():
            started.process.wait()
        raise
