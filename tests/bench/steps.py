"""The table of whole training steps: lockstep in two shapes, each PyTorch, the convolutions alone."""

import statistics

import contenders
import machine

TITLE = 'Training steps, 2 cores'
#        batch, side of the images, measured steps in a round
MODELS = {
    'resnet20': (128, 32, 30),
    'resnet18': (16, 224, 8),
    'resnet50': (8, 224, 6),
}
COLUMNS = ['model', 'batch', 'precision', 'configuration', 'images/s', '× PyTorch', 'exposed ms',
           'step / without reduction', 'peak MB', 'of PyTorch', 'convolutions alone', 'of them']
NAMES = {'threads': '1 process × 2 threads', 'ranks': '2 ranks × 1 thread',
         'threads-direct': '1 × 2, without Winograd', 'ranks-direct': '2 × 1, without Winograd',
         'torch': 'PyTorch, 2 threads', 'pypi': 'PyTorch of PyPI, eager',
         'compiled': 'PyTorch of PyPI, compiled'}
TORCHES = ('torch', 'pypi', 'compiled')


def cases(asked):
    for model in asked['models'] or MODELS:
        batch, image, steps = MODELS[model]
        for precision in asked['precisions']:
            yield contenders.Case(model, batch, image, precision, asked['steps'] or steps)


def directs():
    """The same trainings with direct convolutions only."""
    direct = ('--winograd', 'false')
    return {'threads-direct': lambda one: contenders.lockstep(one, 1, *direct),
            'ranks-direct': lambda one: contenders.lockstep(one, 2, '--reduction', *direct)}


def one_round(case, torches, report):
    """Figures of each contender, measured one after the other, and of the best PyTorch."""
    takes_part = {'threads': lambda one: contenders.lockstep(one, 1), **torches,
                  'ranks': lambda one: contenders.lockstep(one, 2, '--reduction'),
                  **directs(),
                  'floor': contenders.conv_floor}
    figures = {}
    for name, measure in takes_part.items():
        load = machine.OtherLoad()
        figures[name] = measure(case)
        figures[name]['other_load'] = round(load.cores(), 2)
        report['other_load'].append(figures[name]['other_load'])
        contenders.progress(f'{case.model} {case.precision} {name:8}'
                            f'{figures[name]["images_per_s"]:9.1f} images/s')
    if torches:
        figures['best'] = {
            'images_per_s': max(figures[name]['images_per_s'] for name in torches),
            'peak_memory_bytes': min(figures[name]['peak_memory_bytes'] for name in torches)}
    return figures


def middle(rounds, name, figure):
    return statistics.median(one[name][figure] for one in rounds)


def paired(rounds, name, other, figure):
    """Median over the rounds of the ratio within a round; None when the other one did not run."""
    ratios = [one[name][figure] / one[other][figure] for one in rounds if other in one]
    return statistics.median(ratios) if ratios else None


def show(value, digits):
    return '' if value is None else f'{value:.{digits}f}'


def row(case, rounds, name):
    """One line of the table."""
    cells = {'model': case.model, 'batch': str(case.batch), 'precision': case.precision,
             'configuration': NAMES[name],
             'images/s': show(middle(rounds, name, 'images_per_s'), 1),
             'peak MB': show(middle(rounds, name, 'peak_memory_bytes') / 1e6, 0),
             'convolutions alone': show(middle(rounds, 'floor', 'images_per_s'), 1),
             'of them': show(paired(rounds, name, 'floor', 'images_per_s'), 2)}
    if name not in TORCHES:
        cells['× PyTorch'] = show(paired(rounds, name, 'best', 'images_per_s'), 2)
        cells['of PyTorch'] = show(paired(rounds, name, 'best', 'peak_memory_bytes'), 2)
    if name.startswith('ranks'):
        cells['exposed ms'] = show(middle(rounds, name, 'exposed_comm_ms'), 2)
        cells['step / without reduction'] = show(middle(rounds, name, 'reduction_ratio'), 3)
    return cells


def measure(asked, report):
    torches, notes = contenders.torches(asked)
    report['notes'] += notes
    for case in cases(asked):
        rounds = []
        for _ in range(asked['rounds']):
            figures = one_round(case, torches, report)
            figures['floor'].pop('layers')
            rounds.append(figures)
        report['rounds'] += rounds
        report['rows'] += [row(case, rounds, name) for name in NAMES if name in rounds[0]]
