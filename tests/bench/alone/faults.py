"""Makes one thing slow while a command runs. Each fault is a context that gives a function, which
takes a command and returns the one to start instead of it."""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import contenders
import foreign

MINI_SLURM = contenders.HERE.parent / 'cluster' / 'mini-slurm' / 'mini-slurm'
CLUSTER = {'MINI_SLURM_ID': '4'}  # 5 to 9 belong to the tests
PROFILE = contenders.HERE.parent.parent / 'jobs' / 'gpus' / 'a100.json'
CGROUPS = pathlib.Path('/sys/fs/cgroup')


@contextlib.contextmanager
def nothing():
    yield lambda command: command


@contextlib.contextmanager
def slow_reads(data, delay_us):
    """Each read of a shard of that set takes that much longer."""
    if not shutil.which('strace'):
        raise contenders.Failure('slow reads need strace')
    shards = [word for shard in data.glob('*.h5') for word in ('-P', shard.resolve())]
    yield lambda command: ['strace', '-f', '-qq', '--seccomp-bpf', '-o', os.devnull, '-e',
                           'trace=pread64', *shards, '-e', f'inject=pread64:delay_enter={delay_us}',
                           *command]


@contextlib.contextmanager
def half_speed(rank, ms=4):
    yield lambda command: ['python3', contenders.HERE / 'alone' / 'duty.py', rank, ms, ms, *command]


@contextlib.contextmanager
def half_speed_clock(rank, slower):
    """On a cluster's nodes, devices that wait as long as that many times slower ones than a
    profile's compute, that rank's twice as long: `--clock.profile pace.json`. A device that is slow
    does not slow its network, as a process that is stopped does."""
    profile = json.loads(PROFILE.read_text())
    with tempfile.TemporaryDirectory() as folder:
        for one in range(2):
            pace = slower * (2 if one == rank else 1)
            (pathlib.Path(folder) / str(one)).mkdir()
            (pathlib.Path(folder) / str(one) / 'pace.json').write_text(json.dumps(
                {**profile, 'rates': {key: rate / pace for key, rate in
                                      profile['rates'].items()}}))
        yield lambda command: ['sh', '-c', 'cd "$0/$SLURM_PROCID" && exec "$@"', folder, *command]


@contextlib.contextmanager
def one_core():
    """All ranks have to share it."""
    core = min(os.sched_getaffinity(0))
    yield lambda command: ['taskset', '-c', core, *command]


@contextlib.contextmanager
def foreign_process():
    with foreign.busy_process():
        yield lambda command: command


@contextlib.contextmanager
def quota(cores):
    """A control group, of version 2 or 1, that may use the time of that many processors."""
    period_us = 100000
    controllers = CGROUPS / 'cgroup.controllers'
    second = controllers.exists() and 'cpu' in controllers.read_text().split()
    group = (CGROUPS if second else CGROUPS / 'cpu') / f'lockstep-bench-{os.getpid()}'
    try:
        group.mkdir()
        if second:
            (group / 'cpu.max').write_text(f'{int(cores * period_us)} {period_us}')
        else:
            (group / 'cpu.cfs_period_us').write_text(str(period_us))
            (group / 'cpu.cfs_quota_us').write_text(str(int(cores * period_us)))
    except OSError as error:
        raise contenders.Failure(f'a quota of processor time: {group}: {error.strerror}') from error
    try:
        yield lambda command: ['sh', '-c', 'echo $$ >"$0" && exec "$@"', group / 'cgroup.procs',
                               *command]
    finally:
        for _ in range(50):  # its last process may be a zombie for a moment
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def mini(*words):
    return contenders.call([MINI_SLURM, *words], CLUSTER)


@contextlib.contextmanager
def two_nodes():
    """A Slurm cluster of two nodes, for root; gives srun's words. Ranks meet over TCP."""
    try:
        mini('up', 2)
        with tempfile.TemporaryDirectory() as meetings:
            yield ['env', f'LOCKSTEP_RENDEZVOUS_DIR={meetings}', *(
                f'{name}={value}' for name, value in CLUSTER.items()), 'sh', '-c',
                   'eval "$("$0" env)" && exec "$@"', MINI_SLURM, 'srun', '-N2',
                   '--ntasks-per-node=1', '--mpi=none']
    finally:
        subprocess.run([MINI_SLURM, 'down'], env={**os.environ, **CLUSTER}, capture_output=True)


@contextlib.contextmanager
def slow_network(delay):
    """Of the second node of that cluster."""
    node = f'c{CLUSTER["MINI_SLURM_ID"]}node2'
    mini('shape', node, f'delay={delay}')
    try:
        yield lambda command: command
    finally:
        mini('shape', node)
