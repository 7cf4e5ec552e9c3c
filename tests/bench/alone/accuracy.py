"""What ways to agree on gradients, and rules for large batches, cost in accuracy: ResNet-20 on
CIFAR-10 with each, several seeds, in the first of PRECISIONS. Seconds do not matter here, so the
machine may be busy.

Ways to agree train on four ranks with 32 rows each. Large batches accumulate micro-batches of 128
rows on one rank, as the training that they are compared with has them. TRAININGS=pilot first tries
each rule's learning rates, with a seed that the measurement does not use; the rows of large batches
then take the best ones. Each finished training is a line of
$BUILD/bench/accuracy.jsonl, and a training that has a line there does not run again: remove the
file after a change of the program that matters."""
import json
import os
import pathlib
import shutil
import statistics
import tarfile
import tempfile

import contenders
import machine
from finished import Finished

TITLE = 'Accuracy on CIFAR-10 by ways to agree and by rules'
COLUMNS = ['training', 'top-1 of each seed', 'mean', 'compared with', 'points less',
           'target']
ARCHIVE = contenders.HERE.parent.parent.parent / 'shared' / 'cifar10' / 'cifar10-jpeg.tar.gz'
RECIPE = contenders.HERE.parent.parent / 'jobs' / 'configs' / 'cifar10.toml'
RANKS, EPOCHS, BATCH = 4, 10, 128
PILOT_SEED = 1000
KEYS = ('precision', 'ranks', 'epochs', 'seed', 'options', 'recipe')
SMALL = f'sgd {BATCH}'
LESS_MOVED = ('--data.pad', 2)  # images moved by up to 2 pixels, not 4
TRAININGS = {
    'fp32': (),
    'bf16': ('--comm.wire', 'bf16'),
    'fp16': ('--comm.wire', 'fp16'),
    'int8': ('--comm.wire', 'int8'),
    'power-sgd 4': ('--comm.power-sgd', 4),
    'every 8': ('--sync.every', 8, '--sync.group', 'rank', '--sync.from-epoch', 1),
    'gossip': ('--sync.gossip', 'true'),
}
TARGETS = {'bf16': 0.5, 'fp16': 0.5, 'int8': 1.0, 'power-sgd 4': 1.0, 'every 8': 1.0, 'gossip': 1.5}
LARGE = (4096, 8192)
RATES = {'sgd': (0.1, 0.2, 0.4, 0.8, 1.6), 'lars': (2, 4, 8, 16), 'lamb': (0.01, 0.02, 0.04),
         'muon': (0.05, 0.1, 0.2, 0.4)}
OTHER_KEYS = '--optim.warmup-epochs', 2
FOR_MUON = '--optim.warmup-epochs', 0.5, '--optim.nesterov', 'true'
CHOSEN_KEYS = {  # by pilots, which RESULTS.md lists
    ('muon', 4096): (*FOR_MUON, '--optim.rest-lr-factor', 0.15, '--optim.decay', 'polynomial',
                     '--optim.power', 1, *LESS_MOVED),
    ('muon', 8192): (*FOR_MUON, '--optim.rest-lr-factor', 0.1),
}


def large(rule, batch, rate):
    """Options of a large batch; what is accumulated keeps the rows of a micro-batch."""
    return ('--batch', batch, '--accumulate', batch // BATCH, '--optim.rule', rule, '--optim.lr',
            rate, *CHOSEN_KEYS.get((rule, batch), OTHER_KEYS))


def pack(folder):
    """The path of the data set, made once in the build's folder."""
    packed = contenders.build() / 'bench' / 'cifar10.set'
    if not packed.exists():
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder)
        whole = folder / packed.name  # it has its name only when it is complete
        contenders.call([contenders.program(), 'pack', folder / 'train', '--val', folder / 'test',
                         '--out', whole])
        whole.rename(packed)
    return packed


class Setting:
    """What all trainings share."""

    def __init__(self, precision):
        self.precision = precision
        self.finished = Finished('accuracy', KEYS)
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=contenders.build() / 'bench'))
        self.packed = None

    def key(self, ranks, epochs, seed, options):
        return {'precision': self.precision, 'ranks': ranks, 'epochs': epochs, 'seed': seed,
                'options': list(options), 'recipe': RECIPE.read_text()}

    def find(self, *key):
        """Top-1 of a training that ended before, or None."""
        one = self.finished.find(**self.key(*key))
        return one and one['top1']

    def train(self, name, *key):
        """Top-1 of the training, which runs only when it has not ended before."""
        top = self.find(*key)
        if top is None:
            top = self.top1(*key)
            self.finished.add(training=name, top1=top, **self.key(*key))
        contenders.progress(f'{name}, seed {key[2]}: {100 * top:.2f} %')
        return top

    def top1(self, ranks, epochs, seed, options):
        """Of the last epoch."""
        self.packed = self.packed or pack(self.folder)
        run = self.folder / 'run'
        start = ([*contenders.mpirun(), '--oversubscribe', '--bind-to', 'none', '-np', ranks]
                 if ranks > 1 else [])
        contenders.call([*start, contenders.program(), 'train', '--config', RECIPE,
                         '--data.train', self.packed / 'train', '--data.val', self.packed / 'val',
                         '--precision', self.precision, '--epochs', epochs,
                         '--threads', 1 if ranks > 1 else contenders.THREADS, '--seed', seed,
                         '--out', run, *options])
        lines = [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]
        shutil.rmtree(run)
        return [line['val_top1'] for line in lines if line['kind'] == 'epoch'][-1]


def pilot(setting):
    for batch in LARGE:
        for rule, rates in RATES.items():
            for rate in rates:
                setting.train(f'pilot {rule} {batch} {rate}', 1, EPOCHS, PILOT_SEED,
                              large(rule, batch, rate))


def chosen_rate(setting, rule, batch):
    """The pilot's best rate, or None before all of its trainings with this rule have ended."""
    tops = {rate: setting.find(1, EPOCHS, PILOT_SEED, large(rule, batch, rate))
            for rate in RATES[rule]}
    return None if None in tops.values() else max(tops, key=tops.get)


def trainings(setting, report):
    """Name to ranks and options, of all that can be measured now."""
    all_of = {name: (RANKS, options) for name, options in TRAININGS.items()}
    all_of |= {SMALL: (1, ()), f'{SMALL} pad 2': (1, LESS_MOVED)}
    for batch in LARGE:
        for rule in RATES:
            rate = chosen_rate(setting, rule, batch)
            if rate is None:
                report['notes'].append(f'{rule} {batch}: no pilot yet (TRAININGS=pilot).')
            else:
                all_of[f'{rule} {batch}'] = 1, large(rule, batch, rate)
                if rate in (RATES[rule][0], RATES[rule][-1]):
                    report['notes'].append(f'{rule} {batch}: the best rate of the pilot, {rate}, '
                                           'is the first or last one: widen RATES.')
    return all_of


def compared(name, means):
    """What the training is compared with, and by how many points it may be below."""
    if name in TRAININGS:
        return ('fp32', f'at most {TARGETS[name]}') if name in TARGETS else (None, '')
    if name.startswith(SMALL):
        return SMALL if name != SMALL else None, ''
    rule, _, batch = name.partition(' ')
    rivals = [f'{one} {batch}' for one in RATES if one != 'sgd']
    best = rule != 'sgd' and means[name] == max(means[one] for one in rivals if one in means)
    if batch == '4096' or rule == 'sgd':
        return SMALL, 'at most 2' if best else ''
    return f'sgd {batch}', 'at most -3' if best else ''


def rows(tops):
    means = {name: 100 * statistics.mean(seeds) for name, seeds in tops.items() if seeds}
    for name, mean in means.items():
        other, target = compared(name, means)
        points = f'{means[other] - mean:+.2f}' if other in means else ''
        yield dict(zip(COLUMNS, (name, ' '.join(f'{100 * top:.2f}' for top in tops[name]),
                                 f'{mean:.2f}', other or '', points, target)))


def measure(asked, report):
    if not ARCHIVE.exists():
        report['notes'].append(f'{ARCHIVE} is not there: nothing was measured.')
        return
    setting = Setting(asked['precisions'][0])
    setting.finished.note(report)
    load = machine.OtherLoad()
    tops = {}
    try:
        chosen = [name for name in os.environ.get('TRAININGS', '').split(',') if name]
        if 'pilot' in chosen:
            pilot(setting)
            chosen.remove('pilot')
            if not chosen:
                return
        known = trainings(setting, report)
        for name in chosen:
            if name not in known:
                raise contenders.Failure(f'TRAININGS: "{name}" does not exist; choose from pilot, '
                                         + ', '.join(known))
        tops = {name: [] for name in chosen or known}
        for seed in range(1, asked['rounds'] + 1):
            for name in tops:
                ranks, options = known[name]
                tops[name].append(setting.train(name, ranks, EPOCHS, seed, options))
    finally:
        report['other_load'].append(round(load.cores(), 2))
        report['rounds'].append(tops)
        report['rows'] += rows(tops)
        shutil.rmtree(setting.folder)
