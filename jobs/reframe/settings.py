"""Systems for lockstep_check.py; a centre has its file already.

    --system=here        ranks by mpirun, on this machine
    --system=allocation  ranks by srun, inside an allocation of Slurm
    --system=slurm       each check as a job, whose end squeue tells ("slurm" asks sacct)
"""


def system(name, scheduler, launcher):
    return {"name": name, "hostnames": ["^$"], "partitions": [
        {"name": "default", "scheduler": scheduler, "launcher": launcher, "environs": ["builtin"],
         "max_jobs": 1}]}  # two at once would measure each other


site_configuration = {"systems": [system("here", "local", "mpirun") | {"hostnames": [".*"]},
                                  system("allocation", "local", "srun"),
                                  system("slurm", "squeue", "srun")]}
