#!/bin/bash
# On a system whose pages have 64 KiB, all that asks for pages, or maps files and memory, does the
# same. A preloaded library is that system (support/preloads/pages_64k.c).
# ci
# computes
source "$(dirname "$0")/../../support/e2e.bash"

units=$(realpath "$(dirname "$LOCKSTEP")")/unit_tests
run "${CXX:-g++}" -x c -O1 -shared -fPIC -o pages.so "$support/preloads/pages_64k.c"
paged=(env LD_PRELOAD="$PWD/pages.so" PAGES_64K=log)
tags='[files],[io],[copy],[memory],[shard],[shared_memory],[two_level],[work_folder],[writer]'
cd "$support/../.."
run "${paged[@]}" "$units" "$tags"
((status == 0)) && says 'All tests passed' && ! says 'between pages'
verdict $? 'the tests of files and memory pass with pages of 64 KiB'
cd "$WORK"

pack_small
mv small usual
run "${paged[@]}" "$LOCKSTEP" pack --from shapes --out small --train-rows 250 --val-rows 53 \
  --resize 8 --rows-per-shard 100
((status == 0)) && ! says 'between pages' && diff -r usual/train small/train &&
  diff -r usual/val small/val
verdict $? 'packing gives the same files'

train() {  # train RUN COMMAND...: rows mapped and staged, sums in memory that the ranks share
  run ranks 2 "${@:2}" train --model resnet20 --data.train small/train --batch 16 --stop-after 6 \
    --epochs 1 --data.read mmap --data.stage "$PWD/$1-stage" --comm.all-reduce two-level --out "$1"
}
weights() { tensors "$1/checkpoints/step-00000006.h5"; }
train small-pages "$LOCKSTEP"
((status == 3))
verdict $? 'two ranks train on mapped and staged rows'
train large-pages "${paged[@]}" "$LOCKSTEP"
((status == 3)) && ! says 'between pages' &&
  [[ $(weights small-pages) == "$(weights large-pages)" ]]
verdict $? 'so they do with pages of 64 KiB, to the same bits'
