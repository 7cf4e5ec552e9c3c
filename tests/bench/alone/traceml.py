"""TraceML on the doctor's nine faults, in PyTorch: what does it name, and is that the fault?

Each fault alone, put in by faults.py into a training by torch_traced.py of SECONDS under `traceml
run`, as its documentation says; and healthy trainings. What it says is read from its own
final_summary.json: the verdict (`primary_diagnosis`), and the findings of its sections. It names a
fault if a pattern, which was written before any run, finds it in its words: status, reason and
advice. A list of causes counts if the fault is one of them. CASES='reads,quota' selects; what ended
is a line of $BUILD/bench/traceml.jsonl and is not made again. It needs root and some GB."""
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable

import contenders
import doctor
import faults
import machine
import sinks
from finished import Finished

PACKAGES = ['traceml-ai==0.5.0', 'torch==2.15.0', 'torchvision==0.29.2', 'h5py==3.16.0',
            'numpy==2.4.6', 'pillow==13.0.0']
TITLE = f'{PACKAGES[0]} on the faults of lockstep doctor, in {PACKAGES[1]}'
COLUMNS = ['case', 'step without it, ms', 'with it, ms', 'its verdict', 'names the fault',
           'named by a finding elsewhere']
SCRIPT = contenders.HERE / 'torch_traced.py'
SECONDS, SOUND_SECONDS = 60, 10
# GNU's OpenMP else spins for cores that others use, and a step takes ten times as long.
PATIENT = {'OMP_WAIT_POLICY': 'passive'}
LIMIT_S = 200  # of one training: TraceML waits for late telemetry
RESNET = ('--batch', 64, '--threads', 1)
SECTIONS = ('step_time', 'system', 'process', 'step_memory')


@dataclasses.dataclass(frozen=True)
class Case:
    """A training, what is wrong with it, and the words that name it."""
    named: str
    options: tuple
    ranks: int = 1
    large: bool = False  # its images are JPEGs that take time to decode
    fault: Callable = lambda data: faults.nothing()  # by how a rank is started
    wrong: tuple = ()  # options that are the fault
    right: tuple = ()  # what they are instead: then nothing else differs
    share: float = 1  # of a step without the fault that has as many rows
    nodes: bool = False


CASES = {
    'reads': Case('^INPUT-BOUND', ('--row-ms', 2, '--batch', 16),
                  fault=lambda data: faults.slow_reads(data, 10000)),
    # A row takes longer than Pillow needs for a JPEG, so that only the effects are waited for.
    'augmentation': Case('^INPUT-BOUND', ('--row-ms', 2, '--batch', 32, '--size', 160), large=True,
                         wrong=('--effects',)),
    'workers': Case('^INPUT-BOUND.*[Ww]orkers', ('--row-ms', 1.2, '--batch', 16),
                    fault=lambda data: faults.slow_reads(data, 2000),
                    wrong=('--workers', 1), right=('--workers', 2)),
    'netem': Case('network|communicat|collective|all-?reduce|synchroni',
                  ('--row-ms', 2, '--batch', 32), ranks=2, nodes=True,
                  fault=lambda data: faults.slow_network('3ms')),
    'half-speed': Case(r'STRAGGLER.*(on|around) r1\.$', RESNET, ranks=2,
                       fault=lambda data: faults.half_speed(1)),
    'quota': Case('[Qq]uota|[Tt]hrottl|cgroup|CPU (limit|stall)', (*RESNET[:2], '--threads', 2),
                  fault=lambda data: faults.quota(1)),
    'one-core': Case('contention|[Oo]versubscri|affinity|binding|same (core|processor)', RESNET,
                     ranks=2, fault=lambda data: faults.one_core()),
    'batch': Case('batch size|(small|larger) batch|parallel work|overhead', ('--threads', 2),
                  wrong=('--batch', 2), right=('--batch', 4), share=0.5),
    'foreign': Case('contention|other (program|process)|[Nn]oisy|interference', RESNET, ranks=2,
                    fault=lambda data: faults.foreign_process()),
}
HEALTHY = {
    'healthy, one rank': Case('', ('--batch', 128, '--threads', 2)),
    'healthy, two ranks': Case('', ('--batch', 128, '--threads', 1), ranks=2),
    'healthy, waiting': Case('', ('--row-ms', 3, '--batch', 16)),
}


def environment():
    """The folder with the programs of a virtual environment, made if it is not there."""
    folder = contenders.build() / 'bench' / 'traceml' / 'bin'
    python = folder / 'python3'
    here = python.exists() and subprocess.run(
        [python, '-c', 'import h5py, torchvision, traceml_ai'], capture_output=True,
        check=False).returncode == 0
    if not here:
        contenders.progress(f'bench: installing {", ".join(PACKAGES)} into {folder.parent}')
        contenders.call([contenders.PYTHON, '-m', 'venv', '--clear', folder.parent])
        contenders.call([python, '-m', 'pip', 'install', '--quiet', *PACKAGES])
    return folder


def launcher(case):
    """Words before `traceml`, which starts the ranks of its node, as a context."""
    return faults.two_nodes() if case.nodes else contextlib.nullcontext([])


def rank_python(folder, programs, change):
    """A program that torchrun starts in place of Python: the command of a rank, with the fault in
    it. duty.py reads the rank's number where Open MPI writes it."""
    words = change(['env', '-u', 'OMPI_COMM_WORLD_RANK', programs / 'python3'])
    script = folder / 'rank'
    script.write_text('#!/bin/sh\nexport OMPI_COMM_WORLD_RANK=$RANK\nexec '
                      + shlex.join(map(str, words)) + ' "$@"\n')
    script.chmod(0o700)
    return script


def traceml_words(case, folder, programs):
    """`traceml run` and what it needs to know of the ranks."""
    words = ['--run-name', 'run', '--logs-dir', folder / 'logs', '--aggregator-port',
             sinks.free_port(), '--master-port', sinks.free_port()]
    if not case.nodes:
        return [programs / 'traceml', 'run', SCRIPT, *words, '--nproc-per-node', case.ranks]
    first = f'c{faults.CLUSTER["MINI_SLURM_ID"]}node1'
    return ['sh', '-c', 'exec "$0" run --node-rank="$SLURM_NODEID" "$@"', programs / 'traceml',
            SCRIPT, *words, '--nnodes', case.ranks, '--nproc-per-node', 1, '--master-addr', first]


def training(case, launch, change, options, seconds, *more):
    """The figures of a training, and TraceML's summary of it unless `more` disables that."""
    programs = environment()
    data = doctor.pack(case.large)
    with tempfile.TemporaryDirectory(dir=contenders.build() / 'bench') as name:
        folder = pathlib.Path(name)
        python = rank_python(folder, programs, change)
        contenders.call(
            ['timeout', '-k', 10, LIMIT_S, *launch, *traceml_words(case, folder, programs), *more,
             '--args', '--data', data, '--figures', folder / 'figures.json', '--seconds', seconds,
             *case.options, *options],
            {**PATIENT, 'PYTHON_EXEC': str(python)})
        said = folder / 'logs' / 'run' / 'final_summary.json'
        return (json.loads((folder / 'figures.json').read_text()),
                json.loads(said.read_text()) if said.exists() else None)


def words_of(finding):
    return f'{finding["status"]}: {finding["summary"]} {finding["action"]}'


def told(summary):
    """What TraceML says: its verdict, and the findings of its sections by kind."""
    verdict = summary['primary_diagnosis']
    return {'verdict': words_of(verdict), 'kind': verdict['kind'], 'severity': verdict['severity'],
            'findings': {one['kind']: words_of(one) for section in SECTIONS
                         for one in summary[section].get('issues', [])}}


def judge(case):
    """A training without the fault and without TraceML, then one with both."""
    data = doctor.pack(case.large)
    with launcher(case) as launch:
        with (case.fault(data) if case.right else faults.nothing()) as same:
            sound, _ = training(case, launch, same, case.right, SOUND_SECONDS, '--disable-traceml')
        with case.fault(data) as change:
            slow, summary = training(case, launch, change, case.wrong, SECONDS)
    return {'sound_ms': case.share * sound['step_ms'], 'step_ms': slow['step_ms'],
            'steps': slow['steps'], **told(summary)}


def accusations(case):
    """What TraceML says of a training to which nothing was done."""
    with launcher(case) as launch, faults.nothing() as same:
        figures, summary = training(case, launch, same, (), SECONDS)
    return {'step_ms': figures['step_ms'], 'steps': figures['steps'], **told(summary)}


def chosen():
    every = (*HEALTHY, *CASES)
    names = [name for name in re.split(',', os.environ.get('CASES', '')) if name]
    for name in names:
        if name not in (*CASES, 'healthy'):
            raise contenders.Failure(f'CASES: "{name}" does not exist; choose from '
                                     + ', '.join((*CASES, 'healthy')))
    return [name for name in every if not names or name in names
            or (name in HEALTHY and 'healthy' in names)]


def accuses(one):
    """By its own grades: what it calls compute-bound is for information."""
    return one['severity'] != 'info'


def elsewhere(case, one, sound):
    """Kinds of findings that name the fault and that no healthy training of as many ranks has."""
    usual = {kind for name, healthy in sound.items() if HEALTHY[name].ranks == case.ranks
             for kind in healthy['findings']}
    return [kind for kind, words in one['findings'].items()
            if kind not in usual and kind != one['kind'] and re.search(case.named, words)]


def row(name, one, sound):
    cells = {'case': name, 'with it, ms': f'{one["step_ms"]:.1f}',
             'its verdict': f'{one["verdict"]} ({one["severity"]})'}
    if name in HEALTHY:
        return {**cells, 'names the fault': 'accuses' if accuses(one) else 'accuses nothing'}
    more = elsewhere(CASES[name], one, sound)
    return {**cells, 'step without it, ms': f'{one["sound_ms"]:.1f}',
            'names the fault': 'yes' if re.search(CASES[name].named, one['verdict']) else 'no',
            'named by a finding elsewhere': ', '.join(more) or 'no'}


def measure(asked, report):
    """One round: its verdict comes from the steps of a whole minute."""
    environment()
    finished = Finished('traceml', ('case',))
    finished.note(report)
    load = machine.OtherLoad()
    done = {}
    try:
        for name in chosen():
            done[name] = finished.find(case=name) or finished.add(case=name, **(
                accusations(HEALTHY[name]) if name in HEALTHY else judge(CASES[name])))
            contenders.progress(f'{name}: ' + json.dumps(done[name]))
    finally:
        report['other_load'].append(round(load.cores(), 2))
        report['rounds'] += done.values()
        sound = {name: one for name, one in done.items() if name in HEALTHY}
        report['rows'] += [row(name, one, sound) for name, one in done.items()]
        summarise(report, {name: one for name, one in done.items() if name in CASES}, sound)


def summarise(report, ones, sound):
    named = [name for name, one in ones.items() if re.search(CASES[name].named, one['verdict'])]
    more = [name for name, one in ones.items() if name not in named
            and elsewhere(CASES[name], one, sound)]
    report['notes'].append(
        f'Its verdict names {len(named)} of {len(ones)} faults; findings of its sections that no '
        f'healthy training has name {len(more)} more. Of {len(sound)} healthy trainings its '
        f'verdict accuses {sum(map(accuses, sound.values()))}.')
