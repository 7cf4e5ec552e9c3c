"""How long the default training takes from its start to its first step."""
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

import contenders
import machine

TITLE = 'From the start to the first step, default training, 2 ranks'
COLUMNS = ['clock', 'seconds']
ROOT = contenders.HERE.parent.parent
CONFIG = ROOT / 'jobs' / 'configs' / 'shapes.toml'
FIRST_STEP = re.compile(r'first step done ([0-9.]+) s after the start')
STOPPED = 3  # the program's status after --stop-after


def data_set():
    """The default data set; makes it if `make train` has not made it."""
    made = ROOT / 'data' / 'shapes'
    if made.exists():
        return made
    own = contenders.build() / 'bench' / 'shapes'
    if not own.exists():
        contenders.progress(f'making the default data set in {own}')
        contenders.call([contenders.program(), 'pack', '--from', 'shapes', '--out', own])
    return own


def first_step(data, folder):
    """Seconds by the program's own clock, and since mpirun was called."""
    command = [*contenders.mpirun(), '-np', '2', contenders.program(), 'train', '--config', CONFIG,
               '--data.train', data / 'train', '--data.val', data / 'val',
               '--out', pathlib.Path(folder) / 'run', '--stop-after', '1']
    begin = time.monotonic()
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    own = wall = None
    said = ''
    for line in process.stdout:
        said += line
        found = FIRST_STEP.search(line)
        if found:
            own, wall = float(found[1]), time.monotonic() - begin
    if own is None or process.wait() != STOPPED:
        raise contenders.Failure('the default training did not stop after its first step:\n'
                                 + said[-2000:])
    return own, wall


def measure(asked, report):
    data = data_set()
    seconds = []
    for _ in range(asked['rounds'] + 1):
        folder = tempfile.mkdtemp(dir=contenders.build() / 'bench')
        load = machine.OtherLoad()
        try:
            seconds.append(first_step(data, folder))
        finally:
            shutil.rmtree(folder)
        report['other_load'].append(round(load.cores(), 2))
        contenders.progress('first step after %.2f s; %.2f s with mpirun' % seconds[-1])
    seconds = seconds[1:]  # the first run loaded program and data into the system's cache
    report['rounds'] = seconds
    own, wall = (f'{statistics.median(values):.2f}' for values in zip(*seconds))
    report['rows'] = [{'clock': "the program's own", 'seconds': own},
                      {'clock': 'from the call of mpirun', 'seconds': wall}]
