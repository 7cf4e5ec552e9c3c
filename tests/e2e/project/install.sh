#!/bin/bash
# `make install` puts one program, its recipes, manual page, completion and modules below PREFIX and
# nothing else, and it works from any folder. What these say and do: manual.sh, modules.sh.
# waits
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"
# The program under test is installed as it is, however it was built.
installing=(make --no-print-directory -C "$repo" BUILD="$(dirname "$LOCKSTEP")"
  --old-file="$LOCKSTEP")

version=$("$LOCKSTEP" --version | cut -d ' ' -f 2)
# all FOLDER: the files there, but the recipes, are those that make install puts there.
all() {
  diff <(find "$1" -type f ! -path '*/share/lockstep/recipes/*.toml' -printf '%P\n' | sort) \
    <(printf '%s\n' bin/lockstep share/man/man1/lockstep.1 \
      share/bash-completion/completions/lockstep \
      share/modulefiles/lockstep/"$version"{,.lua} | sort)
}

run "${installing[@]}" PREFIX="$WORK/prefix" install
((status == 0)) && all prefix && [[ $(stat -c %a prefix/bin/lockstep) == 755 ]] &&
  cmp prefix/bin/lockstep "$LOCKSTEP" &&
  diff -r prefix/share/lockstep/recipes "$repo/jobs/recipes"
verdict $? 'make install puts the program and what belongs to it below PREFIX, and no more'
run "${installing[@]}" PREFIX=/usr DESTDIR="$WORK/stage" install
((status == 0)) && all stage/usr && [[ $(echo stage/*) == stage/usr ]] &&
  [[ -s stage/usr/share/lockstep/recipes/mlperf-8k.toml ]]
verdict $? 'DESTDIR is put in front of PREFIX'

# A file that the kernel does not run stands for a program of another processor.
mkdir foreign && printf '\177ELF' >foreign/lockstep && chmod +x foreign/lockstep
run make --no-print-directory -C "$repo" BUILD="$WORK/foreign" --old-file="$WORK/foreign/lockstep" \
  PREFIX="$WORK/stage/usr" install
((status == 0)) && says 'foreign/lockstep does not start here: there will be no manual page' &&
  [[ ! -e stage/usr/share/man/man1/lockstep.1 ]] && cmp stage/usr/bin/lockstep foreign/lockstep
verdict $? 'a program for another processor is installed without a page, and without an older one'

mkdir elsewhere
cd elsewhere
PATH=$WORK/prefix/bin:$PATH
LOCKSTEP=lockstep
run lockstep --version
((status == 0)) && says '^lockstep [0-9]+\.[0-9]+ \(build [0-9a-f]{16}, (x86-64|neon)\)$'
verdict $? 'the installed program is found on PATH and says its version and build'
run lockstep topo
((status == 0)) && says ' PASS$'
verdict $? 'the installed program looks at the machine'
run lockstep train --recipe no-such
((status == 2)) && says 'mlperf-8k'
verdict $? 'the installed program finds its recipes'
pack_small
run ranks 2 lockstep train --data.train small/train --data.val small/val --batch 50 --threads 1 \
  --epochs 1 --out run
((status == 0)) && says '^done: 1 epoch' && run lockstep info run && says 'finished'
verdict $? 'the installed program packs, trains on 2 ranks and describes the run'

cd ..
run "${installing[@]}" PREFIX="$WORK/prefix" uninstall
((status == 0)) && [[ -z $(find prefix -type f) ]]
verdict $? 'make uninstall removes what make install put there'
