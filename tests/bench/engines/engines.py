"""lockstep's inference compared with OpenVINO's and ONNX Runtime's, on the same cores.

lockstep computes as predict does, pixels to logits. The others run what
`lockstep export` writes of the same network, normalised images to logits, OpenVINO by both of its
hints: the faster counts. "ms a batch": the least of those that compute one batch at a time.
ENGINES_PYTHON names a Python that can import both; without it, one is made in $BUILD/bench.
"""
import json
import os
import statistics

import contenders
import machine
import steps

TITLE = 'Inference compared with OpenVINO and ONNX Runtime, 2 cores'
COLUMNS = ['model', 'precision', 'batch', 'lockstep', 'openvino', 'onnxruntime', '× faster one',
           'lowest to highest', 'ms a batch', 'of the others']
#         images in a measurement
MODELS = {'resnet18': 192, 'resnet50': 96}
BATCHES = (1, 8, 32)
SIDE = 224
SCRIPT = contenders.HERE / 'engines' / 'run_engine.py'
REQUIREMENTS = contenders.HERE.parent / 'support' / 'clients' / 'requirements.txt'
NEEDED = ('numpy', 'onnxruntime', 'openvino')
HINTS = {'openvino': ('latency', 'throughput'), 'onnxruntime': ('latency',)}


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


def exported(model):
    """The network as `lockstep export` writes it, from weights that the script makes."""
    path = contenders.build() / 'bench' / f'{model}.onnx'
    if not path.exists():
        weights = path.with_name(f'{model}.npz')
        contenders.call([python(), SCRIPT, weights, '--weights', model])
        contenders.call([contenders.program(), 'export', weights, '--to', path, '--input', 'float'])
        weights.unlink()
    return path


def engine(case, name, hint):
    text = contenders.call([python(), SCRIPT, exported(case.model), '--engine', name,
                            '--hint', hint, '--batch', case.batch, '--image', case.image,
                            '--precision', case.precision, '--steps', case.steps,
                            '--threads', contenders.THREADS])
    return json.loads(text)


def one_round(case, report):
    """Figures of each contender, measured one after the other, and of the fastest other one."""
    measures = {'lockstep': lambda: contenders.lockstep(case, 1, '--winograd', 'true',
                                                        what='inference')}
    for name, hints in HINTS.items():
        for hint in hints:
            measures[name, hint] = lambda name=name, hint=hint: engine(case, name, hint)
    figures = {}
    for which, measure in measures.items():
        load = machine.OtherLoad()
        figures[which] = measure()
        report['other_load'].append(load.cores())
    figures['at once'] = min((figures[name, 'latency'] for name in HINTS),
                             key=lambda one: one['step_ms'])
    rates = {which: figures[which]['images_per_s'] for which in measures}
    contenders.progress(f'{case.model} {case.precision} {case.batch}: ' + ', '.join(
        f'{which if which == "lockstep" else " ".join(which)} {rate:.1f}'
        for which, rate in rates.items()))
    for name, hints in HINTS.items():
        figures[name] = max((figures.pop((name, hint)) for hint in hints),
                            key=lambda one: one['images_per_s'])
    figures['faster'] = max((figures[name] for name in HINTS), key=lambda f: f['images_per_s'])
    return figures


def row(case, rounds):
    """One line of the table."""
    ratios = [one['lockstep']['images_per_s'] / one['faster']['images_per_s'] for one in rounds]
    return {'model': case.model, 'precision': case.precision, 'batch': str(case.batch),
            'lockstep': steps.show(steps.middle(rounds, 'lockstep', 'images_per_s'), 1),
            'openvino': steps.show(steps.middle(rounds, 'openvino', 'images_per_s'), 1),
            'onnxruntime': steps.show(steps.middle(rounds, 'onnxruntime', 'images_per_s'), 1),
            'ms a batch': steps.show(steps.middle(rounds, 'lockstep', 'step_ms'), 1),
            'of the others': steps.show(steps.middle(rounds, 'at once', 'step_ms'), 1),
            '× faster one': steps.show(statistics.median(ratios), 2),
            'lowest to highest': f'{min(ratios):.2f} to {max(ratios):.2f}'}


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
                rounds = [one_round(case, report) for _ in range(asked['rounds'])]
                report['rounds'] += rounds
                report['rows'].append(row(case, rounds))
    report['notes'].append(verdict(report))
