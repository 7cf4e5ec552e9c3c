"""The table of inference: lockstep as a validation runs it, and each PyTorch in each of its forms."""

import contenders
import machine
import steps

TITLE = 'Inference, 2 cores'
#        batch, side of the images, measured batches in a round
MODELS = {
    'resnet20': (128, 32, 150),
    'resnet18': (16, 224, 20),
    'resnet50': (8, 224, 20),
}
COLUMNS = ['model', 'batch', 'precision', 'configuration', 'images/s', '× PyTorch', 'peak MB',
           'of PyTorch']
NAMES = {'threads': '1 process × 2 threads', 'ranks': '2 ranks × 1 thread',
         'threads-direct': '1 × 2, without Winograd',
         'torch': 'PyTorch, 2 threads', 'torch-frozen': 'PyTorch, frozen script',
         'pypi': 'PyTorch of PyPI, eager', 'pypi-frozen': 'PyTorch of PyPI, frozen script',
         'pypi-compiled': 'PyTorch of PyPI, compiled'}
OURS = ('threads', 'ranks', 'threads-direct')


def lockstep(case, ranks, *more):
    return contenders.lockstep(case, ranks, *more, what='inference')


def ours(case):
    return {'threads': lambda: lockstep(case, 1), 'ranks': lambda: lockstep(case, 2),
            'threads-direct': lambda: lockstep(case, 1, '--winograd', 'false')}


def form(case, python, name):
    return lambda: contenders.torch_script('torch_inference.py', case, python, '--form', name)


def torches(asked, case):
    """Each PyTorch that is there, in each form that is worth measuring."""
    runs = {}
    if not contenders.torch_missing():
        for name, key in (('eager', 'torch'), ('frozen', 'torch-frozen')):
            runs[key] = form(case, contenders.PYTHON, name)
    if asked['pypi']:
        python = contenders.pypi_python(asked['pypi'])
        for name, key in (
            ('eager', 'pypi'),
            ('frozen', 'pypi-frozen'),
            ('compiled', 'pypi-compiled'),
        ):
            runs[key] = form(case, python, name)
    return runs


def one_round(case, takes_part, report):
    """Figures of each contender, measured one after the other, and of the best PyTorch."""
    figures = {}
    for name, measure in takes_part.items():
        load = machine.OtherLoad()
        figures[name] = measure()
        figures[name]['other_load'] = round(load.cores(), 2)
        report['other_load'].append(figures[name]['other_load'])
        contenders.progress(f'{case.model} {case.precision} {name:15}'
                            f'{figures[name]["images_per_s"]:9.1f} images/s')
    peers = [figures[name] for name in takes_part if name not in OURS]
    if peers:
        figures['best'] = {'images_per_s': max(one['images_per_s'] for one in peers),
                           'peak_memory_bytes': min(one['peak_memory_bytes'] for one in peers)}
    return figures


def row(case, rounds, name):
    """One line of the table."""
    cells = {'model': case.model, 'batch': str(case.batch), 'precision': case.precision,
             'configuration': NAMES[name],
             'images/s': steps.show(steps.middle(rounds, name, 'images_per_s'), 1),
             'peak MB': steps.show(steps.middle(rounds, name, 'peak_memory_bytes') / 1e6, 0)}
    if name in OURS:
        cells['× PyTorch'] = steps.show(steps.paired(rounds, name, 'best', 'images_per_s'), 2)
        cells['of PyTorch'] = steps.show(steps.paired(rounds, name, 'best', 'peak_memory_bytes'), 2)
    return cells


def measure(asked, report):
    report['notes'] += contenders.torches(asked)[1]
    for model in asked['models'] or MODELS:
        batch, image, count = MODELS[model]
        for precision in asked['precisions']:
            case = contenders.Case(model, batch, image, precision, asked['steps'] or count)
            takes_part = {**ours(case), **torches(asked, case)}
            rounds = [one_round(case, takes_part, report) for _ in range(asked['rounds'])]
            report['rounds'] += rounds
            report['rows'] += [row(case, rounds, name) for name in NAMES if name in rounds[0]]
