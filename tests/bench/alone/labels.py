"""Mean average precision on a data set in the form of BigEarthNet's patches: 12 bands of 16 bits,
19 labels. The same network by PyTorch, and by lockstep on the same rows in bytes: of one range, and
their high bytes, in which 0 is a value.
Seconds do not matter here, so the machine may be busy.

LOADER_PYTHON names a Python that can import torch, h5py and sklearn. SEEDS="1 2 3", CROP=48 and
ROWS=4000 select less. Each finished training is a line of $BUILD/bench/labels.jsonl, and does not
run again: remove the file after a change of the program that matters."""
import json
import os
import pathlib
import shutil
import statistics
import tempfile

import contenders
import machine
from finished import Finished

TITLE = 'Labels of rows of 12 channels of 16 bits: mean average precision, %'
COLUMNS = ['training', 'of each seed', 'mean', 'less the first', 'wanted']
ROWS = int(os.environ.get('ROWS', '4000'))
# Written down before the first training; no figure here was chosen by a result.
RECIPE = {'model': 'resnet18', 'epochs': 10, 'batch': 32, 'side': int(os.environ.get('CROP', '48')),
          'lr': 0.2, 'warm_up': 1, 'momentum': 0.9, 'weight_decay': 1e-4}
KINDS = {'patches': 'lockstep, 16 bits', 'bytes': 'lockstep, bytes', 'high': 'lockstep, high bytes',
         'torch': 'PyTorch, 16 bits'}
WANTED = {'torch': 'within 1.0', 'bytes': 'at most -5', 'high': 'at most -5'}


def python():
    return os.environ.get('LOADER_PYTHON') or contenders.PYTHON


def data(rows=ROWS):
    """The folder of the data sets, made once."""
    made = contenders.build() / 'bench' / f'patches-{rows}'
    if not made.exists():
        contenders.progress(f'making patches in {made}')
        whole = made.with_suffix('.part')  # it has its name only when it is complete
        contenders.call([contenders.PYTHON, contenders.HERE / 'patches.py', whole, rows, rows // 2])
        whole.rename(made)
    return made


def lockstep(kind, seed, sets):
    out = pathlib.Path(tempfile.mkdtemp(dir=contenders.build() / 'bench'))
    try:
        contenders.call([
            contenders.program(), 'train', '--data.train', sets / f'{kind}.h5', '--data.val',
            sets / f'{kind}-val.h5', '--data.no-data', 'none' if kind == 'high' else 0,
            '--data.crop', 'random', '--data.size', RECIPE['side'], '--data.flip', 'true',
            '--model', RECIPE['model'], '--batch', RECIPE['batch'], '--epochs', RECIPE['epochs'],
            '--optim.lr', RECIPE['lr'], '--optim.momentum', RECIPE['momentum'],
            '--optim.weight-decay', RECIPE['weight_decay'], '--optim.warmup-epochs',
            RECIPE['warm_up'], '--eval.every-epochs', RECIPE['epochs'],
            '--checkpoint.every-epochs', 0, '--threads', contenders.THREADS, '--seed', seed,
            '--out', out / 'run'])
        lines = (out / 'run' / 'metrics.jsonl').read_text().splitlines()
        scores = [json.loads(line).get('val_scores') for line in lines]
        return [one for one in scores if one][-1]['mAP']
    finally:
        shutil.rmtree(out)


def torch(seed, sets):
    recipe = json.dumps({**RECIPE, 'seed': seed, 'threads': contenders.THREADS})
    said = contenders.call([python(), contenders.HERE / 'torch_patches.py', 'train',
                            sets / 'patches.h5', sets / 'patches-val.h5', recipe],
                           contenders.TORCH_ENVIRONMENT)
    return json.loads(said)['mAP']


def row(kind, found, first):
    less = '' if kind == 'patches' else f'{statistics.mean(found) - statistics.mean(first):+.2f}'
    return {'training': KINDS[kind], 'of each seed': ', '.join(f'{one:.2f}' for one in found),
            'mean': f'{statistics.mean(found):.2f}', 'less the first': less,
            'wanted': WANTED.get(kind, '')}


def measure(asked, report):
    finished = Finished('labels', ('kind', 'seed', 'rows', 'recipe'))
    sets = data()
    found = {kind: [] for kind in KINDS}
    for seed in os.environ.get('SEEDS', '1 2 3').split():
        load = machine.OtherLoad()
        for kind in KINDS:
            key = {'kind': kind, 'seed': int(seed), 'rows': ROWS, 'recipe': RECIPE}
            one = finished.find(**key)
            if one is None:
                score = torch(int(seed), sets) if kind == 'torch' else lockstep(kind, seed, sets)
                one = finished.add(**key, mAP=score)
            found[kind].append(100 * one['mAP'])
            contenders.progress(f'{KINDS[kind]}, seed {seed}: {found[kind][-1]:.2f} %')
        report['other_load'].append(round(load.cores(), 2))
        report['rows'] = [row(kind, found[kind], found['patches']) for kind in KINDS]
    report['rounds'] = found
    report['notes'].append(f'{ROWS} rows, {ROWS // 2} of validation, parts of {RECIPE["side"]} x '
                           f'{RECIPE["side"]} pixels.')
    finished.note(report)
