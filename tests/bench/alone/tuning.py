"""What weights from other classes are worth: whether a training on few images of five classes of
CIFAR-10 reaches in a third of the epochs what one from random weights reaches."""
import json
import pathlib
import shutil
import tarfile
import tempfile

import contenders
import machine

TITLE = 'Fine-tuning on five classes of CIFAR-10, from weights of the other five'
COLUMNS = ['start', 'epochs', 'best top-1', 'reaches the first one\'s best in epoch', 'seconds']
ARCHIVE = contenders.HERE.parent.parent.parent / 'shared' / 'cifar10' / 'cifar10-jpeg.tar.gz'
FIRST = ('airplane', 'bird', 'deer', 'frog', 'ship')
SECOND = ('automobile', 'cat', 'dog', 'horse', 'truck')
ROWS, FEW_ROWS, TEST_ROWS = 5000, 300, 200  # of each class
FIRST_EPOCHS, EPOCHS = 15, 12


def unpack(folder):
    """Some images of each class: many of the first five to train on, few of the second."""
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            part, *rest = pathlib.PurePath(member.name).parts
            if len(rest) != 2:
                continue
            half = 'first' if rest[0] in FIRST else 'second'
            number = int(pathlib.PurePath(rest[1]).stem)
            most = TEST_ROWS if part == 'test' else ROWS if half == 'first' else FEW_ROWS
            if number >= most:
                continue
            to = folder / half / part / rest[0]
            to.mkdir(parents=True, exist_ok=True)
            (to / rest[1]).write_bytes(archive.extractfile(member).read())
    for half in ('first', 'second'):
        contenders.call([contenders.program(), 'pack', folder / half / 'train', '--val',
                         folder / half / 'test', '--out', folder / f'{half}.set'])


def train(folder, half, name, epochs, *options):
    """The top-1 of each epoch's validation, and seconds."""
    data, run = folder / f'{half}.set', folder / name
    contenders.call([contenders.program(), 'train', '--data.train', data, '--epochs', epochs,
                     '--batch', 64, '--data.pad', 4, '--data.flip', '--threads', contenders.THREADS,
                     '--out', run, *options])
    lines = [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]
    tops = [line['val_top1'] for line in lines if line['kind'] == 'epoch']
    return tops, json.loads((run / 'summary.json').read_text())['seconds']


def measure(asked, report):
    if not ARCHIVE.exists():
        report['notes'].append(f'{ARCHIVE} is not there: nothing was measured.')
        return
    folder = pathlib.Path(tempfile.mkdtemp(dir=contenders.build() / 'bench'))
    load = machine.OtherLoad()
    try:
        unpack(folder)
        base, _ = train(folder, 'first', 'base', FIRST_EPOCHS, '--optim.lr', 0.1)
        report['notes'].append(f'The weights: {100 * max(base):.1f} % on the other five classes.')
        weights = ('--init', folder / 'base' / 'checkpoints' / 'best.h5')
        third = EPOCHS // 3
        starts = {
            'random weights': (EPOCHS, '--optim.lr', 0.05),
            '--init': (third, *weights, '--optim.lr', 0.05),
            '--init --optim.backbone-lr-factor 0.3': (
                third, *weights, '--optim.lr', 0.1, '--optim.backbone-lr-factor', 0.3),
            '--init --freeze layer2': (third, *weights, '--optim.lr', 0.05, '--freeze', 'layer2'),
        }
        wanted = None
        for number, (start, options) in enumerate(starts.items()):
            tops, seconds = train(folder, 'second', f'run-{number}', *options)
            wanted = wanted or max(tops)
            reached = [epoch for epoch, top in enumerate(tops, 1) if top >= wanted]
            report['rounds'].append({'start': start, 'tops': tops, 'seconds': seconds})
            report['rows'].append(dict(zip(COLUMNS, (
                start, str(options[0]), f'{100 * max(tops):.1f} %',
                str(reached[0]) if reached else '-', f'{seconds:.1f}'))))
            contenders.progress(f'{start}: {tops}')
    finally:
        report['other_load'].append(round(load.cores(), 2))
        shutil.rmtree(folder)
