"""lockstep search compared with Optuna and DeepHyper on the recorded curves of a real sweep.

Each of ROUNDS seeds (10) tries all curves in another order, one after the other. "points below the
best": what the chosen trial's last top-1 has less than that of the best of all. SEARCH_PYTHON names
a Python that can import the others; without it, one is made in $BUILD/bench.
"""
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import contenders
import curves as recorded
import machine

TITLE = 'Which of 64 trainings is the best: epochs that it takes to say'
COLUMNS = ['program', 'epochs', 'lowest to highest', 'of all', 'points below the best',
           'within 0.2']
HERE = Path(__file__).resolve().parent
CURVES = HERE / 'resnet20_cifar10.csv'
PACKAGES = ['optuna==5.0.0', 'deephyper==0.13.2']
SPACE = '[optim.lr]\nlow = 0.001\nhigh = 1\nlog = true\n'  # any: the curves are recorded


def python():
    if os.environ.get('SEARCH_PYTHON'):
        return os.environ['SEARCH_PYTHON']
    folder = contenders.build() / 'bench' / 'searches'
    if not (folder / 'made').exists():
        contenders.progress(f'bench: installing {" ".join(PACKAGES)} into {folder}')
        contenders.call([contenders.PYTHON, '-m', 'venv', '--clear', folder])
        contenders.call([folder / 'bin' / 'pip', 'install', '--quiet', *PACKAGES])
        (folder / 'made').touch()
    return folder / 'bin' / 'python3'


def ours(file, curves, mode, seed):
    """What one worker chooses, and the epochs that it trains."""
    folder = Path(tempfile.mkdtemp(prefix='lockstep-search-'))
    try:
        space, search = folder / 'space.toml', folder / 'search'
        space.write_text(SPACE)
        contenders.call([contenders.program(), 'search', 'plan', space, '--out', search,
                         '--trials', len(curves), '--epochs', len(curves[0]), '--mode', mode,
                         '--data.train', 'none', '--data.val', 'none'])
        contenders.call([contenders.program(), 'search', 'run', search, '--trainer',
                         f'{sys.executable} -S -E {HERE / "curves.py"} play {file} {seed}'])
        report = folder / 'report.json'
        contenders.call([contenders.program(), 'search', 'show', search, '--json-file', report])
        trials = json.loads(report.read_text())['trials']
        chosen = recorded.order(len(curves), seed)[trials[0]['trial']]
        return {'program': f'lockstep, {mode}', 'seed': seed, 'chosen': chosen,
                'epochs': sum(1 for trial in trials for line in
                              open(search / f'runs/{trial["trial"]}/metrics.jsonl'))}
    finally:
        shutil.rmtree(folder)


def row(program, results, last, all_epochs):
    best = max(score for score in last if score == score)
    epochs = [one['epochs'] for one in results]
    below = [100 * (best - last[one['chosen']]) for one in results]
    return {'program': program, 'epochs': f'{statistics.median(epochs):.0f}',
            'lowest to highest': f'{min(epochs)} to {max(epochs)}',
            'of all': f'{statistics.median(epochs) / all_epochs:.3f}',
            'points below the best': f'{statistics.median(below):.2f}, at most {max(below):.2f}',
            'within 0.2': f'{sum(points <= 0.2 + 1e-9 for points in below)} of {len(below)}'}


def measure(asked, report):
    file = Path(os.environ.get('CURVES') or CURVES)
    seeds = int(os.environ.get('ROUNDS') or 10)
    if not file.exists():
        raise contenders.Failure(f'{file} does not exist: searches/curves.py writes it; or CURVES=')
    curves = recorded.read(file)
    last = [curve[-1] for curve in curves]
    load = machine.OtherLoad()
    for mode in ('async', 'sync'):
        report['rounds'] += [ours(file, curves, mode, seed) for seed in range(1, seeds + 1)]
    text = contenders.call([python(), HERE / 'peers.py', file, seeds])
    report['rounds'] += [json.loads(line) for line in text.splitlines()]
    report['other_load'].append(load.cores())
    report['notes'].append(f'{file.name}: {len(curves)} trials of {len(curves[0])} epochs; no figure '
                           'depends on the load.')
    for program in dict.fromkeys(one['program'] for one in report['rounds']):
        results = [one for one in report['rounds'] if one['program'] == program]
        report['rows'].append(row(program, results, last, len(curves) * len(curves[0])))
