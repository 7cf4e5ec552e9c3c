#!/bin/bash
# Validations and evaluations that take seconds: they are stopped in the middle, or a rank hangs.
# The deadline limits each batch, not the whole data set. It also limits the start, so it is as long
# as a start takes on a busy machine.
# seconds: 900
# ci
# computes
source "$(dirname "$0")/../../support/e2e.bash"
"$LOCKSTEP" pack --from shapes --out long --train-rows 64 --val-rows 1500 >pack.log 2>&1
# Two steps an epoch; the checkpoint of the second is written before the validation.
train=("$LOCKSTEP" train --model resnet110 --data.train long/train --data.val long/val --batch 32
  --threads 1 --epochs 2 --eval.batch 4 --optim.lr 0.05)
deadline=12  # less than the 20 s after which a silent rank is missed
ranks 2 "${train[@]}" --out whole >whole.log 2>&1 || cat whole.log

# begin RUN OPTION...: starts a training and waits for its first validation. Sets `mpirun`, the
# launcher's process, and `pids`, the ranks' processes.
begin() {
  mpirun --oversubscribe --bind-to none -np 2 "${train[@]}" --out "$@" >"$1.log" 2>&1 &
  mpirun=$!
  until_it 900 test -e "$1/checkpoints/step-00000002.h5"
  rank_pids $mpirun
}

begin stopped
kill -USR1 "${pids[1]}"
finish stopped
((status == 3)) && says 'stopped after step 2 on a signal' &&
  [[ $(grep -c '"step"' stopped/metrics.jsonl) == 2 ]] &&
  ! grep -q '"last_step"' stopped/metrics.jsonl
verdict $? 'a signal during a validation ends it with status 3 and a checkpoint, and without a result'

run ranks 2 "${train[@]}" --out stopped --resume auto
((status == 0)) && says 'resuming from stopped/checkpoints/step-00000002.h5: step 2,' &&
  cmp <(tensors stopped/checkpoints/step-00000004.h5) \
    <(tensors whole/checkpoints/step-00000004.h5) &&
  cmp <(without_times stopped) <(without_times whole)
verdict $? 'when resumed, it does the validation, repeats no step, and ends with the same bits'

begin hung --comm.deadline-s $deadline
kill -STOP "${pids[1]}"
finish hung
((status == 1 && seconds < 60)) &&
  says "rank 0: error: evaluation batch: rank 1 did not arrive within $deadline s"
verdict $? 'a rank that hangs in a validation is named after the deadline'

# begin_eval: starts an evaluation and waits until rank 1 has computed for a second, which is more
# than its start takes.
begin_eval() {
  mpirun --oversubscribe --bind-to none -np 2 "$LOCKSTEP" eval whole/checkpoints/best.h5 \
    --data long/val --threads 1 --batch 1 --deadline-s $deadline >eval.log 2>&1 &
  mpirun=$!
  until_it 1200 has_computed 100
}
has_computed() {  # has_computed TICKS: of rank 1's time on a core
  local fields
  kill -0 $mpirun || stop_here 'the evaluation has ended'
  find_ranks $mpirun
  [[ ${pids[1]:-} ]] && read -r -a fields <"/proc/${pids[1]}/stat" && ((fields[13] >= $1))
}

# A rank that is stopped again and again makes it longer than the deadline, on any machine.
began=$SECONDS
begin_eval
for ticks in 120 140 160; do
  kill -STOP "${pids[1]}"
  sleep 5
  kill -CONT "${pids[1]}"
  until_it 1200 has_computed $ticks
done
finish eval
((status == 0 && SECONDS - began > deadline)) && says '^1500 rows'
verdict $? 'an evaluation may take longer than the deadline, which limits one batch'

begin_eval
kill -STOP "${pids[1]}"
finish eval
((status == 1 && seconds < 60)) &&
  says "rank 0: error: evaluation batch: rank 1 did not arrive within $deadline s"
verdict $? 'a rank that hangs in an evaluation is named after the deadline'
