"""The parts of the tests: each one as jobs for the lanes."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from lanes import LANES, Job

# Of `make test`; continuous integration has the rest, too.
USUAL = ["layers", "unit", "mpi", "gpu", "e2e", "cluster"]
ALL = [*USUAL, "emulated", "lint"]
# Rank numbers; more ranks than cores are normal here.
WORLDS = {"check": [2], "test": [1, 2], "ci": [1, 2, 4], "all": [1, 2, 3, 4, 6, 8]}
FUZZ_SECONDS = {"check": 2, "test": 2, "ci": 2, "all": 30}
CATCH = ["-r", "harness"]
# In the first lines of a script.
WORDS = r"# (waits|computes|ci|nightly|clients|seconds|apart|alone)\b:? ?(\w*)"
MPIRUN = [*os.environ.get("MPIRUN", "mpirun --oversubscribe --bind-to none").split(), "-np"]


class Wrong(Exception):
    """The caller's request, or a script's first lines, cannot be parsed."""


@dataclass
class Wish:
    build: Path  # the build's folder
    filter: str  # a tag, or a piece of a name
    tier: str  # check, test, ci or all
    make: bool  # whether test programs are built first, as jobs

    def matches(self, name):
        return self.filter in name

    def parts(self):
        """Of this tier, where none is named."""
        return ALL if self.tier in ("ci", "all") else USUAL

    def wants(self, words):
        """True for a script of this tier."""
        ours = {"ci": {"ci"}, "all": {"ci", "nightly"}}.get(self.tier, set())
        return not {"ci", "nightly"} & set(words) - ours

    def cases(self, without=""):
        """Catch2's filter: a tag as it is, a piece of a name as a pattern, which may hold no comma."""
        if self.filter.startswith("["):
            return [",".join(without + tags for tags in self.filter.split(","))]
        pattern = "*" + self.filter.replace(",", "\\,") + "*" if self.filter else ""
        return [without + pattern] if without + pattern else []


def shell(program, *words):
    return ["bash", "-c", program, "-", *map(str, words)]


def made(wish, job, target, *options):
    """The job; if the wish is to build, after a job that builds its program."""
    if not wish.make:
        return [job]
    job.after = f"build {target}"
    command = ["make", "--no-print-directory", "--keep-going", target, *options]
    return [Job(job.after, command, 1800, lane="builds", may_be_empty=True), job]


def layers(wish):
    checks = shell("tests/check_layers; status=$?; tests/check_sizes && exit $status")
    return [Job("layers", checks, 60)] if wish.matches("layers") else []


def unit(wish):
    """Cases tagged [waits] mostly wait, for deadlines above all, so they run next to the others."""
    program = [wish.build / "unit_tests", *CATCH]
    if wish.tier == "check":
        return made(wish, Job("unit", [*program, *wish.cases("~[slow]~[.]")], 900), "unit-built")
    return [*made(wish, Job("unit", [*program, *wish.cases("~[waits]~[.]")], 900), "unit-built"),
            *made(wish, Job("unit waits", [*program, *wish.cases("[waits]")], 600, lane="waits"),
                  "unit-built")]


def mpi(wish):
    """Ranks that outnumber the cores must not start more threads. Mostly they wait for a deadline."""
    if os.environ.get("MPICXX") == "":
        return [Job("mpi", ["echo", "SKIP the MPI tests: built without MPI"], 10)]
    command = [wish.build / "mpi_tests", *CATCH, *wish.cases()]
    return [job for n in WORLDS[wish.tier]
            for job in made(wish, Job(f"mpi on {n}", [*MPIRUN, n, *command], 600, lane="waits",
                                      apart="mpi", env={"OMP_NUM_THREADS": "1"}), "mpi-built")]


def gpu(wish):
    """Without a GPU, tests that need none still run; the rest skips."""
    program = wish.build / "gpu_tests"
    command = shell('[[ ! -e $1 ]] || exec "${@:2}"', program, *MPIRUN, 1, program, *CATCH,
                    *wish.cases())
    return made(wish, Job("gpu", command, 900, may_be_empty=True), "tests")


def emulated(wish):
    """The GPU's kernels and the backend around them, on the host. Whole networks need a GPU."""
    program = wish.build / "emulated_tests"
    absent = "SKIP the GPU's kernels on the host: CUDA's headers were not found"
    command = shell('if [[ -e $1 ]]; then exec "${@:3}"; else echo "$2"; fi', program, absent,
                    program, *CATCH, *wish.cases("~[whole]~[.]"))
    return made(wish, Job("emulated", command, 900), "tests")


def script(path):
    """A script's first lines name its lane, its time limit and what it must not run next to."""
    words = {}
    for line in path.read_text().split("\n"):
        if not line.startswith("#"):
            break
        if told := re.match(WORDS, line):
            words.setdefault(told[1], told[2])
    lanes = [lane for lane in LANES if lane in words]
    if len(lanes) != 1:
        raise Wrong(f'{path}: its first lines must say "# waits" or "# computes"')
    name, seconds = f"{path.parts[1]}/{path.stem}", int(words.get("seconds", 600))
    job = Job(name, ["bash", str(path)], seconds, lane=lanes[0],
              apart=words.get("apart", ""), alone="alone" in words, script=True)
    return job, words


def scripts(wish, folder, marked=None):
    """A script is named without its sub-folder: "e2e/pack" or "e2e/pack.sh"; FILTER may name both,
    or the whole path. `marked`: only those that have this word in their first lines."""
    found = [script(path) for path in sorted(Path("tests", folder).rglob("*.sh"))
             if wish.matches(str(path)) or wish.matches(f"tests/{folder}/{path.name}")]
    return [job for job, words in found
            if wish.wants(words) and (marked is None or marked in words)]


def e2e(wish):
    return scripts(wish, "e2e")


def clients(wish):
    """The scripts of e2e in which other programs read what lockstep writes (make test-clients)."""
    return scripts(wish, "e2e", "clients")


def cluster(wish):
    """On Slurm clusters, which the scripts start; they skip where that is impossible."""
    return scripts(wish, "cluster")


def fuzz(wish):
    """Short; `make fuzz` runs longer. Only sanitized builds have it."""
    if not wish.matches("fuzz"):
        return []
    return [Job("fuzz", ["tests/fuzz/run"], 60 + 10 * FUZZ_SECONDS[wish.tier], lane="computes",
                env={"BUILD": str(wish.build), "SECONDS_EACH": str(FUZZ_SECONDS[wish.tier])})]


def asan(wish):
    """Unit tests and fuzzing of the sanitized build, which is in a separate folder.

    Large networks, and the checks of each pointer, are for `make asan` and `make test-all` only."""
    short = wish.tier != "all"
    build = wish.build / "asan"
    env = {"LOCKSTEP": str(build / "lockstep"), "LOCKSTEP_TEST_SECONDS": "300"}
    jobs = []
    for name, tags in (("asan unit", "~[waits]~[.]"), ("asan unit waits", "[waits]")):
        cases = wish.cases(tags + ("~[large]" if short else ""))
        job = Job(name, [build / "unit_tests", *CATCH, *cases], 900, lane="waits", env=env)
        jobs += made(wish, job, "asan-built", "PIECE=folder", *(["QUICK=1"] if short else []))
    for job in fuzz(Wish(build, wish.filter, wish.tier, False)):
        job.name, job.after = "asan fuzz", jobs[-1].after
        jobs.append(job)
    return jobs


def tsan(wish):
    """Threads, under the thread sanitizer: without OpenMP, because its barriers look like races."""
    tags = Wish(wish.build, wish.filter or os.environ.get("TSAN_TAGS", ""), wish.tier, wish.make)
    command = [wish.build / "tsan" / "unit_tests", *CATCH, *tags.cases()]
    env = {"LOCKSTEP_TEST_SECONDS": "300"}
    return made(wish, Job("tsan unit", command, 900, lane="waits", env=env), "tsan-built",
                "PIECE=folder")


def lint(wish):
    """Code that runs only on GPUs is at least checked by clang-tidy; kernels as host code.

    The analyzer takes longer than all other checks together: `make lint` and `make test-all` run
    it."""
    if not wish.matches("lint"):
        return []
    quick = "--checks=-bugprone-suspicious-include"
    quick += "" if wish.tier == "all" else ",-clang-analyzer-*"
    program = """
        if [[ ! -e $1/gpu_tests ]]; then
          echo 'SKIP clang-tidy on src/ports/cuda: built without CUDA'
        elif ! command -v "${CLANG_TIDY:-clang-tidy-16}" >/dev/null; then
          echo 'SKIP clang-tidy on src/ports/cuda: clang-tidy-16 is not here (jobs/setup.sh lint)'
        else
          make --no-print-directory --keep-going --output-sync linted-gpu \\
            BUILD="$1" TIDY_FLAGS="$2" &&
            echo 'PASS clang-tidy finds nothing in src/ports/cuda'
        fi"""
    build = wish.build
    if build.is_relative_to(Path.cwd()):
        build = build.relative_to(Path.cwd())
    return made(wish, Job("lint", shell(program, build, quick), 900, lane="builds"), "tests")


def format(wish):
    return [Job("format", shell('make --no-print-directory check-format && '
                                'echo "PASS the sources keep the format"'), 120)]


def jobs_of(names, wish):
    """The jobs of these parts, each build once. Of scripts, and of jobs that wait, those with the
    longest limits come first; the others come before the scripts, in order."""
    every = (layers, unit, mpi, gpu, emulated, e2e, clients, cluster, lint, fuzz, asan, tsan,
             format)
    functions = {one.__name__: one for one in every}
    jobs = {}
    for name in names:
        if name not in functions:
            raise Wrong(f'no part is called "{name}": {", ".join(functions)}')
        for job in functions[name](wish):
            job.command = [str(word) for word in job.command]
            jobs.setdefault(job.name, job)
    return sorted(jobs.values(), key=lambda job: -job.seconds if job.script or job.lane == "waits"
                  else -(10**6))
