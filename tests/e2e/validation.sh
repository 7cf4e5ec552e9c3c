#!/bin/bash
# Validations and evaluations that take seconds: they are stopped in the middle, or a rank hangs.
# The deadline limits each batch, not the whole data set.
# seconds: 600
# computes
# apart: crowd (its deadline of 4 s holds from the start on)
source "$(dirname "$0")/../support/e2e.bash"
"$LOCKSTEP" pack --from shapes --out long --train-rows 64 --val-rows 1500 >pack.log 2>&1
# Two steps an epoch; the checkpoint of the second is written before the validation.
train=("$LOCKSTEP" train --model resnet110 --data.train long/train --data.val long/val --batch 32
  --threads 1 --epochs 2 --eval.batch 4 --optim.lr 0.05)
ranks 2 "${train[@]}" --out whole >whole.log 2>&1 || cat whole.log

# begin RUN OPTION...: starts a training and waits for its first validation. Sets `mpirun`, the
# launcher's process, and `pids`, the ranks' processes.
begin() {
  mpirun --oversubscribe --bind-to none -np 2 "${train[@]}" --out "$@" >"$1.log" 2>&1 &
  mpirun=$!
  until_it 900 test -e "$1/checkpoints/step-00000002.h5" || cat "$1.log"
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

begin hung --comm.deadline-s 4
kill -STOP "${pids[1]}"
finish hung
((status == 1 && seconds < 30)) &&
  says 'rank 0: error: evaluation batch: rank 1 did not arrive within 4 s'
verdict $? 'a rank that hangs in a validation is named after the deadline'

eval=("$LOCKSTEP" eval whole/checkpoints/best.h5 --data long/val --threads 1 --batch 1 --deadline-s)
in_time() {
  began=$(date +%s%N)
  run ranks 2 "${eval[@]}" 2
  ((status == 0))
}
thrice in_time
law='an evaluation may take longer than the deadline, which limits one batch'
if ((status == 0 && $(date +%s%N) - began < 2500000000)); then
  echo "SKIP $law: this machine is too fast"
else
  ((status == 0)) && says '^1500 rows'
  verdict $? "$law"
fi

# Stop the rank in the middle of the evaluation: after a second of computing, more than its start
# takes.
mpirun --oversubscribe --bind-to none -np 2 "${eval[@]}" 4 >eval.log 2>&1 &
mpirun=$!
for _ in $(seq 600); do
  rank_pids $mpirun
  [[ ${pids[1]:-} ]] && read -r -a fields <"/proc/${pids[1]}/stat" && ((fields[13] > 100)) &&
    break
  sleep 0.05
done
kill -STOP "${pids[1]}"
finish eval
((status == 1 && seconds < 30)) &&
  says 'rank 0: error: evaluation batch: rank 1 did not arrive within 4 s'
verdict $? 'a rank that hangs in an evaluation is named after the deadline'
