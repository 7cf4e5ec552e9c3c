"""What ways to agree on gradients, and rules for large batches, cost in accuracy: ResNet-20 on
CIFAR-10 with each, several seeds. Seconds do not matter here, so the machine may be busy."""
import json
import os
import pathlib
import shutil
import statistics
import tarfile
import tempfile

import contenders
import machine

TITLE = 'Accuracy on CIFAR-10 by ways to agree'
COLUMNS = ['training', 'top-1 of each seed', 'mean', 'less than fp32']
ARCHIVE = contenders.HERE.parent.parent.parent / 'shared' / 'cifar10' / 'cifar10-jpeg.tar.gz'
RECIPE = contenders.HERE.parent.parent / 'jobs' / 'configs' / 'cifar10.toml'
RANKS, EPOCHS = 4, 10
TRAININGS = {
    'fp32': (),
    'bf16': ('--comm.wire', 'bf16'),
    'fp16': ('--comm.wire', 'fp16'),
    'int8': ('--comm.wire', 'int8'),
    'every 8': ('--sync.every', 8, '--sync.group', 'rank', '--sync.from-epoch', 1),
    'gossip': ('--sync.gossip', 'true'),
}


def pack(folder):
    """The path of the data set, made once in the build's folder."""
    packed = contenders.build() / 'bench' / 'cifar10.set'
    if not packed.exists():
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder)
        contenders.call([contenders.program(), 'pack', folder / 'train', '--val', folder / 'test',
                         '--out', packed])
    return packed


def top1(packed, run, seed, options):
    """Of the last epoch."""
    contenders.call([*contenders.mpirun(), '--oversubscribe', '--bind-to', 'none', '-np', RANKS,
                     contenders.program(), 'train', '--config', RECIPE, '--data.train',
                     packed / 'train', '--data.val', packed / 'val', '--epochs', EPOCHS,
                     '--threads', 1, '--seed', seed, '--out', run, *options])
    lines = [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]
    return [line['val_top1'] for line in lines if line['kind'] == 'epoch'][-1]


def measure(asked, report):
    if not ARCHIVE.exists():
        report['notes'].append(f'{ARCHIVE} is not there: nothing was measured.')
        return
    chosen = [name for name in os.environ.get('TRAININGS', '').split(',') if name] or TRAININGS
    folder = pathlib.Path(tempfile.mkdtemp(dir=contenders.build() / 'bench'))
    load = machine.OtherLoad()
    tops = {name: [] for name in chosen}
    try:
        packed = pack(folder)
        for seed in range(1, asked['rounds'] + 1):
            for name in chosen:
                run = folder / f'{name}-{seed}'.replace(' ', '-')
                tops[name].append(top1(packed, run, seed, TRAININGS[name]))
                contenders.progress(f'{name}, seed {seed}: {100 * tops[name][-1]:.2f} %')
                shutil.rmtree(run)
    finally:
        report['other_load'].append(round(load.cores(), 2))
        report['rounds'].append(tops)
        whole = statistics.mean(tops['fp32']) if tops.get('fp32') else None
        for name, seeds in tops.items():
            if seeds:
                mean = statistics.mean(seeds)
                report['rows'].append(dict(zip(COLUMNS, (
                    name, ' '.join(f'{100 * top:.2f}' for top in seeds), f'{100 * mean:.2f}',
                    f'{100 * (whole - mean):+.2f}' if whole is not None else '-'))))
        shutil.rmtree(folder)
