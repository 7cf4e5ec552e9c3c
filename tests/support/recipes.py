#!/usr/bin/env python3
"""recipes.py REPOSITORY FILE: lists the errors in one of jobs/'s recipes. Status 1 if there are any."""
import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

repo, path = Path(sys.argv[1]), Path(sys.argv[2])
wrong = []


def check(holds, what):
    if not holds:
        wrong.append(what)


class Keys:
    """A mapping with these keys and no others; keys with a "_" before their name are required."""

    def __init__(self, **keys):
        self.must = {k.lstrip("_") for k in keys if k.startswith("_")}
        self.keys = {k.lstrip("_"): v for k, v in keys.items()}


class OneOf:
    def __init__(self, *values):
        self.values = values


class MapOf:
    def __init__(self, kind):
        self.kind = kind


def judge(value, kind, where):
    """Checks a value against a kind: a type, a tuple of types, [kind of items], OneOf, MapOf or Keys."""
    if isinstance(kind, list):
        if not isinstance(value, list) or not value:
            return check(False, f"{where}: is not a list with items")
        for i, item in enumerate(value):
            judge(item, kind[0], f"{where}[{i}]")
    elif isinstance(kind, OneOf):
        check(value in kind.values, f"{where}: is {value!r}, not one of {', '.join(map(str, kind.values))}")
    elif isinstance(kind, (Keys, MapOf)):
        if not isinstance(value, dict):
            return check(False, f"{where}: is not a mapping")
        if isinstance(kind, MapOf):
            for key, item in value.items():
                judge(item, kind.kind, f"{where}.{key}")
            return
        for key, item in value.items():
            if key in kind.keys:
                judge(item, kind.keys[key], f"{where}.{key}")
            else:
                check(False, f"{where}.{key}: no such key")
        for key in kind.must - value.keys():
            check(False, f"{where}: lacks {key}")
    else:
        kinds = kind if isinstance(kind, tuple) else (kind,)
        right = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        check(right, f"{where}: is {value!r}, not {' or '.join(k.__name__ for k in kinds)}")


def options_of(command):
    said = subprocess.run([os.environ["LOCKSTEP"], command, "--help", "all"], capture_output=True, text=True).stdout
    return set(re.findall(r"--[a-z0-9.-]+", said))


def check_command(words, where):
    """Checks that lockstep has every option that a call of it uses."""
    for i, word in enumerate(words):
        if os.path.basename(word) != "lockstep" or i + 1 == len(words) or words[i + 1].startswith(("-", '"$')):
            continue
        known = options_of(words[i + 1])
        check(known, f"{where}: lockstep knows no command {words[i + 1]}")
        for option in [w.split("=")[0] for w in words[i + 2 :] if w.startswith("--")]:
            check(option in known, f"{where}: lockstep {words[i + 1]} knows no {option}")


def check_shell(text, where):
    parsed = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True)
    check(parsed.returncode == 0, f"{where}: {parsed.stderr.strip()}")
    for line in text.splitlines():
        check_command(line.split(), where)
    for name in re.findall(r"/usr/local/src/lockstep/(\S+)", text):
        check((repo / name).exists(), f"{where}: {name} is not in the repository")


# The parts of Kubernetes' and the operator's types that a job like this one needs.
RESOURCES = MapOf((str, int))
CONTAINER = Keys(
    _name=str, _image=str, command=[str], args=[str], workingDir=str, imagePullPolicy=OneOf("Always", "IfNotPresent", "Never"),
    env=[Keys(_name=str, value=str, valueFrom=dict)], resources=Keys(limits=RESOURCES, requests=RESOURCES),
    volumeMounts=[Keys(_name=str, _mountPath=str, readOnly=bool, subPath=str)], securityContext=dict,
)  # fmt: skip
VOLUME = Keys(
    _name=str, persistentVolumeClaim=Keys(_claimName=str, readOnly=bool), emptyDir=Keys(medium=OneOf("", "Memory"), sizeLimit=str),
    hostPath=Keys(_path=str, type=str), configMap=dict, secret=dict, nfs=Keys(_server=str, _path=str, readOnly=bool),
)  # fmt: skip
POD = Keys(
    _containers=[CONTAINER], initContainers=[CONTAINER], volumes=[VOLUME], nodeSelector=MapOf(str), tolerations=[dict],
    affinity=dict, hostNetwork=bool, hostIPC=bool, terminationGracePeriodSeconds=int, serviceAccountName=str,
    schedulerName=str, priorityClassName=str, imagePullSecrets=[Keys(_name=str)], securityContext=dict,
)  # fmt: skip
METADATA = Keys(name=str, namespace=str, labels=MapOf(str), annotations=MapOf(str))
REPLICA = Keys(
    replicas=int, restartPolicy=OneOf("Always", "OnFailure", "Never", "ExitCode"), _template=Keys(metadata=METADATA, _spec=POD)
)
MPIJOB = Keys(
    _apiVersion=OneOf("kubeflow.org/v2beta1"), _kind=OneOf("MPIJob"), _metadata=METADATA,
    _spec=Keys(
        slotsPerWorker=int, runLauncherAsWorker=bool, sshAuthMountPath=str,
        launcherCreationPolicy=OneOf("AtStartup", "WaitForWorkersReady"), mpiImplementation=OneOf("OpenMPI", "Intel", "MPICH"),
        runPolicy=Keys(cleanPodPolicy=OneOf("None", "Running", "All"), ttlSecondsAfterFinished=int, activeDeadlineSeconds=int,
                       backoffLimit=int, suspend=bool, managedBy=str, schedulingPolicy=dict),
        _mpiReplicaSpecs=Keys(_Launcher=REPLICA, _Worker=REPLICA),
    ),
)  # fmt: skip


def judge_mpijob(text):
    job = yaml.safe_load(text)
    judge(job, MPIJOB, "")
    if wrong:
        return
    spec, replicas = job["spec"], job["spec"]["mpiReplicaSpecs"]
    slots, workers = spec.get("slotsPerWorker", 1), replicas["Worker"].get("replicas", 1)
    images = set()
    for name, replica in replicas.items():
        pod = replica["template"]["spec"]
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        for volume in pod.get("volumes", []):
            check(len(volume) == 2, f'{name}: volume "{volume["name"]}" has {len(volume) - 1} sources')
        for container in pod["containers"]:
            images.add(container["image"])
            for mount in container.get("volumeMounts", []):
                check(mount["name"] in volumes, f'{name}: mounts no volume "{mount["name"]}"')
            words = container.get("command", []) + container.get("args", [])
            check_command(words, name)
            if "-np" in words:
                ranks = int(words[words.index("-np") + 1])
                check(ranks == slots * workers, f"{name}: {ranks} ranks, but {workers} workers x {slots} slots")
            gpus = container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu")
            check(gpus in (None, slots), f"{name}: {gpus} GPUs (nvidia.com/gpu) for {slots} ranks")
    check(len(images) == 1, f"the containers differ: {', '.join(sorted(images))}")


SPACK = Keys(_spack=Keys(_specs=[str], view=(bool, str, dict), concretizer=Keys(unify=(bool, str), reuse=(bool, str, dict)),
                         packages=dict, config=dict, modules=dict, repos=[str], mirrors=dict, include=[str]))  # fmt: skip


def judge_spack(text):
    environment = yaml.safe_load(text)
    judge(environment, SPACK, "")
    if wrong:
        return
    same_as_setup({spec.split()[0] for spec in environment["spack"]["specs"]}, str)


def same_as_setup(named, name_of):
    """These are the packages of jobs/setup.sh's table for a build, whose names there name_of translates."""
    rows = re.findall(r"^\S+ *\| (\w+) *\|[^|\n]*\| *(\S+)$", (repo / "jobs/setup.sh").read_text(), re.M)
    wanted = {name_of(name) for purpose, name in rows if purpose in ("build", "mpi")} - {""}
    check(len(wanted) > 5, "jobs/setup.sh: cannot parse its table")
    check(not wanted - named, f"lacks what jobs/setup.sh wants: {', '.join(sorted(wanted - named))}")
    check(not named - wanted, f"has what jobs/setup.sh does not want: {', '.join(sorted(named - wanted))}")


EASYBUILD = {"gmake": "make", "nlohmann-json": "nlohmann_json", "c-blosc": "blosc", "gcc": "", "openmpi": ""}


def judge_easybuild(text):
    """The toolchain has gcc and Open MPI. EasyBuild's own recipes are not here."""
    recipe = {"SOURCE_TAR_GZ": "%(name)s-%(version)s.tar.gz"}
    try:
        exec(compile(text, path.name, "exec"), recipe)
    except (SyntaxError, NameError) as why:
        return check(False, str(why))
    for key in ("easyblock", "name", "version", "homepage", "description", "toolchain", "moduleclass"):
        check(key in recipe, f"lacks {key}")
    version = re.search(r'program_version = "lockstep ([^"]+)"', (repo / "src/app/main.cpp").read_text())
    check(version and recipe.get("version") == version[1], f"version: is {recipe.get('version')}, not the program's")
    packages = recipe.get("dependencies", []) + recipe.get("builddependencies", [])
    for name, exact in packages:
        known = list((repo / "jobs/easybuild").glob(f"{name}-*.eb"))
        check(not known or any(one.name.startswith(f"{name}-{exact}-") for one in known),
              f"{name} {exact}: there is {', '.join(one.name for one in known)}")
    spack = lambda name: re.split("[@:~]", name)[0]  # noqa: E731
    same_as_setup({name.lower() for name, _ in packages}, lambda name: EASYBUILD.get(spack(name), spack(name)))


def judge_apptainer(text):
    head, *parts = re.split(r"^%", text, flags=re.M)
    header = dict(re.findall(r"^(\w+): *(.+)$", head, re.M))
    check(header.keys() == {"Bootstrap", "From"}, f"its header has {', '.join(header)}")
    check(header.get("Bootstrap") in ("docker", "oras", "library", "localimage", "debootstrap"), "Bootstrap: no such agent")
    sections = {}
    for part in parts:
        name, _, body = part.partition("\n")
        sections[name.strip()] = body
    known = {"arguments", "setup", "files", "post", "test", "environment", "startscript", "runscript", "labels", "help"}
    for name in sections.keys() - known:
        check(False, f"%{name}: no such section")
    check({"post", "files", "runscript"} <= sections.keys(), "lacks %post, %files or %runscript")
    arguments = dict(re.findall(r"^\s*(\w+)=(\S+)$", sections.get("arguments", ""), re.M))
    for name in re.findall(r"{{ *(\w+) *}}", text):
        check(name in arguments, f"{name} has no default in %arguments")
    for name in ("post", "test", "environment", "runscript"):
        check_shell(sections.get(name, ""), f"%{name}")
    for line in sections.get("files", "").split("\n"):
        if line.strip():
            check((repo / line.split()[0]).exists(), f"%files: {line.split()[0]} is not in the repository")


def judge_containerfile(text):
    known = {"ARG", "FROM", "COPY", "RUN", "ENV", "WORKDIR", "CMD", "ENTRYPOINT", "LABEL", "USER", "EXPOSE", "ADD", "VOLUME"}
    arguments = set()
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
    for line in lines:
        word, _, rest = line.partition(" ")
        check(word in known, f"{word}: no such instruction")
        if word == "ARG":
            arguments.add(rest.split("=")[0])
        for name in re.findall(r"\$\{?(\w+)", rest):
            check(name in arguments, f"{name} is not an ARG")
        if word == "RUN":
            check_shell(rest, word)
        if word == "COPY":
            check((repo / rest.split()[0]).exists(), f"COPY: {rest.split()[0]} is not in the repository")
    check(any(line.startswith("FROM ") for line in lines), "lacks FROM")


judges = {"mpijob.yaml": judge_mpijob, "spack.yaml": judge_spack, "lockstep.def": judge_apptainer, "Containerfile": judge_containerfile}
judges.get(path.name, judge_easybuild if path.suffix == ".eb" else None)(path.read_text())
for what in wrong:
    print(f"{path.name}: {what.lstrip('.')}")
sys.exit(1 if wrong else 0)
