#!/bin/bash
# `make install` puts one program and its recipes below PREFIX and nothing else, and it works from
# any folder.
# waits
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"
# The program under test is installed as it is, however it was built.
installing=(make --no-print-directory -C "$repo" BUILD="$(dirname "$LOCKSTEP")"
  --old-file="$LOCKSTEP")

run "${installing[@]}" PREFIX="$WORK/prefix" install
((status == 0)) && [[ $(find prefix/bin -type f -printf '%P %m') == 'lockstep 755' ]] &&
  cmp prefix/bin/lockstep "$LOCKSTEP" &&
  diff -r prefix/share/lockstep/recipes "$repo/jobs/recipes" &&
  [[ $(cd prefix && echo *) == 'bin share' ]]
verdict $? 'make install puts the program and its recipes below PREFIX'
run "${installing[@]}" PREFIX=/usr DESTDIR="$WORK/stage" install
((status == 0)) && [[ $(cd stage && find . -type f -name lockstep) == ./usr/bin/lockstep ]] &&
  [[ -s stage/usr/share/lockstep/recipes/mlperf-8k.toml ]]
verdict $? 'DESTDIR is put in front of PREFIX'

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
