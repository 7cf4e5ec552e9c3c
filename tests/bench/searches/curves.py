"""Recorded curves: the validation top-1 of each epoch of each trial of a sweep, as CSV.

  tests/bench/searches/curves.py SEARCH FILE
      writes them from the folder of a search without rungs
  tests/bench/searches/curves.py play FILE SEED train ...
      is a trainer for `lockstep search run --trainer`: trial N has the curve of place N in this
      seed's order
"""
import csv
import json
import math
import random
import sys
import tomllib
from pathlib import Path


def read(file):
    """The curves by trial; a training that diverged has NaN from there on."""
    with open(file, newline='') as lines:
        rows = list(csv.DictReader(lines))
    epochs = [name for name in rows[0] if name.isdigit()]
    return [[float(row[epoch] or 'nan') for epoch in epochs] for row in rows]


def order(count, seed):
    """In which order a search with this seed tries the curves."""
    places = list(range(count))
    random.Random(seed).shuffle(places)
    return places


def leaves(table, name=''):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, f'{name}{key}.')
        else:
            yield f'{name}{key}', value


def write(search, file):
    plan = json.loads((search / 'search.json').read_text())
    keys = [f'{section}.{key}' for section, table in
            tomllib.loads((search / 'space.toml').read_text()).items() for key in table]
    base = dict(leaves(tomllib.loads((search / 'train.toml').read_text())))
    epochs = plan['epochs'][-1]
    rows = []
    for trial in range(plan['trials']):
        name = f'results/{trial}.{len(plan["epochs"]) - 1}.json'
        result = json.loads((search / name).read_text())
        assert result['end'] != 'failed', f'trial {trial} failed: {result["reason"]}'
        own = dict(leaves(tomllib.loads((search / f'trials/{trial}.toml').read_text())))
        curve = {}
        for line in open(search / f'runs/{trial}/metrics.jsonl'):
            record = json.loads(line)
            if record.get('kind') == 'epoch' and 'val_top1' in record:
                curve[record['epoch']] = record['val_top1']
        assert result['end'] == 'diverged' or len(curve) == epochs, (trial, sorted(curve))
        rows.append([trial, *({**base, **own}[key] for key in keys),
                     *(curve.get(epoch, '') for epoch in range(1, epochs + 1))])
    with open(file, 'w', newline='') as out:
        csv.writer(out, lineterminator='\n').writerows(
            [['trial', *keys, *range(1, epochs + 1)], *rows])


def play(file, seed, words):
    options = dict(zip(words, words[1:]))
    run = Path(options['--out'])
    curves = read(file)
    curve = curves[order(len(curves), seed)[int(run.name)]]
    to = int(options.get('--stop-after-epoch', len(curve)))
    run.mkdir(parents=True, exist_ok=True)
    with open(run / 'metrics.jsonl', 'a+') as metrics:
        metrics.seek(0)
        done = len(metrics.readlines())
        for epoch in range(done + 1, to + 1):
            score = curve[epoch - 1]
            if math.isnan(score):
                print(json.dumps({'kind': 'end', 'time_ms': 1, 'status': 1, 'ending': 'diverged',
                                  'reason': 'its curve ends here'}), file=metrics)
                sys.exit(1)
            print(json.dumps({'kind': 'epoch', 'time_ms': 1, 'epoch': epoch, 'last_step': epoch,
                              'train_loss': 1, 'train_top1': 0, 'val_loss': 1, 'val_top1': score,
                              'val_top5': 1}), file=metrics)
    sys.exit(0 if to == len(curve) else 3)


if __name__ == '__main__':
    if sys.argv[1] == 'play':
        play(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    write(Path(sys.argv[1]), sys.argv[2])
