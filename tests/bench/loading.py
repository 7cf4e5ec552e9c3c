"""The input pipeline on photographs, compared with PyTorch's DataLoader on the same cores.

PHOTOS=folder names class folders of JPEGs; without it, some are made. LOADER_PYTHON names a Python
that can import torch, torchvision (0.15 or newer for v2) and Pillow.
"""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

import contenders
import machine

TITLE = 'Photographs to batches: crop 224, flip, floats; 2 workers'
COLUMNS = ['loader', 'images/s', 'lowest to highest', 'lockstep is']
BATCH, SECONDS = 64, 4
SCRIPT = contenders.HERE / 'torch_loading.py'
LACKS = 3  # the script's status where a library is missing
OURS = 'lockstep'
THEIRS = {'DataLoader, Pillow, torchvision v1': 'pillow',
          'DataLoader, torchvision.io, v2 on uint8': 'io'}


def python():
    return os.environ.get('LOADER_PYTHON') or contenders.PYTHON


def photographs():
    """The folder of the photographs; makes them if none was named."""
    named = os.environ.get('PHOTOS')
    if named:
        return pathlib.Path(named).resolve()
    made = contenders.build() / 'bench' / 'photos'
    if not made.exists():
        contenders.progress(f'making photographs in {made}')
        contenders.call([python(), SCRIPT, '--make', made])
    return made


def shards(photos):
    """The same photographs, packed as they are."""
    out = contenders.build() / 'bench' / 'photos-shards'
    contenders.call([contenders.program(), 'pack', photos, '--jpeg', '--held-out', '0', '--force',
                     '--out', out])
    return out / 'train'


def lockstep(data):
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / 'result.json'
        contenders.call([contenders.program(), 'bench', 'data', data, '--data.flip', 'true',
                         '--normalise', '--loader-only', '--data.workers', contenders.THREADS,
                         '--batch', BATCH, '--rounds', '1', '--seconds', SECONDS, '--json', result])
        return json.loads(result.read_text())['images_per_s'], ''


def data_loader(photos, how):
    """Images/s and versions; the reason in place of both where it cannot take part."""
    done = subprocess.run(
        [
            python(),
            SCRIPT,
            '--photos',
            photos,
            '--how',
            how,
            '--workers',
            str(contenders.THREADS),
            '--batch',
            str(BATCH),
            '--seconds',
            str(SECONDS),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    said = done.stderr.strip().splitlines()
    if done.returncode == LACKS:
        return None, said[-1] if said else 'a library is missing'
    if done.returncode != 0:
        raise contenders.Failure(f'{SCRIPT.name} --how {how}:\n' + done.stderr[-2000:])
    found = json.loads(done.stdout)
    return found['images_per_s'], found['versions']


def row(name, rates, ours):
    ratios = [own / other for own, other in zip(ours, rates)]
    return {'loader': name, 'images/s': f'{statistics.median(rates):.0f}',
            'lowest to highest': f'{min(rates):.0f} to {max(rates):.0f}',
            'lockstep is': '' if name == OURS else f'{statistics.median(ratios):.1f} times'}


def measure(asked, report):
    if not shutil.which(python()):
        raise contenders.Failure(f'{python()} does not exist: LOADER_PYTHON names another Python')
    photos = photographs()
    data = shards(photos)
    rates = {OURS: [], **{name: [] for name in THEIRS}}
    notes = set()
    for _ in range(asked['rounds']):
        load = machine.OtherLoad()
        for name in list(rates):
            rate, note = lockstep(data) if name == OURS else data_loader(photos, THEIRS[name])
            if rate is None:
                del rates[name]
                notes.add(f'{name} is not measured: {note}.')
                continue
            rates[name].append(rate)
            notes |= {note} if note else set()
            contenders.progress(f'{name}: {rate:.0f} images/s')
        report['other_load'].append(round(load.cores(), 2))
    report['notes'] += sorted(notes)
    report['rounds'] = rates
    report['rows'] = [row(name, values, rates[OURS]) for name, values in rates.items()]
