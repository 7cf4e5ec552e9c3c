#!/bin/bash
# The help of all commands: one notation, one name for one thing, and not more than was asked for.
# computes
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"

cat >laws.py <<'END'
import os, re, subprocess, sys

def help_of(*words):
    done = subprocess.run([os.environ["LOCKSTEP"], *words], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout

def commands(*words):
    text = help_of(*words, "--help").partition("\nCommands:\n")[2].partition("\n\n")[0]
    return [line.split()[0] for line in text.splitlines() if line.startswith("  ")]

paths = [[one] for one in commands()]
paths += [[one, sub] for [one] in list(paths) for sub in commands(one)]
assert len(paths) > 25, paths
KINDS = {"TEXT", "FILE", "FOLDER", "NAME", "SIZE", "NUMBER", "N,N,...", "REGEX"}
line_of = re.compile(r"  (?:(-\w)(?:, |(?= )))?(--[a-z0-9.-]+)?(?: (\S+))?  +(.*)")
faults, names = [], {}
for path in paths:
    for line in help_of(*path, "--help", "all").splitlines():
        if not line.startswith("  -"):
            continue
        letter, name, kind, text = line_of.fullmatch(line).groups()
        facts = re.search(r"(.*) \[((?:[^\[\]]|\[[^\]]*\])*)\]$", text)
        where = " ".join(path) + " " + (name or letter)
        names.setdefault(name, set()).add(kind in (None, "true|false"))
        if re.search(r"\b0:|\(0\b|0 or auto|default:|\(default|\(empty|empty:|otherwise as", text):
            faults.append(f"{where}: another notation: {text}")
        if kind is None:
            continue
        if kind not in KINDS and "|" not in kind:
            faults.append(f"{where}: is {kind}")
        if not facts or not re.search(r"(^|; )(required$|default \S)", facts[2]):
            faults.append(f"{where}: has no default, and does not say so: {text}")
        elif kind == "NUMBER" and not re.match(
            r"((auto|0), or )?(at least [-\de.]+|[-\de.]+ to [-\w.]+); ", facts[2]
        ):
            faults.append(f"{where}: has no range: {text}")
for name, kinds in names.items():
    if len(kinds) > 1:
        faults.append(f"{name} has a value here, and none there")
    if name in ("--average", "--image", "--share-gpu"):
        faults.append(f"{name} is an older name")
print(f"{len(names)} names", *faults, sep="\n")
END
run python3 laws.py
((status == 0)) && [[ $said =~ ^[0-9]+\ names$ ]] && ((${said% names} > 150))
verdict $? 'each option of each command has a type or choices, a range, a default, and one name'

lines() { grep -c '^  --' <<<"$said"; }
run "$LOCKSTEP" train --help
usual=$(lines)
((status == 0)) && ((usual > 20 && usual < 33)) && says '^  --data.train ' &&
  says '^  --optim.lr ' && ! says '^  --data.slots ' &&
  says 'more keys: --help all, or --help SECTION, of run, ' &&
  run "$LOCKSTEP" train --help all && ((status == 0 && $(lines) > 120)) &&
  says '^  --data.slots ' && run "$LOCKSTEP" help train data && ((status == 0)) &&
  says '^  --data.slots ' && ! says '^  --optim.lr ' && ! says 'Usage' &&
  run "$LOCKSTEP" train --help --data.size && ((status == 0 && $(lines) == 1)) &&
  says '^  --data.size NUMBER .*\[auto, or 1 to 65535; default auto\]$' &&
  run "$LOCKSTEP" doctor --help && says '^  --seconds NUMBER ' && ! says '^  --data.train '
verdict $? "a training's help begins with what is usual, and shows a section, a key, or all"

run "$LOCKSTEP" train --help nosuch
((status == 2)) && says 'no section or option of this name .the sections are run, .* all' &&
  run "$LOCKSTEP" help nosuch && ((status == 2)) && says "no command 'nosuch'"
verdict $? 'a help that does not exist is an error that names those that do'

cat >narrow.py <<'END'
import fcntl, os, pty, struct, sys, termios
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    os.execv(os.environ["LOCKSTEP"], ["lockstep", *sys.argv[1:]])
text = b""
try:
    while part := os.read(terminal, 1 << 16):
        text += part
except OSError:
    pass
print(max(len(line.rstrip()) for line in text.decode().splitlines()), len(text) > 2000)
END
run python3 narrow.py train --help data
[[ $said == [56]?' True' ]] && ((${said% *} <= 60))
verdict $? "a help is as wide as the terminal"

# What scripts have from before.
printf 'threads = "auto"\nbatch = "auto"\n[data]\nworkers = "auto"\nsize = "auto"\n' >auto.toml
"$LOCKSTEP" pack --from shapes --out data --train-rows 20 --val-rows 8 --resize 8 >pack.log
old=(--data.train data --model resnet20 --epochs 1 --batch 10)
run "$LOCKSTEP" train "${old[@]}" --config auto.toml --threads 0 --data.size 0 --share-gpu=false \
  --preflight=false --out runs/a
((status == 0)) && run "$LOCKSTEP" eval runs/a --threads 0 --deadline-s 9 --json a.json &&
  ((status == 0)) && run "$LOCKSTEP" eval runs/a --threads auto --comm.deadline-s 9 \
  --json-file b.json && ((status == 0)) && cmp <(grep -v seconds a.json) <(grep -v seconds b.json)
verdict $? 'auto is taken where 0 means it, on a command line and in TOML, and older names are, too'
