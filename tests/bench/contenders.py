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
        return ['--model', self.model, '--batch', str(self.batch), '--image', str(self.image),
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


def call(command, environment=None):
    """Runs it to its end; returns its standard output."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, env={**os.environ, **(environment or {})},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except OSError as error:
        raise Failure(f'{command[0]}: {error.strerror}') from error
    if done.returncode != 0:
        raise Failure(f'{" ".join(command)}\nended with status {done.returncode}:\n'
                      + (done.stderr or done.stdout)[-2000:])
    return done.stdout


def lockstep(case, ranks, *more):
    """`lockstep bench train` on ranks that share THREADS threads; `more` options for it."""
    launcher = [*mpirun(), '-np', ranks, '--bind-to', 'none'] if ranks > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / 'result.json'
        call([*launcher, program(), 'bench', 'train', *case.options(),
              '--threads', THREADS // ranks, '--json', result, *more])
        return json.loads(result.read_text())


def conv_floor(case):
    """The convolutions of the same steps, without the rest."""
    text = call([build() / 'bench' / 'conv_floor', *case.options(), '--threads', THREADS])
    return json.loads(text)


def torch(case, limit_s=600):
    text = call([PYTHON, HERE / 'torch_train.py', *case.options(), '--threads', THREADS,
                 '--limit-s', limit_s], TORCH_ENVIRONMENT)
    return json.loads(text)


def torch_missing():
    """Why PyTorch cannot take part, or ''."""
    if not shutil.which(PYTHON):
        return f'{PYTHON} does not exist'
    found = subprocess.run([PYTHON, '-c', 'import torch'], capture_output=True)
    return '' if found.returncode == 0 else 'install python3-torch to include it here'


def progress(text):
    print(text, file=sys.stderr, flush=True)
