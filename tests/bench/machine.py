"""Describes this machine, and what else runs on it during a measurement."""
import os
import platform
import time

CPUINFO = '/proc/cpuinfo'


def cpu_field(name):
    """A line of /proc/cpuinfo, for the first processor; '' without one."""
    with open(CPUINFO) as lines:
        for line in lines:
            key, _, value = line.partition(':')
            if key.strip() == name:
                return value.strip()
    return ''


def has_bf16():
    return bool({'avx512_bf16', 'amx_bf16'} & set(cpu_field('flags').split()))


def describe():
    name = cpu_field('model name') or platform.machine()
    with open('/proc/meminfo') as lines:
        gigabytes = int(lines.readline().split()[1]) * 1024 / 1e9
    return f'{name}, {os.cpu_count()} processors, {gigabytes:.0f} GB, Linux {platform.release()}'


def choose_cores(count):
    """One logical processor of each of `count` allowed cores; if there are too few, they are shared."""
    allowed = sorted(os.sched_getaffinity(0))
    first_of_core = {}
    for cpu in allowed:
        try:
            with open(f'/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list') as file:
                core = file.read().strip()
        except OSError:
            core = str(cpu)
        first_of_core.setdefault(core, cpu)
    cores = sorted(first_of_core.values())
    rest = [cpu for cpu in allowed if cpu not in cores]
    return (cores + rest)[:count]


def used_s():
    """Processor time that all processes of the machine have used, without waiting."""
    with open('/proc/stat') as lines:
        user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(
            int, lines.readline().split()[1:9])
    ticks = user + nice + system + interrupts + soft_interrupts + stolen
    return ticks / os.sysconf('SC_CLK_TCK')


class OtherLoad:
    """Processors that were busy with something else between two moments: it leaves out this process
    and the children that it has waited for."""

    def __init__(self):
        self.begin = self.now()

    @staticmethod
    def now():
        own = sum(os.times()[:4])
        return time.monotonic(), used_s() - own

    def cores(self):
        time_now, used_now = self.now()
        seconds = max(time_now - self.begin[0], 1e-3)
        return max(0.0, (used_now - self.begin[1]) / seconds)
