"""The table of requests over HTTP: `lockstep serve` and KServe's own server with onnxruntime in it,
asked by the same load program on the same cores, and `lockstep predict`, which bounds what a server
on these cores can reach."""
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import time

import contenders
import machine
import sinks
import steps

TITLE = 'Requests of one image, ResNet-20 on 32 × 32, fp32, 2 cores that the clients share'
COLUMNS = ['what', 'clients', 'images/s', 'p50, ms', 'p99, ms', 'of predict', '× KServe',
           "of KServe's p99", 'MB more']
PACKAGES = ['kserve==0.21.0', 'onnxruntime==1.31.1', 'numpy==2.4.6']
BATCH, SECONDS, IDLE = 16, 3, 500
CLIENTS = (1, 4, 16)
RIVALS = {'KServe, 1 × 2 threads': (1, 2), 'KServe, 2 × 1 thread': (2, 1)}
SAID = re.compile(r'([0-9]+) requests/s, p50 ([0-9.]+) ms, p99 ([0-9.]+) ms')


def rival_python():
    """The interpreter of an environment with KServe and onnxruntime, made if it is not there."""
    folder = contenders.build() / 'bench' / 'kserve'
    python = folder / 'bin' / 'python3'
    here = python.exists() and subprocess.run([python, '-c', 'import kserve, onnxruntime'],
                                              capture_output=True, check=False).returncode == 0
    if not here:
        contenders.progress(f'bench: installing {", ".join(PACKAGES)} into {folder}')
        contenders.call([contenders.PYTHON, '-m', 'venv', '--clear', folder])
        contenders.call([python, '-m', 'pip', 'install', '--quiet', *PACKAGES])
    return python


def make_model(folder):
    """A data set, and a network of it as a checkpoint and for the rival."""
    program = contenders.program()
    contenders.call([program, 'pack', '--from', 'shapes', '--out', folder / 'set', '--train-rows',
                     200, '--val-rows', 20000, '--resize', 32])
    contenders.call([program, 'train', '--data.train', folder / 'set' / 'train', '--model',
                     'resnet20', '--batch', 50, '--stop-after', 2, '--out', folder / 'run'],
                    statuses=(3,))
    model = folder / 'run' / 'checkpoints' / 'step-00000002.h5'
    contenders.call([program, 'export', model, '--fold', '--to', folder / 'model.onnx'])
    return model


def predict(folder, model):
    """Images/s of a prediction of the whole set."""
    out = pathlib.Path(tempfile.mkdtemp(dir=folder)) / 'out'
    done = subprocess.run([contenders.program(), 'predict', model, folder / 'set' / 'val',
                           '--batch', str(BATCH), '--threads', str(contenders.THREADS), '--logits',
                           '--out', out], capture_output=True, text=True, check=False)
    said = re.search(r'rows, ([0-9]+) images/s', done.stdout + done.stderr)
    if done.returncode or not said:
        raise contenders.Failure(f'lockstep predict:\n{done.stdout}{done.stderr}'[-2000:])
    return float(said[1])


class Server:
    """A server that answers, from its start to its end."""

    def __init__(self, command, log, port):
        self.port, self.log = port, log
        with open(log, 'w') as said:
            self.process = subprocess.Popen([str(word) for word in command], stdout=said,
                                            stderr=subprocess.STDOUT, start_new_session=True)

    def __enter__(self):
        until = time.monotonic() + 120
        while True:
            try:
                return self, self.ask(1, 1)  # also warms it up
            except contenders.Failure as failure:
                if time.monotonic() > until or self.process.poll() is not None:
                    said = pathlib.Path(self.log).read_text()[-2000:]
                    raise contenders.Failure(f'{failure}\n{said}') from failure
                time.sleep(0.2)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def ask(self, clients, seconds=SECONDS, idle=()):
        said = contenders.call([contenders.build() / 'bench' / 'serve_load', self.port, 'm', 32, 32,
                                3, clients, seconds, *idle])
        rate, p50, p99 = SAID.search(said).groups()
        return {'images_per_s': float(rate), 'p50_ms': float(p50), 'p99_ms': float(p99)}

    def memory_mb(self, field):
        status = pathlib.Path(f'/proc/{self.process.pid}/status').read_text()
        return int(status.split(f'{field}:')[1].split()[0]) / 1000


def ours(folder, model, port):
    return Server([contenders.program(), 'serve', f'm={model}', '--port', port, '--batch', BATCH,
                   '--threads', contenders.THREADS, '--connections', IDLE + 100, '--grace-s', 0],
                  folder / 'serve.log', port)


def rival(folder, python, port, how):
    script = pathlib.Path(__file__).with_name('kserve_model.py')
    return Server([python, script, folder / 'model.onnx', port, *how], folder / 'kserve.log', port)


def one_round(folder, model, python, port):
    """Figures by what was measured and with how many clients."""
    figures = {('predict', 0): {'images_per_s': predict(folder, model)}}
    with ours(folder, model, port) as (server, _):
        for clients in CLIENTS:
            figures['serve', clients] = server.ask(clients)
        before = server.memory_mb('VmRSS')
        figures['idle', 16] = server.ask(16, idle=(IDLE,))
        figures['idle', 16]['more_mb'] = server.memory_mb('VmHWM') - before
        figures['again', 16] = server.ask(16)
    for name, how in RIVALS.items():
        with rival(folder, python, port, how) as (server, _):
            for clients in CLIENTS:
                figures[name, clients] = server.ask(clients)
    for clients in CLIENTS:
        every = [figures[name, clients] for name in RIVALS]
        figures['best', clients] = {'images_per_s': max(one['images_per_s'] for one in every),
                                    'p99_ms': min(one['p99_ms'] for one in every)}
    figures['best', 0] = {}
    return figures


NAMES = {'predict': f'predict, --batch {BATCH}', 'serve': f'serve, --batch {BATCH}',
         'idle': f'the same, next to {IDLE} idle connections', 'again': 'the same without them',
         **{name: name for name in RIVALS}}


def row(key, rounds):
    """One line of the table."""
    name, clients = key

    def middle(figure):
        return statistics.median(one[key][figure] for one in rounds)

    def ratio(figure, to):
        return statistics.median(one[key][figure] / one[to][figure] for one in rounds)

    cells = {'what': NAMES[name], 'images/s': steps.show(middle('images_per_s'), 0)}
    if name == 'predict':
        return cells
    cells |= {'clients': str(clients), 'p50, ms': steps.show(middle('p50_ms'), 2),
              'p99, ms': steps.show(middle('p99_ms'), 2),
              'of predict': steps.show(ratio('images_per_s', ('predict', 0)), 2)}
    if name in ('serve', 'idle', 'again'):
        cells['× KServe'] = steps.show(ratio('images_per_s', ('best', clients)), 2)
        cells["of KServe's p99"] = steps.show(ratio('p99_ms', ('best', clients)), 2)
    if name == 'idle':
        cells['MB more'] = steps.show(middle('more_mb'), 1)
    return cells


def measure(asked, report):
    python = rival_python()
    with tempfile.TemporaryDirectory(dir=contenders.build() / 'bench') as name:
        folder = pathlib.Path(name)
        model = make_model(folder)
        rounds = []
        for _ in range(asked['rounds']):
            load = machine.OtherLoad()
            rounds.append(one_round(folder, model, python, sinks.free_port()))
            report['other_load'].append(round(load.cores(), 2))
            report['rounds'].append([[*key, figures] for key, figures in rounds[-1].items()])
            contenders.progress(', '.join(f'{name} {clients}: {figures["images_per_s"]:.0f}'
                                          for (name, clients), figures in rounds[-1].items()
                                          if figures))
    report['rows'] += [row(key, rounds) for key in rounds[0] if key[0] in NAMES]
