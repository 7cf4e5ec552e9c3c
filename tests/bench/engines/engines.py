"""lockstep's inference compared with OpenVINO's and ONNX Runtime's, on the same cores.

lockstep computes as `predict` does, pixels to logits. The others run what `lockstep export` writes
of the same network: in the first round each of their configurations, then the best of each.
ENGINES_PYTHON names a Python that can import both; without it, one is made in $BUILD/bench.
"""
import json
import os

import contenders
import machine
import steps

TITLE = 'Inference compared with OpenVINO and ONNX Runtime, 2 cores'
COLUMNS = ['model', 'precision', 'batch', 'lockstep', 'ms a batch', 'openvino', 'onnxruntime',
           '× faster one', 'lowest to highest']
#         images in a measurement
MODELS = {'resnet18': 384, 'resnet50': 128}
BATCHES = (1, 8, 32)
SIDE = 224
SCRIPT = contenders.HERE / 'engines' / 'run_engine.py'
REQUIREMENTS = contenders.HERE.parent / 'support' / 'clients' / 'requirements.txt'
NEEDED = ('numpy', 'onnxruntime', 'openvino')
CONFIGURATIONS = {
    'openvino': [(form, hint) for form in ('float', 'pixels') for hint in ('latency',
                                                                          'throughput')],
    'onnxruntime': [(form, 'latency') for form in ('float', 'pixels')],
}


def python():
    """An interpreter with both engines, in the versions that the clients' tests use."""
    if os.environ.get('ENGINES_PYTHON'):
        return os.environ['ENGINES_PYTHON']
    folder = contenders.build() / 'bench' / 'engines'
    if not (folder / 'made').exists():
        pins = [line for line in REQUIREMENTS.read_text().split()
                if line.partition('==')[0] in NEEDED]
        contenders.progress(f'bench: installing {" ".join(pins)} into {folder}')
        contenders.call([contenders.PYTHON, '-m', 'venv', '--clear', folder])
        contenders.call([folder / 'bin' / 'pip', 'install', '--quiet', '--no-cache-dir', *pins])
        (folder / 'made').touch()
    return folder / 'bin' / 'python3'


def exported(model, form):
    """The network as `lockstep export` writes it, from weights that the script makes."""
    path = contenders.build() / 'bench' / f'{model}-{form}.onnx'
    if not path.exists():
        weights = path.with_name(f'{model}.npz')
        contenders.call([python(), SCRIPT, weights, '--weights', model])
        contenders.call([contenders.program(), 'export', weights, '--to', path, '--input', form])
        weights.unlink()
    return path


def engine(case, name, form, hint):
    text = contenders.call([python(), SCRIPT, exported(case.model, form), '--engine', name,
                            '--input', form, '--hint', hint, '--batch', case.batch, '--image',
                            case.image, '--precision', case.precision, '--steps', case.steps,
                            '--threads', contenders.THREADS])
    return json.loads(text)


def best_configuration(case, name):
    """The fastest of an engine's configurations, each measured once."""
    figures = {configuration: engine(case, name, *configuration)['images_per_s']
               for configuration in CONFIGURATIONS[name]}
    contenders.progress(f'{case.model} {case.precision} {case.batch} {name}: ' + ', '.join(
        f'{" ".join(configuration)} {rate:.1f}' for configuration, rate in figures.items()))
    return max(figures, key=figures.get)


def one_round(case, best, report):
    """Figures of each contender, measured one after the other."""
    measures = {'lockstep': lambda: contenders.lockstep(case, 1, '--winograd', 'true',
                                                        what='inference')}
    for name, configuration in best.items():
        measures[name] = lambda name=name, at=configuration: engine(case, name, *at)
    figures = {}
    for name, measure in measures.items():
        load = machine.OtherLoad()
        figures[name] = measure()
        figures[name]['other_load'] = round(load.cores(), 2)
        report['other_load'].append(figures[name]['other_load'])
        contenders.progress(f'{case.model} {case.precision} {case.batch:3} {name:12}'
                            f'{figures[name]["images_per_s"]:9.1f} images/s')
    figures['faster'] = max((figures[name] for name in best), key=lambda f: f['images_per_s'])
    return figures


def row(case, rounds, best):
    """One line of the table."""
    ratios = [one['lockstep']['images_per_s'] / one['faster']['images_per_s'] for one in rounds]
    cells = {'model': case.model, 'precision': case.precision, 'batch': str(case.batch),
             'lockstep': steps.show(steps.middle(rounds, 'lockstep', 'images_per_s'), 1),
             'ms a batch': steps.show(steps.middle(rounds, 'lockstep', 'step_ms'), 1),
             '× faster one': steps.show(
                 steps.paired(rounds, 'lockstep', 'faster', 'images_per_s'), 2),
             'lowest to highest': f'{min(ratios):.2f} to {max(ratios):.2f}'}
    for name, (form, hint) in best.items():
        rate = steps.show(steps.middle(rounds, name, 'images_per_s'), 1)
        cells[name] = f'{rate} ({form}, {hint})'
    return cells


def verdict(report):
    ratios = [float(cells['× faster one']) for cells in report['rows']]
    return (f'{sum(ratio >= 1 for ratio in ratios)} of {len(ratios)} cells at least 1.0 times the '
            f'faster one; the lowest {min(ratios):.2f}. ONNX Runtime computes in fp32 everywhere.')


def measure(asked, report):
    for model in asked['models'] or MODELS:
        if model not in MODELS:
            raise contenders.Failure(f'MODELS: the engines run {" and ".join(MODELS)}')
        for precision in asked['precisions']:
            for batch in BATCHES:
                count = asked['steps'] or max(4, MODELS[model] // batch)
                case = contenders.Case(model, batch, SIDE, precision, count)
                best = {name: best_configuration(case, name) for name in CONFIGURATIONS}
                rounds = [one_round(case, best, report) for _ in range(asked['rounds'])]
                report['rounds'] += rounds
                report['rows'].append(row(case, rounds, best))
    report['notes'].append(verdict(report))
