"""lockstep's benchmark of training steps as a check for ReFrame 4: jobs/BENCHMARK.md says how to
run it, and settings.py has systems to begin with. $LOCKSTEP names the program, by default
build/lockstep.

    reframe -C jobs/reframe/settings.py -c jobs/reframe/lockstep_check.py -n LockstepTrain -r \
      --performance-report -S expect_step_ms=170 -S tolerance=0.1

The sanity stage wants that the launcher ended with status 0, that all ranks were in one run, that
it made all steps, and that the loss is a number. The performance stage compares images/s and the
time of a step with what is expected of them, where something is.
"""

import json
import math
import os

import reframe as rfm
from reframe.core.builtins import parameter, run_after, run_before, sanity_function, variable
from reframe.core.exceptions import SanityError
from reframe.utility.sanity import make_performance_function

IMAGES_OF_90_EPOCHS = 90 * 1281167


def program():
    """$LOCKSTEP, from the folder where reframe was started: it reads this file in another one."""
    given = os.environ.get("LOCKSTEP")
    if given is None:
        return os.path.join(os.path.dirname(__file__), "../../build/lockstep")
    return os.path.join(os.environ.get("PWD", "."), given) if "/" in given else given


@rfm.simple_test
class LockstepTrain(rfm.RunOnlyRegressionTest):
    ranks = parameter([1, 2, 4])
    rows = variable(int, value=16)  # of each rank, in each step
    model = variable(str, value="resnet20")
    precision = variable(str, value="fp32")
    compute = variable(str, value="auto")  # cuda on GPUs, cpu, or clock, which only waits
    steps = variable(int, value=10)
    more = variable(str, value="--threads 1")  # any other options of lockstep bench train
    cpus = variable(int, value=1)  # of each rank
    # What a step takes, the same on any number of ranks; 0: it is only reported. Or give a list by
    # system and partition, `reference`, to a class derived from this.
    expect_step_ms = variable(float, int, value=0)
    tolerance = variable(float, value=0.1)  # as a part of that

    descr = "training steps of lockstep"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    sourcesdir = None
    executable = os.path.normpath(program())
    postrun_cmds = ["echo $? >status"]  # not all schedulers tell ReFrame
    time_limit = "30m"

    @run_after("init")
    def set_work(self):
        self.num_tasks = self.ranks
        self.num_cpus_per_task = self.cpus
        self.executable_opts = [
            "bench train", f"--model {self.model} --precision {self.precision}",
            f"--backend {self.compute} --batch-per-rank {self.rows} --steps {self.steps}",
            self.more, "--json-file figures.json"]

    @run_before("run")
    def set_launcher(self):
        options = {
            # Inside an allocation ReFrame does not tell srun how many; since Slurm 22.05 srun takes
            # --cpus-per-task from no job.
            "srun": ["--mpi=pmix", "--kill-on-bad-exit=1", f"--ntasks={self.ranks}",
                     f"--cpus-per-task={self.cpus}"],
            "mpirun": ["--oversubscribe", "--bind-to none"]}
        self.job.launcher.options += options.get(self.job.launcher.registered_name, [])

    def read(self, name):
        try:
            with open(os.path.join(self.stagedir, name)) as file:
                return file.read()
        except OSError as error:
            raise SanityError(f"there is no {name}: {error}") from error

    @sanity_function
    def all_ranks_finished(self):
        # rank 0 writes its figures at the end, and another may fail after that.
        status = self.read("status").strip()
        if status != "0":
            raise SanityError(f"the launcher ended with status {status}")
        self.figures = figures = json.loads(self.read("figures.json"))
        for name, wanted in (("ranks", self.ranks), ("batch", self.ranks * self.rows),
                             ("steps", self.steps)):
            if figures[name] != wanted:
                raise SanityError(f"{name}: {figures[name]}, not {wanted}")
        if figures["loss"] is None or not math.isfinite(figures["loss"]):
            raise SanityError(f"the loss is {figures['loss']}")
        return True

    @run_before("performance")
    def set_figures(self):
        figures = self.figures
        made = {"images_per_s": (figures["images_per_s"], "images/s"),
                "step_ms": (figures["step_ms"], "ms"),
                "peak_memory_bytes": (figures["peak_memory_bytes"], "B"),
                "epochs_90_s": (IMAGES_OF_90_EPOCHS / figures["images_per_s"], "s")}
        joules = figures["energy_joules"]
        if joules is not None:
            images = figures["steps"] * figures["batch"]
            made["wh_1000_images"] = (joules / 3600 / images * 1000, "Wh")
        self.perf_variables = {name: make_performance_function(lambda it=value: it, unit)
                               for name, (value, unit) in made.items()}
        if self.expect_step_ms:
            speed = 1e3 * figures["batch"] / self.expect_step_ms
            slowest = 1 / (1 + self.tolerance) - 1
            self.reference = {"*": {
                "step_ms": (self.expect_step_ms, None, self.tolerance, "ms"),
                "images_per_s": (speed, slowest, None, "images/s")}}


@rfm.simple_test
class LockstepRehearsal(LockstepTrain):
    """The same on ranks that wait instead of computing: of the launcher, the network and the
    files, before there are GPUs for it."""

    ranks = parameter([64])
    compute = "clock"
    more = "--clock.row-ms 5 --clock.step-ms 40"
