"""Rows of 12 channels of 16 bits from the page cache to batches, compared with PyTorch's DataLoader
over h5py, which has the channels first, its fastest form, and makes normalised floats; lockstep's
batches keep the 16 bits, which the device normalises. Everything is restricted to one core, then
to two; a loader has a thread, or worker, for each, and its own thread in addition.

LOADER_PYTHON names a Python that can import torch and h5py. ROWS=1500 says how many there are."""
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import contenders
import labels
import machine
import patches

TITLE = 'Rows of 12 channels of 16 bits, 345.6 kB each, to batches'
COLUMNS = ['loader', 'cores', 'rows/s', 'lowest to highest', 'of DataLoader', 'wanted']
ROWS = int(os.environ.get('ROWS', '1500'))
BATCH, SECONDS = 64, 3
CORES = (1, 2)
THEIRS = 'DataLoader over h5py'
OURS = {'pixels, mmap': ('pixels', 'mmap'), 'pixels, pread': ('pixels', 'pread'),
        'planes, mmap': ('patches', 'mmap'), 'planes, pread': ('patches', 'pread')}
LEAST = {'mmap': 9000, 'pread': 4500}


def on_cores(cores, command):
    """The command's output, on the first ones of those that the benchmark has."""
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    return contenders.call(['taskset', '-c', ','.join(map(str, chosen)), *command])


def lockstep(sets, kind, read, cores):
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / 'result.json'
        on_cores(cores, [contenders.program(), 'bench', 'data', sets / f'{kind}.h5', '--data.read',
                         read, '--loader-only', '--data.workers', cores, '--batch', BATCH,
                         '--rounds', 1, '--seconds', SECONDS, '--json', result])
        return json.loads(result.read_text())['images_per_s']


def data_loader(sets, cores):
    said = on_cores(cores, [labels.python(), contenders.HERE / 'torch_patches.py', 'load',
                            sets / 'patches.h5', cores if cores > 1 else 0, BATCH, SECONDS])
    return json.loads(said)['rows_per_s']


def row(name, cores, rates, theirs):
    ratio = statistics.median(own / other for own, other in zip(rates, theirs))
    read = OURS[name][1] if name in OURS else None
    return {'loader': name, 'cores': str(cores), 'rows/s': f'{statistics.median(rates):.0f}',
            'lowest to highest': f'{min(rates):.0f} to {max(rates):.0f}',
            'of DataLoader': '' if read is None else f'{ratio:.1f}',
            'wanted': '' if read is None else f'{cores * LEAST[read]}, x 4'}


def measure(asked, report):
    sets = labels.data(ROWS)
    if not (sets / 'pixels.h5').exists():
        patches.write_pixels(sets)
    for path in sets.glob('p*s.h5'):
        subprocess.run(['cat', path], stdout=subprocess.DEVNULL, check=True)  # into the cache
    rates = {(name, cores): [] for cores in CORES for name in [THEIRS, *OURS]}
    for _ in range(asked['rounds']):
        load = machine.OtherLoad()
        for name, cores in rates:
            one = data_loader(sets, cores) if name == THEIRS else lockstep(sets, *OURS[name], cores)
            rates[name, cores].append(one)
            contenders.progress(f'{name}, {cores} cores: {one:.0f} rows/s')
        report['other_load'].append(round(load.cores(), 2))
    report['notes'].append('pixels, planes: the channels are last, or first, in the file.')
    report['rounds'] = [{'loader': name, 'cores': cores, 'rates': found}
                        for (name, cores), found in rates.items()]
    report['rows'] = [row(name, cores, found, rates[THEIRS, cores])
                      for (name, cores), found in rates.items()]
