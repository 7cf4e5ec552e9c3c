"""Whether a process keeps as limit what it was seen to take with any number of segments.

For each N the peak of `bench train --recompute N`, then that of `--recompute auto` with a limit 2 %
above it. Peaks are of the whole process, as the system counts them."""
import json
import pathlib
import re
import subprocess
import tempfile

import contenders
import machine

TITLE = '--recompute N, and auto within 2 % more than its peak'
COLUMNS = ['model', 'image', 'batch', 'N', 'peak MB', 'made again', 'limit MB', 'auto MB',
           'auto made again', 'kept']
CASES = {'resnet18': (32, (16, 64, 128)), 'resnet50': (32, (4, 16, 32))}
SLACK = 1.02
TOO_MANY = re.compile('can be cut into at most')
TOO_SMALL = re.compile('is too small: .* at least ([0-9]+) bytes')


def bench(model, image, batch, *options):
    """The figures of three steps (the first, a warm-up and one), or what the program says instead."""
    with tempfile.TemporaryDirectory(dir=contenders.build() / 'bench') as folder:
        report = pathlib.Path(folder) / 'report.json'
        command = [contenders.program(), 'bench', 'train', '--model', model, '--data.size', image,
                   '--batch', batch, '--data.classes', 10, '--steps', 1, '--warm-up', 1,
                   '--winograd', 'false', '--json', report, *options]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False)
        return (json.loads(report.read_text()) if done.returncode == 0 else None,
                done.stdout + done.stderr)


def row(model, image, batch, segments):
    """Nothing where the network has fewer segments."""
    wanted, said = bench(model, image, batch, '--recompute', segments)
    if wanted is None:
        if TOO_MANY.search(said):
            return None
        raise contenders.Failure(said)
    peak = wanted['peak_memory_bytes']
    limit = int(SLACK * peak)
    found, said = bench(model, image, batch, '--recompute', 'auto', '--memory-limit', limit)
    least = TOO_SMALL.search(said)
    if found is None and least is None:
        raise contenders.Failure(said)
    kept = found is not None and found['peak_memory_bytes'] <= limit
    return {'model': model, 'image': str(image), 'batch': str(batch), 'N': str(segments),
            'peak MB': f'{peak / 1e6:.1f}', 'made again': f'{100 * wanted["made_again"]:.0f} %',
            'limit MB': f'{limit / 1e6:.1f}',
            'auto MB': f'{found["peak_memory_bytes"] / 1e6:.1f}' if found
                       else f'needs {int(least[1]) / 1e6:.1f}',
            'auto made again': f'{100 * found["made_again"]:.0f} %' if found else '',
            'kept': 'yes' if kept else 'NO'}


def measure(asked, report):
    for model, (image, batches) in CASES.items():
        if asked['models'] and model not in asked['models']:
            continue
        for batch in batches:
            segments = 1
            load = machine.OtherLoad()
            while one := row(model, image, batch, segments):
                contenders.progress('  '.join(one.values()))
                report['rows'].append(one)
                segments += 1
            report['other_load'].append(round(load.cores(), 2))
