#!/bin/bash
# Networks of any element and task answer over HTTP, with the bits of `predict`.
# ci
# computes
root=$PWD
source "$(dirname "$0")/../../support/e2e.bash"
source "$root/tests/support/h5py.bash"
source "$root/tests/support/clients/serving.bash"
h5py_or_skip "networks of any element and task answer over HTTP"
"$python" "$root/tests/support/clients/delivered.py" write

served=()
declare -A options
while read -r name task clip curve of; do
  [[ $clip == - ]] && clip=
  run "$LOCKSTEP" train --model resnet20 --batch 32 --optim.lr 0.01 --threads 1 --data.train \
    $name.h5 --data.task $task --data.clip "$clip" --data.curve $curve $of --epochs 1 --out $name
  ((status == 0)) || echo "$said"
  served+=("$name=$name")
  options[$name]=$of
done <"$root/tests/support/clients/delivered.sets"

start server --batch 8
for name in "${!options[@]}"; do
  most=$(sed -n "s/.*$name: .*[ ,]\([0-9][0-9]*\) rows give equal bits/\1/p" server.log)
  run "$LOCKSTEP" predict $name $name.h5 --logits --threads 2 --batch "$most" --out of-$name \
    ${options[$name]}
  ((status == 0)) || echo "$said"
done
run "$python" "$root/tests/support/clients/served_tasks.py" "$at"
verdict $status 'numbers of each element get the answers of predict, and others an error'
end server
run timeout 60 "$LOCKSTEP" serve wide --resize 16x16 --port 0
((status == 2)) && says '^error: wide: --resize and --jpeg .* takes 12 channels of uint16, and no'
verdict $? 'a preparation of files is an error for a network that takes none'
