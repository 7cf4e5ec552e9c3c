#!/bin/bash
# A run that was interrupted anywhere and resumed ends with the same bits, and the same metrics but
# for times, as one that was not: stopped by step, by signal, and killed; in the middle of an epoch,
# with batches prefetched.
set -euo pipefail
cd "$WORK"
"$LOCKSTEP" pack --from shapes --out shapes --train-rows 250 --val-rows 50 >pack.log 2>&1

# Ten full steps an epoch and an uneven eleventh of 10 rows.
any=(mpirun --bind-to none -np 2 "$LOCKSTEP" train --data.train shapes/train --data.val shapes/val
  --batch 24 --accumulate 2 --data.keep-last --data.pad 4 --data.flip --optim.lr 0.05 --threads 1)
train=("${any[@]}" --epochs 2 --checkpoint.every-steps 3)
without_times() { sed -E 's/"[a-z_]*(_ms|_per_s)":[0-9.]+,?//g' "$1/metrics.jsonl"; }
tensors() { "$LOCKSTEP" info --json "$1/checkpoints/step-00000022.h5" | grep -E '"(name|crc32c)"'; }

same_as_whole() {  # same_as_whole RUN LAW
  if tensors "$1" >tensors && without_times "$1" >metrics &&
    cmp whole.tensors tensors && cmp whole.metrics metrics; then
    echo "PASS $2"
  else
    echo "FAIL $2"
  fi
}

"${train[@]}" --out whole >whole.log 2>&1 || cat whole.log
tensors whole >whole.tensors
without_times whole >whole.metrics
if [ "$(grep -c crc32c whole.tensors)" = 156 ] && [ "$(wc -l <whole.metrics)" = 24 ]; then
  echo 'PASS a run of 22 steps and 2 epochs says so in its metrics and leaves its checkpoints'
else
  echo 'FAIL a run of 22 steps and 2 epochs says so in its metrics and leaves its checkpoints'
fi

status=0
"${train[@]}" --out stopped --stop-after 7 >stopped.log 2>&1 || status=$?
[ $status = 3 ] || { cat stopped.log; echo 'FAIL a run that is stopped ends with status 3'; }
"${train[@]}" --out stopped --resume auto >>stopped.log 2>&1 || cat stopped.log
same_as_whole stopped 'k steps + save + the rest = all steps, bit for bit'

# The end of an epoch: its validation is still due.
"${train[@]}" --out edge --stop-after 11 >edge.log 2>&1 || true
"${train[@]}" --out edge --resume auto >>edge.log 2>&1 || cat edge.log
same_as_whole edge 'a run that was stopped before a validation makes it up'

wait_for_step() {  # wait_for_step RUN STEP: whose checkpoint then stays
  for _ in $(seq 900); do
    [ -e "$1/checkpoints/step-$(printf %08d "$2").h5" ] && return
    sleep 0.1
  done
}

"${train[@]}" --checkpoint.keep 20 --out signalled >signalled.log 2>&1 &
wait_for_step signalled 6
kill -USR1 $! || true
status=0
wait $! || status=$?
[ $status = 3 ] || { cat signalled.log; echo "FAIL a signal ends a run with status 3, not $status"; }
"${train[@]}" --out signalled --resume auto >>signalled.log 2>&1 || cat signalled.log
same_as_whole signalled 'a run that was stopped by SIGUSR1 ends with the same bits'

# A scheduler may reach one rank alone: the others agree.
"${train[@]}" --checkpoint.keep 20 --out terminated >terminated.log 2>&1 &
wait_for_step terminated 3
kill -TERM "$(ps -o pid= --ppid $! | tail -1 | tr -d ' ')" || true
status=0
wait $! || status=$?
[ $status = 3 ] || { cat terminated.log; echo "FAIL SIGTERM ends a run with status 3, not $status"; }
"${train[@]}" --out terminated --resume auto >>terminated.log 2>&1 || cat terminated.log
same_as_whole terminated 'a run of which one rank got SIGTERM ends with the same bits'

"${train[@]}" --checkpoint.keep 20 --out killed >killed.log 2>&1 &
wait_for_step killed 6
kill -KILL $(ps -o pid= --ppid $!) || true  # the ranks
wait $! || true
newest=$(ls killed/checkpoints/step-*.h5 | tail -1)  # not what it was writing
truncate -s 5000 "$newest"
"${train[@]}" --out killed --resume auto >>killed.log 2>&1 || cat killed.log
grep -q "$newest: this checkpoint is torn" killed.log ||
  echo 'FAIL a torn checkpoint is named and passed over'
same_as_whole killed 'a run that was killed, its newest checkpoint torn, ends with the same bits'

# The checkpoint of an epoch's last step is there before the validation.
"${train[@]}" --checkpoint.keep 20 --out validating >validating.log 2>&1 &
wait_for_step validating 11
kill -KILL $(ps -o pid= --ppid $!) || true
wait $! || true
"${train[@]}" --out validating --resume auto >>validating.log 2>&1 || cat validating.log
same_as_whole validating 'a run that was killed in or about a validation ends with the same bits'

# A run that goes back: best.h5 is the best of the steps up to there, before any validation none.
best_epoch() { "$LOCKSTEP" info --json "$1" | grep -A 3 '"best": {' | grep -o '"epoch": [0-9]*'; }
same_best() { [ "$(best_epoch "$1")" = "$(best_epoch "$2")" ] && [ -n "$(best_epoch "$1")" ]; }
law='a run that goes back to an earlier checkpoint has the best of the steps up to there'
back() {  # back STEP: goes on from there in the same directory, for a step
  "${train[@]}" --out back --checkpoint.keep 20 --stop-after $(($1 + 1)) \
    --resume "back/checkpoints/step-$(printf %08d "$1").h5" >>back.log 2>&1 || [ $? = 3 ]
}
if "${train[@]}" --out back --checkpoint.keep 20 >back.log 2>&1 &&
  same_best back/checkpoints/best.h5 back/checkpoints/step-00000022.h5 &&
  back 15 && same_best back/checkpoints/best.h5 back/checkpoints/step-00000015.h5 &&
  back 9 && [ ! -e back/checkpoints/best.h5 ]; then
  echo "PASS $law"
else
  cat back.log
  echo "FAIL $law"
fi

# Killed after a best checkpoint and before any other, it begins anew and leaves that best aside.
anew=("${any[@]}" --out anew --checkpoint.every-epochs 0 --resume auto)
law='a run that was killed between its best checkpoint and its first other one begins anew'
"${anew[@]}" --epochs 2000 >anew.log 2>&1 &
for _ in $(seq 600); do
  [ -e anew/checkpoints/best.h5 ] && break
  sleep 0.1
done
kill -KILL $(ps -o pid= --ppid $!) || true
wait $! || true
if [ -e anew/checkpoints/best.h5 ] && "${anew[@]}" --epochs 2 >>anew.log 2>&1; then
  same_as_whole anew "$law"
else
  cat anew.log
  echo "FAIL $law"
fi

one=("$LOCKSTEP" train --data.train shapes/train --batch 24 --threads 1 --out longer)
status=0
"${one[@]}" --epochs 1 >longer.log 2>&1
[ -e longer/summary.json ] || status=1
"${one[@]}" --epochs 2 --resume auto --stop-after 12 >>longer.log 2>&1 || [ $? = 3 ] || status=1
if [ $status = 0 ] && [ ! -e longer/summary.json ]; then
  echo 'PASS a finished run that goes on is not called finished before its new end'
else
  cat longer.log
  echo 'FAIL a finished run that goes on is not called finished before its new end'
fi

if "${train[@]}" --out whole >again.log 2>&1; then
  echo 'FAIL an existing run is not written over'
elif grep -q 'already holds a run' again.log && tensors whole >/dev/null; then
  echo 'PASS an existing run is not written over'
else
  cat again.log
  echo 'FAIL an existing run is not written over'
fi

if "${train[@]}" --out other --model resnet32 --resume whole/checkpoints/best.h5 >other.log 2>&1; then
  echo "FAIL another model's checkpoint is refused"
elif grep -q 'best.h5: a checkpoint of another model: .*layer1.3' other.log && [ ! -e other ]; then
  echo "PASS another model's checkpoint is refused by file and tensor, and nothing is written"
else
  cat other.log
  echo "FAIL another model's checkpoint is refused by file and tensor, and nothing is written"
fi
