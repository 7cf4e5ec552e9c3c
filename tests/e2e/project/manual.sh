#!/bin/bash
# What `make install` puts there for people: the manual page and bash's completion, both of which
# say what the installed program says.
# waits
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"
run make --no-print-directory -C "$repo" BUILD="$(dirname "$LOCKSTEP")" --old-file="$LOCKSTEP" \
  PREFIX="$WORK/prefix" install
page=$WORK/prefix/share/man/man1/lockstep.1
((status == 0)) && [[ -s $page && $(stat -c %a "$page") == 644 ]]
verdict $? 'make install makes a manual page'

commands() { "$LOCKSTEP" "$@" --help | sed -n '/^Commands:$/,/^$/s/^  \([a-z]*\)  .*/\1/p'; }
cat >all_of_it.py <<'END2'
import os, re, subprocess, sys
shown = " ".join(sys.stdin.read().split())
seen = 0
def look(*words):
    global seen
    help = subprocess.run([os.environ["LOCKSTEP"], *words, "--help", *["all"][: len(words)]],
                          capture_output=True, text=True, check=True).stdout
    for line in help.splitlines():
        line = " ".join(line.split()) if line.startswith("  ") else ""
        if line not in shown:
            print("not in the page:", *words, line)
        seen += line != ""
    below = help.partition("\nCommands:\n")[2].partition("\n\n")[0]
    for command in re.findall(r"^  ([a-z]+)  ", below, re.M):
        if not re.search(rf" lockstep {' '.join([*words, command])} ", shown):
            print("no part of the page:", *words, command)
        look(*words, command)
look()
print(seen, "lines")
END2
law='the manual page has no fault, and each command, option and key, as help describes it'
if command -v man >/dev/null; then
  faults=$(man --warnings -E ascii -l "$page" 2>&1 >page.txt) && MANWIDTH=30000 \
    man -E ascii -l "$page" >page.txt || faults+='man failed'
  if command -v mandoc >/dev/null; then faults+=$(mandoc -T lint "$page" 2>&1); fi
  run python3 all_of_it.py <page.txt
  said=$faults$said
  ((status == 0)) && [[ $said =~ ^[0-9]{4}\ lines$ ]]
  verdict $? "$law"
else
  echo "SKIP $law: there is no man (Debian's man-db)"
fi

# Processes that look as another rank than 0, which prints no help.
others=('PMI_RANK=1 PMI_SIZE=2' 'LOCKSTEP_RANK=1 LOCKSTEP_WORLD=2 LOCKSTEP_MEET=there:1'
  'JOB_COMPLETION_INDEX=1 LOCKSTEP_WORLD=2')
run env ${others[0]} "$LOCKSTEP" --help
[[ ! $said ]] || missed+="rank 1 prints help"
for variables in "${others[@]}"; do
  run env $variables "$repo/jobs/install/man_page.sh" "$LOCKSTEP"
  ((status == 0)) && [[ $said == "$(<"$page")" ]] || missed+="another page: $variables"$'\n'
done
printf '#!/bin/sh\n' >silent && printf '#!/bin/sh\nexit 1\n' >failing && chmod +x silent failing
for program in silent failing; do
  run "$repo/jobs/install/man_page.sh" "$WORK/$program"
  ((status != 0)) && [[ ! $said ]] || missed+="a page of $program: $said"
done
true
verdict $? 'the page does not depend on a rank of the shell, and a program without help has none'

mkdir -p typed/runs 'typed/my data' && touch typed/train.toml
cat >typed.sh <<'END2'
PATH=$WORK/prefix/bin:$PATH
source "$WORK/prefix/share/bash-completion/completions/lockstep"
cd "$WORK/typed"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
[[ $(complete -p lockstep) == 'complete -F _lockstep lockstep' ]] || exit
_lockstep "$1" "${@: -1}" "${@: -2:1}" || exit
printf '%s\n' "${COMPREPLY[@]}"
END2
# typed WORDS: sets `said` to what may follow, with commas.
typed() {
  run bash typed.sh "$@"
  said=$(sort <<<"$said" | paste -sd ,)
}
offers() { [[ $said == "$1" ]] || { missed+="offered: $said, and not $1"$'\n'; }; }

typed lockstep ''
offers "$(commands | sort | paste -sd ,)"
typed lockstep help sca
offers scaling
PMI_RANK=1 PMI_SIZE=2 typed lockstep scaling pr
offers predict
typed lockstep train tr
offers train.toml
true
verdict $? 'bash completes commands, and those below them'
typed lockstep train --data.tr
offers --data.train
typed lockstep bench train --warm
offers "$("$LOCKSTEP" bench train --help all | sed -nE 's/^  (--warm[^ ]+) .*/\1/p' | sort | paste -sd ,)"
typed lockstep topo --data
offers ''
typed ./nosuch train --data.tr
offers ''
true
verdict $? 'bash completes the options and keys of a command, and no others'
typed lockstep train --precision ''
offers bf16,fp16,fp32,tf32
typed lockstep train --precision = b
offers bf16
typed lockstep train --model resnet3
offers resnet32,resnet34
typed lockstep train --batch ''
offers auto
typed lockstep train --epochs ''
offers ''
typed lockstep train --help o
offers optim
true
verdict $? 'bash completes choices, also after =, and sections of help'
typed lockstep train --config ''
offers 'my data,runs,train.toml'
typed lockstep train --config = t
offers train.toml
typed lockstep pack --root ''
offers 'my data,runs'
typed lockstep info my
offers 'my data'
true
verdict $? 'bash completes names of files and folders'

# A terminal, and the key Tab.
law='at a terminal, Tab completes a key, and a name with a blank, quoted'
cat >keys.py <<'END2'
import os, pty, select, sys, time
child, terminal = pty.fork()
if child == 0:
    os.chdir(os.environ["WORK"] + "/typed")
    os.environ.update(PS1="$ ", TERM="dumb", INPUTRC="/dev/null")
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
shown = b""
def until(text):
    global shown
    while text not in shown:
        if not select.select([terminal], [], [], 60)[0]:
            sys.exit(f"no {text} in 60 s after {shown}")
        shown += os.read(terminal, 4096)
    shown = shown[shown.index(text) + len(text):]
def key(text):
    os.write(terminal, text.encode())
prefix = os.environ["WORK"] + "/prefix"
key(f"PATH={prefix}/bin:$PATH; . {prefix}/share/bash-completion/completions/lockstep; echo re''ady\n")
until(b"ready")
key("echo; lockstep train --data.tr\t")
until(b"--data.train ")
key("my\t")
until(b"my\\ data/")
key("\x03exit\n")
print("completed")
END2
run python3 keys.py
((status == 0)) && says '^completed'
verdict $? "$law"
