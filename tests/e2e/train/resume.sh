#!/bin/bash
# A run that was interrupted anywhere and resumed ends with the same bits as an uninterrupted one,
# and with the same metrics except for times. It is stopped after a step, by a signal, or killed;
# also in the middle of an epoch, with batches prefetched.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
"$LOCKSTEP" pack --from shapes --out shapes --train-rows 250 --val-rows 50 >pack.log 2>&1 ||
  cat pack.log

# Ten full steps an epoch and an uneven eleventh of 10 rows.
any=("$LOCKSTEP" train --data.train shapes/train --data.val shapes/val
  --batch 24 --accumulate 2 --data.keep-last --data.pad 4 --data.flip --optim.lr 0.05 --threads 1)
train=("${any[@]}" --epochs 2 --checkpoint.every-steps 3)
step_file() { echo "$1/checkpoints/step-$(printf %08d "$2").h5"; }  # step_file RUN STEP

same_as_whole() {  # same_as_whole RUN
  tensors "$(step_file "$1" 22)" >tensors && without_times "$1" >metrics &&
    cmp whole.tensors tensors && cmp whole.metrics metrics
}

run ranks 2 "${train[@]}" --out whole
tensors "$(step_file whole 22)" >whole.tensors
without_times whole >whole.metrics
((status == 0)) && (($(grep -c crc32c whole.tensors) == 156)) && (($(wc -l <whole.metrics) == 24))
verdict $? \
  'a run of 22 steps and 2 epochs has all of them in its metrics, and leaves its checkpoints'

run ranks 2 "${train[@]}" --out stopped --stop-after 7
((status == 3)) && ! says 'non-zero|aborted'
verdict $? 'a run that is stopped ends with status 3, and mpirun says nothing about that'
((status == 3)) && run ranks 2 "${train[@]}" --out stopped --resume auto && same_as_whole stopped
verdict $? 'k steps + save + the rest = all steps, bit for bit'

# Stopped at the end of an epoch, before its validation.
run ranks 2 "${train[@]}" --out edge --stop-after 11
((status == 3)) && run ranks 2 "${train[@]}" --out edge --resume auto && same_as_whole edge
verdict $? 'a run that was stopped before a validation does it when resumed'
! says '[^0-9]0 images/s' &&
  grep '"kind":"epoch"' edge/metrics.jsonl | head -n 1 | grep -q '"images_per_s":null'
verdict $? 'an epoch of which a start made no step has no images per second'

# And after it.
run ranks 2 "${train[@]}" --out judged --stop-after-epoch 1
((status == 3)) && says 'as stop-after-epoch asked' &&
  grep -q '"kind":"epoch".*"val_loss"' judged/metrics.jsonl &&
  ! grep -q 'stop-after-epoch = [1-9]' judged/config.toml
verdict $? 'a run that is stopped after an epoch has its validation'
run ranks 2 "${train[@]}" --out judged --resume auto --stop-after-epoch 1
((status == 2)) && says 'stop-after-epoch = 1, but .* resumes after epoch 1: name a later epoch'
verdict $? 'an epoch that is over cannot be the one to stop after'
run ranks 2 "${train[@]}" --out judged --resume auto
((status == 0)) && same_as_whole judged
verdict $? 'resumed, it has the bits and the metrics of a run that was not stopped'

# Of a copy, because others are compared with the whole run.
cp -r whole farther
run ranks 2 "$LOCKSTEP" resume farther --epochs 4 --stop-after 23
((status == 3)) &&
  says 'warning: the learning rate goes from 0.000[0-9]* to 0.025: cosine now ends with epoch 4'
verdict $? 'a resume whose learning rate jumps says both rates, and why'
run "$LOCKSTEP" resume farther --epochs 4 --init nosuch.pth --head new
((status == 2)) && says "init = 'nosuch.pth' would have no effect on a resume" &&
  ! grep -q nosuch farther/config.toml
verdict $? 'weights to begin with are an error of a resume, and are not recorded'

# Rank 0's clock decides; here a checkpoint is due after each step. No other key asks for one.
timed=("${any[@]}" --epochs 2 --checkpoint.every-epochs 0 --checkpoint.keep 30 --out timed
  --checkpoint.background false)
run ranks 2 "${timed[@]}" --checkpoint.every-minutes 1e-6 --stop-after 13
((status == 3)) && (($(compgen -G 'timed/checkpoints/step-*.h5' | wc -l) == 13)) &&
  run ranks 2 "${timed[@]}" --resume "$(step_file timed 8)" && same_as_whole timed &&
  (($(compgen -G 'timed/checkpoints/step-*.h5' | wc -l) == 9))
verdict $? 'checkpoints by time come after the same step on all ranks, and a resume from one ends with the same bits'

# has RUN STEP: there is a checkpoint of this step, or of a later one where that had to wait.
has() { [[ $(ls "$1"/checkpoints/step-*.h5 2>/dev/null | tail -n 1) > \
  "$(step_file "$1" $(($2 - 1)))" ]]; }
# begin RUN STEP OPTION...: starts a training and waits for the checkpoint of this step; all
# checkpoints are kept. Sets `mpirun`, the launcher's process, and `pids`, the ranks' processes.
begin() {
  mpirun --oversubscribe --bind-to none -np 2 "${train[@]}" --checkpoint.keep 20 "${@:3}" \
    --out "$1" >"$1.log" 2>&1 &
  mpirun=$!
  until_it 900 has "$1" "$2"
  rank_pids $mpirun
}
# resumed RUN: resumes the run, which ends with the bits of the uninterrupted one.
resumed() { run ranks 2 "${train[@]}" --out "$1" --resume auto && same_as_whole "$1"; }

# Steps wait for their checkpoints, so that the run does not end before the signal.
begin signalled 6 --checkpoint.background false
kill -USR1 $mpirun
finish signalled
((status == 3)) && resumed signalled
verdict $? 'a run stopped by SIGUSR1 ends with status 3, and when resumed with the same bits'

# A scheduler may signal one rank only; all ranks agree to stop.
begin terminated 3 --checkpoint.background false
kill -TERM "${pids[1]}"
finish terminated
((status == 3)) && resumed terminated
verdict $? \
  'a run in which one rank got SIGTERM ends with status 3, and when resumed with the same bits'

begin killed 6
kill -KILL "${pids[@]}"
finish killed
newest=$(ls killed/checkpoints/step-*.h5 | tail -n 1)  # not a file that was being written
truncate -s 5000 "$newest"
resumed killed && says "$newest: this checkpoint is torn"
verdict $? \
  'a killed run with a torn newest checkpoint names it, and when resumed ends with the same bits'

# The checkpoint of an epoch's last step is written before the validation.
begin validating 11
kill -KILL "${pids[@]}"
finish validating
resumed validating
verdict $? 'a run killed during a validation, or just before or after it, ends with the same bits when resumed'

# A run that resumes from an earlier checkpoint: best.h5 is the best up to that step; before the
# first validation there is none.
best_epoch() { "$LOCKSTEP" info --json "$1" | grep -A 3 '"best": {' | grep -o '"epoch": [0-9]*'; }
best_is_of() { [[ -n $(best_epoch back/checkpoints/best.h5) &&
  $(best_epoch back/checkpoints/best.h5) == "$(best_epoch "$(step_file back "$1")")" ]]; }
back() {  # back STEP: resumes from this step in the same directory, for one step
  run ranks 2 "${train[@]}" --out back "${all_of_them[@]}" --stop-after $(($1 + 1)) \
    --resume "$(step_file back "$1")"
  ((status == 3))
}
all_of_them=(--checkpoint.keep 20 --checkpoint.background false)
run ranks 2 "${train[@]}" --out back "${all_of_them[@]}"
((status == 0)) && best_is_of 22 && back 15 && best_is_of 15 && back 9 &&
  [[ ! -e back/checkpoints/best.h5 ]]
verdict $? 'a run that goes back to an earlier checkpoint has the best of the steps up to there'

# Killed after its best checkpoint was written and before any other, a run starts again without it.
again=("${any[@]}" --out again --checkpoint.every-epochs 0 --resume auto)
mpirun --oversubscribe --bind-to none -np 2 "${again[@]}" --epochs 2000 >again.log 2>&1 &
mpirun=$!
until_it 600 test -e again/checkpoints/best.h5
rank_pids $mpirun
kill -KILL "${pids[@]}"
finish again
[[ -e again/checkpoints/best.h5 ]] && run ranks 2 "${again[@]}" --epochs 2 && same_as_whole again
verdict $? 'a run killed after its best checkpoint, but before any other, starts again'

one=("$LOCKSTEP" train --data.train shapes/train --batch 24 --threads 1 --out longer)
run "${one[@]}" --epochs 1
((status == 0)) && [[ -e longer/summary.json ]]
finished=$?
run "${one[@]}" --epochs 2 --resume auto --stop-after 12
((finished == 0 && status == 3)) && [[ ! -e longer/summary.json ]]
verdict $? 'a finished run that is resumed does not count as finished until its new end'

run "$LOCKSTEP" pack --repack shapes --shuffle --out mixed
((status == 0)) && mv shapes/train kept && cp -r mixed/train shapes/train &&
  run "${one[@]}" --epochs 2 --resume auto --stop-after 14
((status == 3)) && says 'may differ from .*: the training set, whose labels or images are others'
changed=$?
rm -r shapes/train && mv kept shapes/train
verdict $changed 'a resume says that the training set has other rows, where all else of it is alike'

run ranks 2 "${train[@]}" --out whole
((status != 0)) && says 'already holds a run' &&
  tensors "$(step_file whole 22)" | cmp - whole.tensors
verdict $? 'an existing run is not overwritten'

run ranks 2 "${train[@]}" --out other --model resnet32 --resume whole/checkpoints/best.h5
((status != 0)) && says "best.h5: a checkpoint of another model: .*layer1.3" && [[ ! -e other ]]
verdict $? \
  "another model's checkpoint is an error that names file and tensor, and nothing is written"
