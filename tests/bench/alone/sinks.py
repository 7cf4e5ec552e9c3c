"""What all sinks of a training's records cost a step: TensorBoard, a textfile and a port for
Prometheus, scraped once a second, and a price for the ledger; nothing is traced. The same training
without them in turn, A B B A, and of each pair the ratio of the median steps."""
import http.client
import json
import pathlib
import random
import socket
import statistics
import tempfile
import threading

import contenders
import machine

TITLE = 'All sinks on, compared with none'
COLUMNS = ['training', 'none, ms', 'all, ms', 'ratio', '95 %', 'wanted']
# Each takes some seconds, so that the page of metrics is asked for.
TRAININGS = {
    'resnet20, batch 32, 2 threads': ('--model', 'resnet20', '--batch', 32, '--threads', 2,
                                      '--stop-after', 400),
    'steps of 2 ms, clock': ('--backend', 'clock', '--clock.step-ms', 2, '--batch', 32,
                             '--threads', 1, '--stop-after', 2500),
}
STEPS_BEFORE = 40
PAIRS_A_ROUND = 3
WANTED = 'at most 1.005'


def free_port():
    with socket.socket() as one:
        one.bind(('127.0.0.1', 0))
        return one.getsockname()[1]


class Scraper:
    """Asks for the page of metrics once a second, as Prometheus might."""

    def __init__(self, port):
        self.port, self.pages = port, 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        while not self.over.wait(1):
            try:
                link = http.client.HTTPConnection('127.0.0.1', self.port, timeout=1)
                link.request('GET', '/metrics')
                self.pages += b'lockstep_' in link.getresponse().read()
            except OSError:
                continue  # the training begins or ends

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def step_ms(data, options, sinks):
    """The median step of a training."""
    with tempfile.TemporaryDirectory(dir=contenders.build() / 'bench') as folder:
        run, port = pathlib.Path(folder) / 'run', free_port()
        more = ('--metrics.tensorboard', 'true', '--metrics.textfile', f'{folder}/run.prom',
                '--metrics.listen', port, '--cost.per-core-hour', 0.05) if sinks else ()
        command = [contenders.program(), 'train', '--data.train', data, '--data.workers', 1,
                   '--optim.lr', 0.001, '--epochs', 100000,
                   '--checkpoint.every-epochs', 0, '--audit.every-steps', 0, '--out', run,
                   *options, *more]
        with Scraper(port) as scraper:
            contenders.call(command, statuses=(3,))  # stopped
        if sinks and (scraper.pages == 0 or not list(run.glob('tensorboard/*'))):
            raise contenders.Failure(f'{scraper.pages} pages of metrics; '
                                     f'{sorted(str(one) for one in run.iterdir())}')
        lines = map(json.loads, (run / 'metrics.jsonl').read_text().splitlines())
        steps = [one for one in lines if one['kind'] == 'step' and one['step'] > STEPS_BEFORE]
    return statistics.median(sum(value for name, value in one.items() if name.endswith('_ms')
                                 and name != 'time_ms') for one in steps)


def interval(ratios):
    """Of the median, by a bootstrap whose draws are always the same."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def measure(asked, report):
    with tempfile.TemporaryDirectory(dir=contenders.build() / 'bench') as folder:
        data = pathlib.Path(folder) / 'set'
        contenders.call([contenders.program(), 'pack', '--from', 'shapes', '--out', data,
                         '--train-rows', 4000, '--val-rows', 10, '--resize', 32])
        for name, options in TRAININGS.items():
            pairs = []
            for number in range(asked['rounds'] * PAIRS_A_ROUND):
                load = machine.OtherLoad()
                order = (False, True) if number % 2 == 0 else (True, False)
                times = {sinks: step_ms(data / 'train', options, sinks) for sinks in order}
                report['other_load'].append(round(load.cores(), 2))
                pairs.append((times[False], times[True]))
                contenders.progress(f'{name}: {times[False]:.3f} ms, with all sinks '
                                    f'{times[True]:.3f}')
            report['rounds'].append({'training': name, 'pairs': pairs})
            ratios = [with_them / without for without, with_them in pairs]
            low, high = interval(ratios)
            report['rows'].append(dict(zip(COLUMNS, (
                name, *(f'{statistics.median(one):.3f}' for one in zip(*pairs)),
                f'{statistics.median(ratios):.4f}', f'{low:.4f} to {high:.4f}', WANTED))))
