#!/bin/bash
# `eval` gives the same counts for any number of ranks, and what training measured itself; `info`
# describes everything that lockstep writes.
set -euo pipefail
cd "$WORK"
"$LOCKSTEP" pack --from shapes --out shapes --train-rows 120 --val-rows 70 >pack.log 2>&1
"$LOCKSTEP" train --data.train shapes/train --data.val shapes/val --epochs 1 --batch 20 --out run \
  --optim.lr 0.05 >train.log 2>&1 || cat train.log
checkpoint=run/checkpoints/step-00000006.h5

verdict() { if [ "$1" = 0 ]; then echo "PASS $2"; else echo "FAIL $2"; fi; }
counts() { grep -vE '"(loss|checkpoint|data)"' "$1"; }  # a loss is a sum, whose order may differ

bad=0
for ranks in 1 2 3; do
  mpirun -np $ranks "$LOCKSTEP" eval $checkpoint --data shapes/val --batch 16 --json $ranks.json \
    >eval.log 2>&1 || { cat eval.log && bad=1; }
  cmp <(counts 1.json) <(counts $ranks.json) || bad=1
done
grep -q '"rows": 70' 1.json || bad=1
verdict $bad 'evaluation counts the same on 1, 2 and 3 ranks, each row once'

trained=$(grep -oE '"val_top1":[0-9.]+' run/metrics.jsonl | cut -d: -f2)
measured=$(grep -m1 -oE '"top1": [0-9.]+' 1.json | cut -d' ' -f2)
bad=0
[ "$(printf %.6f "$measured")" = "$trained" ] || bad=1
verdict $bad 'eval of the last checkpoint is the validation of the last epoch'

bad=0
"$LOCKSTEP" pack --from shapes --out grey --channels 1 --train-rows 20 --val-rows 10 >>pack.log 2>&1
status=0
"$LOCKSTEP" eval $checkpoint --data grey/val >said.log 2>&1 || status=$?
[ $status = 2 ] && grep -q 'grey/val.* do not belong together' said.log || bad=1
verdict $bad 'a data set that the checkpoint was not made for is refused by name'

describes() {  # describes PATH KIND PATTERN
  "$LOCKSTEP" info "$1" >text && grep -Eq "$3" text &&
    "$LOCKSTEP" info --json "$1" >json && grep -q "\"kind\": \"$2\"" json ||
    { cat text json && bad=1; }
}
bad=0
describes shapes/train 'data set' '120 rows of 32 x 32'
describes "$(echo shapes/val/*.h5)" shard '70 rows of 32 x 32'
describes $checkpoint checkpoint 'step 6, 1 epoch'
describes run run 'finished, 6 steps'
verdict $bad 'info describes a data set, a shard, a checkpoint and a run'

bad=0
for path in nothing pack.log; do
  status=0
  "$LOCKSTEP" info $path >said.log 2>&1 || status=$?
  [ $status = 2 ] && grep -q "$path" said.log || { cat said.log && bad=1; }
done
verdict $bad 'info refuses what is no file of lockstep by name'
