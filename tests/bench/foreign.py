"""What another busy process costs when it runs on one of our two cores."""
import contextlib
import os
import signal
import statistics
import subprocess
import sys

import contenders
import machine
import steps

TITLE = 'One busy foreign process on one of the 2 cores'
COLUMNS = ['model', 'batch', 'precision', 'configuration', 'alone ms', 'with it ms', '×']
LIMIT_S = 30  # for PyTorch, whose steps may take seconds each


@contextlib.contextmanager
def busy_process():
    """Keeps the last of our processors busy."""
    cpu = max(os.sched_getaffinity(0))
    burner = subprocess.Popen(
        [sys.executable, '-c', f'import os\nos.sched_setaffinity(0, [{cpu}])\nwhile True: pass'])
    try:
        yield
    finally:
        burner.send_signal(signal.SIGKILL)
        burner.wait()


def row(case, name, pairs):
    alone, with_it = (statistics.median(times) for times in zip(*pairs))
    ratio = statistics.median(loaded / quiet for quiet, loaded in pairs)
    return {'model': case.model, 'batch': str(case.batch), 'precision': case.precision,
            'configuration': steps.NAMES[name], 'alone ms': f'{alone:.1f}',
            'with it ms': f'{with_it:.1f}', '×': f'{ratio:.2f}'}


def measure(asked, report):
    chosen = {**asked, 'models': asked['models'] or ['resnet20'], 'steps': asked['steps'] or 15}
    for case in steps.cases(chosen):
        takes_part = {'threads': lambda: contenders.lockstep(case, 1),
                      'ranks': lambda: contenders.lockstep(case, 2)}
        if not contenders.torch_missing():
            takes_part['torch'] = lambda: contenders.torch(case, LIMIT_S)
        pairs = {name: [] for name in takes_part}
        for _ in range(asked['rounds']):
            for name, run in takes_part.items():
                load = machine.OtherLoad()
                quiet = run()['step_ms']
                report['other_load'].append(round(load.cores(), 2))
                with busy_process():
                    loaded = run()['step_ms']
                pairs[name].append((quiet, loaded))
                contenders.progress(f'{case.model} {case.precision} {name:8} {quiet:8.1f} ms alone'
                                    f' {loaded:8.1f} ms with a busy process')
        report['rounds'].append({'model': case.model, 'precision': case.precision, **pairs})
        report['rows'] += [row(case, name, of_name) for name, of_name in pairs.items()]
