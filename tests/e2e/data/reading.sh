#!/bin/bash
# The orders in which training reads rows, and the ways it reads files.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
pack_small

train() {  # train RUN OPTION...: 2 ranks, 15 steps an epoch
  run ranks 2 "$LOCKSTEP" train --model resnet20 --data.train small/train --epochs 2 --batch 16 \
    --data.pad 1 --data.flip true --out "$1" "${@:2}"
}
losses() { grep -o '"loss":[^,]*' "$1/metrics.jsonl"; }
same() { [[ $status == 0 && -n $(losses "$1") && $(losses "$1") == "$(losses "$2")" ]]; }

train plain
verdict $status 'two ranks train on rows in random order'
train mapped --data.read mmap --data.readahead 100 --data.workers 2
same plain mapped
verdict $? 'rows that are mapped and read ahead give the same losses'
train staged --data.stage "$PWD/stage"
same plain staged && says 'each node copies .* to .*/stage' &&
  [[ $(ls stage/lockstep-stage-*/*.h5 | wc -l) == 3 ]]
verdict $? 'staged rows give the same losses'
train validated --data.val small/val --data.stage "$PWD/stage-both"
train unstaged --data.val small/val
((status == 0)) && [[ -n $(grep -o '"val_loss":[^,]*' validated/metrics.jsonl) &&
  $(grep -o '"val_loss":[^,]*' validated/metrics.jsonl) == \
    "$(grep -o '"val_loss":[^,]*' unstaged/metrics.jsonl)" &&
    $(ls stage-both/lockstep-stage-*/*.h5 | wc -l) == 4 ]]
verdict $? 'the validation set is also staged, and gives the same losses'
train staged-again --data.stage "$PWD/stage" --data.read mmap
same plain staged-again && says 'each node copies .* \(([0-9.]+ .?B) are there already\)' &&
  ! says '\(0 B are there already\)'
verdict $? 'files that an earlier run staged are used again'

for order in block node; do
  how="--data.shuffle $order --data.block 8"
  [[ $order != block ]] || how+=" --data.window 4"
  train $order $how
  (exit $status) && ! same plain $order
  verdict $? "$order: training uses another order"
  train $order-cut $how --stop-after 20
  [[ $status == 3 ]] && train $order-cut $how --resume auto
  same $order $order-cut && [[ $(tensors $order/checkpoints/step-00000030.h5) == \
    "$(tensors $order-cut/checkpoints/step-00000030.h5)" ]]
  verdict $? "$order: a run that was stopped in the middle of an epoch ends with the same bits"
done

run "$LOCKSTEP" train --model resnet20 --data.train small/train --data.stage /proc/none \
  --out refused
[[ $status == 2 && ! -e refused ]] && says 'data.stage: /proc/none'
verdict $? 'a folder that cannot be created is an error that names it'
run "$LOCKSTEP" train --data.train small/train --data.shuffle blocks --out refused
[[ $status != 0 ]] && says "data.shuffle: 'blocks' is not known; did you mean 'block'. Choose global, block, node"
verdict $? 'an unknown order is an error that names it'
