"""Whether lockstep doctor finds what was put in, and nothing where nothing was.

Nine faults, each alone, ROUNDS times: is the right reason first, and is its cost that of the same
training with the fault less one without it, measured apart? Where the doctor says how fast the
training is after its first change: is it? A slow rank and a slow network together: is each cost
what is saved without this one? And 20 healthy trainings: what does the doctor call worth changing?
CASES='reads,quota' selects. Each finished examination is a line of $BUILD/bench/doctor.jsonl and is
not made again: remove the file after a change that matters."""
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import statistics
import tempfile
from collections.abc import Callable

import contenders
import faults
import machine
from finished import Finished

TITLE = 'lockstep doctor: faults that were put in, and healthy trainings'
COLUMNS = ['case', 'right reason first', 'its cost, ms', 'truth, ms', 'cost near truth']
HEALTHY = 20
SECONDS = 60  # of an examination
STEPS_BEFORE = 10
NEAR_MS, NEAR_SHARE = 2, 0.15
NEAR_RATE = 0.1  # of the promised images/s
NEAR_TOGETHER = 0.2
CPU = ('--model', 'resnet20', '--data.workers', 1)
CLOCK = ('--backend', 'clock', '--threads', 1, '--data.workers', 1)


@dataclasses.dataclass(frozen=True)
class Case:
    """A training, and what is wrong with it."""
    reason: str
    what: str  # a pattern of the finding's words
    options: tuple
    ranks: int = 1
    steps: int = 150  # of a training that measures the truth
    large: bool = False  # its images are JPEGs that take time to decode
    fault: Callable = lambda data: faults.nothing()  # by how the command is started
    wrong: tuple = ()  # options that are the fault
    right: tuple = ()  # what they are instead: then nothing else differs
    share: float = 1  # of a step without the fault that has as many rows
    nodes: bool = False  # on two nodes


CASES = {
    'reads': Case('input pipeline', 'wait for rows', (*CLOCK, '--clock.row-ms', 2, '--batch', 16),
                  steps=60, fault=lambda data: faults.slow_reads(data, 10000)),
    'augmentation': Case('input pipeline', 'wait for rows',
                         (*CLOCK, '--clock.row-ms', 0.3, '--batch', 32, '--data.size', 160),
                         steps=60, large=True,
                         wrong=('--data.randaugment', 8, '--data.brightness', 0.4, '--data.hue',
                                0.4, '--data.saturation', 0.4)),
    # Threads of one core decode no faster than one of them, so each row is waited for.
    'workers': Case('input pipeline', 'wait for rows',
                    (*CLOCK[:4], '--clock.row-ms', 1.2, '--batch', 16),
                    steps=60, fault=lambda data: faults.slow_reads(data, 2000),
                    wrong=('--data.workers', 1), right=('--data.workers', 2)),
    'netem': Case('communication', 'network', (*CLOCK, '--clock.row-ms', 2, '--batch', 32), ranks=2,
                  nodes=True, fault=lambda data: faults.slow_network('3ms')),
    'half-speed': Case('communication', 'slow rank: rank 1', (*CPU, '--batch', 64, '--threads', 1),
                       ranks=2, fault=lambda data: faults.half_speed(1)),
    'quota': Case('allocation, binding', 'quota', (*CPU, '--batch', 64, '--threads', 2),
                  fault=lambda data: faults.quota(1)),
    'one-core': Case('allocation, binding', 'share the processors',
                     (*CPU, '--batch', 64, '--threads', 1), ranks=2,
                     fault=lambda data: faults.one_core()),
    'batch': Case('parallel work', 'a is', (*CPU, '--threads', 2), steps=600,
                  wrong=('--batch', 2), right=('--batch', 4), share=0.5),
    'foreign': Case('allocation, binding', 'other programs',
                    (*CPU, '--batch', 64, '--threads', 1), ranks=2,
                    fault=lambda data: faults.foreign_process()),
}
SOUND = {
    'one rank': Case('', '', (*CPU, '--batch', 128, '--threads', 2)),
    'two ranks': Case('', '', (*CPU, '--batch', 128, '--threads', 1), ranks=2),
    'one thread': Case('', '', (*CPU, '--batch', 64, '--threads', 1)),
    'waiting': Case('', '', (*CLOCK, '--clock.row-ms', 3, '--batch', 16)),
}
ALL = (*CASES, 'advice', 'together', 'healthy')


def pack(large):
    """A data set of shapes, made once."""
    made = contenders.build() / 'bench' / ('doctor-large.set' if large else 'doctor.set')
    if not made.exists():
        folder = pathlib.Path(tempfile.mkdtemp(dir=contenders.build() / 'bench'))
        rows, size = (600, 480) if large else (3000, 32)
        contenders.call([contenders.program(), 'pack', '--from', 'shapes', '--out', folder / 'set',
                         '--train-rows', rows, '--val-rows', 10, '--resize', size])
        if large:
            contenders.call([contenders.program(), 'pack', '--repack', folder / 'set' / 'train',
                             '--jpeg', '--out', folder / 'jpeg'])
            shutil.rmtree(folder / 'set')
            (folder / 'jpeg').rename(folder / 'set')
        (folder / 'set').rename(made)  # it has its name only when it is complete
        folder.rmdir()
    return made / 'train'


def launcher(case):
    """The words before a rank's command, as a context."""
    return faults.two_nodes() if case.nodes else contextlib.nullcontext(
        [*contenders.mpirun(), '--oversubscribe', '--bind-to', 'none', '-np', case.ranks]
        if case.ranks > 1 else [])


def rank_words(case, launch, change, what, data, options):
    """The command of a rank, with the fault in it, after the launcher."""
    command = [contenders.program(), what, '--data.train', data, *case.options, *options]
    return [*launch, *change(command)]


def step_ms(case, launch, change, data, options):
    """The mean of the steps of a training."""
    with tempfile.TemporaryDirectory(dir=contenders.build() / 'bench') as folder:
        run = pathlib.Path(folder) / 'run'
        contenders.call(rank_words(case, launch, change, 'train', data, (
            *options, '--epochs', 100000, '--stop-after', case.steps, '--optim.lr', 0.001,
            '--checkpoint.every-epochs', 0, '--audit.every-steps', 0, '--out', run)),
            statuses=(3,))
        lines = map(json.loads, (run / 'metrics.jsonl').read_text().splitlines())
        ends = {one['step']: one['time_ms'] for one in lines if one['kind'] == 'step'}
    return (ends[case.steps] - ends[STEPS_BEFORE]) / (case.steps - STEPS_BEFORE)


def examine(case, launch, change, data, options):
    """The doctor's findings, as its JSON has them."""
    with tempfile.TemporaryDirectory(dir=contenders.build() / 'bench') as folder:
        report = pathlib.Path(folder) / 'report.json'
        contenders.call(rank_words(case, launch, change, 'doctor', data,
                                   (*options, '--seconds', SECONDS, '--json', report)))
        return json.loads(report.read_text())


def judge(case):
    """One examination of a training with its fault, and the truth: medians of three trainings with
    and without it, before and after."""
    data = pack(case.large)
    with launcher(case) as launch:
        def without():
            with (case.fault(data) if case.right else faults.nothing()) as same:
                return step_ms(case, launch, same, data, case.right)

        def with_it():
            return step_ms(case, launch, change, data, case.wrong)

        sounds = [without()]
        with case.fault(data) as change:
            slows = [with_it()]
            told = examine(case, launch, change, data, case.wrong)
            slows += [with_it(), with_it()]
        sounds += [without(), without()]
        slow, sound = statistics.median(slows), statistics.median(sounds)
    first = told['findings'][0]
    cost = first['cost']['ms'] if first['worth_changing'] else 0
    truth = slow - case.share * sound
    return {'first': first['reason'], 'what': first['what'], 'cost_ms': cost, 'truth_ms': truth,
            'step_ms': slow, 'doctors_step_ms': told['step_ms'],
            'right': first['worth_changing'] and first['reason'] == case.reason
            and re.search(case.what, first['what']) is not None,
            'near': abs(cost - truth) <= max(NEAR_MS, NEAR_SHARE * truth)}


def promise(case, told):
    """The options of the doctor's first change, and a step's time after it by the doctor, for as
    many rows; nothing where it does not promise any."""
    first = told['findings'][0]
    change = re.match(r'--(\S+) (\d+)', first['change'])
    if not change or 'effect' not in first:
        return None
    return (f'--{change[1]}', int(change[2])), told['step_ms'] - first['effect']['ms']


def followed(case):
    """The first change of an examination, and images/s with it: promised, and measured."""
    data = pack(case.large)
    with launcher(case) as launch, case.fault(data) as change:
        told = examine(case, launch, change, data, case.wrong)
        promised = promise(case, told)
        if promised is None:
            raise contenders.Failure('the doctor promises nothing')
        (key, value), promised_ms = promised
        options = dict(zip(case.wrong[::2], case.wrong[1::2])) | {key: value}
        rows = value if key == '--batch' else told['batch']
        words = [word for pair in options.items() for word in pair]
        real_ms = statistics.median(step_ms(case, launch, change, data, words) for _ in range(3))
    rates = 1e3 * told['batch'] / promised_ms, 1e3 * rows / real_ms
    return {'change': f'{key} {value}', 'before': told['images_per_s'], 'promised': rates[0],
            'real': rates[1], 'near': abs(rates[0] / rates[1] - 1) <= NEAR_RATE}


def together():
    """A slow rank and a slow network at once; the truth of each is what a step without it takes
    less than with both."""
    case = Case('', '', (*CLOCK, '--model', 'resnet20', '--batch', 64, '--clock.profile',
                         'pace.json', '--clock.efficiency', 1), ranks=2, nodes=True, steps=60)
    data = pack(False)
    network = CASES['netem'].fault

    def examined(delayed, slow, examine_it):
        fault = network(data) if delayed else faults.nothing()
        with fault, faults.half_speed_clock(1 if slow else None, 100) as change:
            return examine_it(change)

    def measured(delayed, slow):
        return examined(delayed, slow, lambda change: statistics.median(
            step_ms(case, launch, change, data, ()) for _ in range(3)))

    with launcher(case) as launch:
        told = examined(True, True, lambda change: examine(case, launch, change, data, ()))
        both, slow, delayed, neither = (measured(True, True), measured(False, True),
                                        measured(True, False), measured(False, False))
        truths = {'slow rank: rank 1': both - delayed, 'network': both - slow}
        alone = {'slow rank: rank 1': slow - neither, 'network': delayed - neither}
    costs = {what: sum(one['cost']['ms'] for one in told['findings']
                       if one['worth_changing'] and re.search(what, one['what']))
             for what in truths}
    return {'costs_ms': costs, 'truths_ms': truths, 'alone_ms': alone,
            'near': all(abs(costs[what] - truth) <= NEAR_TOGETHER * truth
                        for what, truth in truths.items())}


def accusations(case):
    """What the doctor calls worth changing in a training to which nothing was done."""
    with launcher(case) as launch, faults.nothing() as same:
        told = examine(case, launch, same, pack(case.large), ())
    return {'claims': [f'{one["reason"]}: {one["what"]} ({100 * one["share"]:.1f} %)'
                       for one in told['findings'] if one['worth_changing']]}


def chosen():
    names = [name for name in re.split('[ ,]+', os.environ.get('CASES', '')) if name]
    for name in names:
        if name not in ALL:
            raise contenders.Failure(f'CASES: "{name}" does not exist; choose from '
                                     + ', '.join(ALL))
    return names or ALL


def once(finished, name, round_number, measure_it):
    """The examination, made only when it has not ended before."""
    one = finished.find(case=name, round=round_number) or finished.add(
        case=name, round=round_number, **measure_it())
    contenders.progress(f'{name} {round_number}: ' + json.dumps(one))
    return one


def row(name, ones):
    def figures(key):
        return ' '.join(f'{one[key]:.2f}' for one in ones)

    return dict(zip(COLUMNS, (
        name, f'{sum(one["right"] for one in ones)} of {len(ones)}', figures('cost_ms'),
        figures('truth_ms'), f'{sum(one["near"] for one in ones)} of {len(ones)}')))


def measure(asked, report):
    finished = Finished('doctor', ('case', 'round'))
    finished.note(report)
    names = chosen()
    load = machine.OtherLoad()
    done = {name: [] for name in CASES if name in names}
    advised, pairs, sound = [], [], []
    try:
        for number in range(1, asked['rounds'] + 1):
            for name, ones in done.items():
                ones.append(once(finished, name, number, lambda: judge(CASES[name])))
        for name in ('workers', 'batch'):
            if 'advice' in names:
                advised.append(once(finished, f'advice, {name}', 1, lambda: followed(CASES[name])))
        for number in range(1, asked['rounds'] + 1 if 'together' in names else 1):
            pairs.append(once(finished, 'together', number, together))
        for number in range(HEALTHY if 'healthy' in names else 0):
            kind = list(SOUND)[number % len(SOUND)]
            sound.append(once(finished, f'healthy, {kind}', number,
                              lambda: accusations(SOUND[kind])))
    finally:
        report['other_load'].append(round(load.cores(), 2))
        report['rounds'] += [one for ones in done.values() for one in ones]
        report['rounds'] += advised + pairs + sound
        report['rows'] += [row(name, ones) for name, ones in done.items() if ones]
        summarise(report, [one for ones in done.values() for one in ones], advised, pairs, sound)


def summarise(report, ones, advised, pairs, sound):
    if ones:
        right = sum(one['right'] for one in ones)
        report['notes'].append(
            f'The right reason was first {right} times of {len(ones)} (wanted: 26 of 27); its cost '
            f'was within {NEAR_SHARE:.0%} or {NEAR_MS} ms of the truth '
            f'{sum(one["near"] for one in ones)} times.')
    for one in advised:
        report['notes'].append(
            f'{one["before"]:.1f} images/s, {one["change"]}: {one["promised"]:.1f} promised, '
            f'{one["real"]:.1f} measured (wanted: within {NEAR_RATE:.0%}).')
    for one in pairs:
        both = ', '.join(f'{what} {one["costs_ms"][what]:.1f} ms, truth {truth:.1f}, '
                         f'alone {one["alone_ms"][what]:.1f}'
                         for what, truth in one['truths_ms'].items())
        report['notes'].append(f'A slow rank and a slow network together: {both} (wanted: within '
                               f'{NEAR_TOGETHER:.0%}).')
    if sound:
        claims = [claim for one in sound for claim in one['claims']]
        report['notes'].append(
            f'Of {len(sound)} healthy trainings {sum(not one["claims"] for one in sound)} were '
            'found healthy (wanted: all). ' + '; '.join(claims))
