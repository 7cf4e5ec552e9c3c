"""The programs that are compared: how each is started, and which figures it returns."""
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = '/usr/bin/python3'  # Debian's: the one that can import python3-torch
THREADS = 2

# By default glibc returns large blocks to the system at once and faults them in again in the next
# step. With these settings PyTorch keeps them, which is its faster configuration.
TORCH_ENVIRONMENT = {
    'OMP_NUM_THREADS': str(THREADS),
    'MALLOC_MMAP_THRESHOLD_': '8589934592',
    'MALLOC_TRIM_THRESHOLD_': '17179869184',
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One training that all contenders run."""
    model: str
    batch: int
    image: int
    precision: str
    steps: int

    def options(self):
        return ['--model', self.model, '--batch', str(self.batch), '--data.size', str(self.image),
                '--precision', self.precision, '--steps', str(self.steps)]


class Failure(Exception):
    """A contender returned no figures; the text says why."""


def build():
    """The build to be measured."""
    return pathlib.Path(os.environ.get('BUILD') or 'build').resolve()


def program():
    return build() / 'lockstep'


def mpirun():
    return os.environ.get('MPIRUN', 'mpirun').split()


def call(command, environment=None, statuses=(0,)):
    """Runs it to its end, which one of these statuses must have; returns its standard output."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, env={**os.environ, **(environment or {})},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except OSError as error:
        raise Failure(f'{command[0]}: {error.strerror}') from error
    if done.returncode not in statuses:
        raise Failure(f'{" ".join(command)}\nended with status {done.returncode}:\n'
                      + (done.stderr or done.stdout)[-2000:])
    return done.stdout


def lockstep(case, ranks, *more, what='train'):
    """`lockstep bench train`, or `inference`, on ranks that share THREADS threads; `more` options
    for it."""
    launcher = [*mpirun(), '-np', ranks, '--bind-to', 'none'] if ranks > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / 'result.json'
        call([*launcher, program(), 'bench', what, *case.options(),
              '--threads', THREADS // ranks, '--json', result, *more])
        return json.loads(result.read_text())


def conv_floor(case):
    """The convolutions of the same steps, without the rest."""
    text = call([build() / 'bench' / 'conv_floor', *case.options(), '--threads', THREADS])
    return json.loads(text)


def torch(case, limit_s=600, python=PYTHON, *more):
    """PyTorch's training steps, by that interpreter's PyTorch."""
    return torch_script('torch_train.py', case, python, '--limit-s', limit_s, *more)


def torch_script(script, case, python, *more):
    """The figures of one of the scripts here, by that interpreter's PyTorch."""
    text = call([python, HERE / script, *case.options(), '--threads', THREADS, *more],
                TORCH_ENVIRONMENT)
    return json.loads(text)


def torch_missing(python=PYTHON):
    """Why that interpreter's PyTorch cannot take part, or ''."""
    if not shutil.which(python):
        return f'{python} does not exist'
    found = subprocess.run([python, '-c', 'import torch'], capture_output=True)
    return '' if found.returncode == 0 else 'install python3-torch to include it here'


def pypi_python(version):
    """The interpreter of a virtual environment with that version of PyPI's PyTorch, made if it does
    not exist yet: some GB, some minutes."""
    folder = build() / 'bench' / f'torch-{version}'
    python = folder / 'bin' / 'python3'
    if torch_missing(python):
        progress(f'bench: installing PyTorch {version} into {folder}')
        call([PYTHON, '-m', 'venv', '--clear', folder])
        call([python, '-m', 'pip', 'install', '--quiet', '--no-cache-dir', f'torch=={version}'])
        if torch_missing(python):
            raise Failure(f'{folder}: its PyTorch cannot be imported')
    return python


def torches(asked):
    """How each PyTorch that takes part is run, by name; and a note for each that does not."""
    runs, notes = {}, []
    why_not = torch_missing()
    if why_not:
        notes.append(f'Debian\'s PyTorch did not take part: {why_not}.')
    else:
        runs['torch'] = torch
    if asked['pypi']:
        python = pypi_python(asked['pypi'])
        runs['pypi'] = lambda case: torch(case, python=python)
        runs['compiled'] = lambda case: torch(case, 600, python, '--compile')
    else:
        notes.append('PyPI\'s PyTorch did not take part: TORCH=2.15.0 includes that version.')
    return runs, notes


def progress(text):
    print(text, file=sys.stderr, flush=True)
