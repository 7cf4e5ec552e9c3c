#!/bin/bash
# Ranks that srun does not connect to MPI meet over TCP and train over it: with the weights of a
# training over MPI, and with the same reports of ranks that are lost.
# seconds: 300
# waits for Slurm
# apart: crowd (six trainings of four ranks each at a time)
source "$(dirname "$0")/../support/faults.bash"
cluster 12 --conf SlurmdTimeout=120
pack_small
mpi=none
sooner=(--liveness.timeout-s 6)

# step_on TYPE COMMAND...: four ranks on the scenario's nodes.
step_on() { run srun -w "$a,$b" -N2 --ntasks-per-node=2 --mpi="$1" "${@:2}"; }
fixed=("$LOCKSTEP" "${train[@]}" "${rows[@]}" --checkpoint.every-steps $every)

same_weights() {
  on 1
  step_on pmix "${fixed[@]}" --out with --stop-after 60
  ((status == 3)) && tensors with/checkpoints/step-00000060.h5 >with.tensors &&
    [[ -s with.tensors ]]
  verdict $? 'a training over MPI stops after 60 steps'
  step_on none "${fixed[@]}" --out without --stop-after 30
  ((status == 3)) &&
    (($(grep -c 'the ranks communicate over TCP: .*srun --mpi=pmix' <<<"$said") == 1)) &&
    ! says 'OPAL|MPI_ERRORS_ARE_FATAL'
  verdict $? 'srun --mpi=none: training works, and says once that it does without MPI, and why'
  step_on none "${fixed[@]}" --out without --stop-after 60 --resume auto
  ((status == 3)) && says 'resuming from without/checkpoints/step-00000030.h5' &&
    tensors without/checkpoints/step-00000060.h5 | cmp - with.tensors &&
    cmp <(without_times without | grep '^{"step"') <(without_times with | grep '^{"step"')
  verdict $? 'a training over TCP that is resumed has the weights and metrics of one over MPI'

  step_on none "$LOCKSTEP" eval with/checkpoints/step-00000060.h5 --data small/val --json none.json
  ((status == 0)) && step_on pmix "$LOCKSTEP" eval with/checkpoints/step-00000060.h5 \
    --data small/val --json pmix.json
  ((status == 0)) && cmp none.json pmix.json
  verdict $? 'eval gives the same results without MPI'
  step_on none "$LOCKSTEP" bench train --model resnet20 --batch 16 --steps 2 --warm-up 1
  ((status == 0)) && says '4 ranks'
  verdict $? 'bench train works without MPI'
  step_on none "$LOCKSTEP" pack --from shapes --out packed --train-rows 250 --val-rows 53 \
    --resize 8 --rows-per-shard 100
  ((status == 0)) && diff -r packed small
  verdict $? 'pack writes the same shards without MPI'
  step_on none "$LOCKSTEP" preflight --json nodes.json
  ((status <= 1)) && says 'preflight of 2 node' && (($(grep -c '"round_trip_s"' nodes.json) == 1))
  verdict $? 'preflight measures the network without MPI'
  step_on none "$LOCKSTEP" topo --json
  ((status == 0)) && (($(grep -c '"ok": true' <<<"$said") == 4))
  verdict $? 'topo binds ranks without MPI'
}

one_rank() {
  run srun -w "$node12" -n1 --mpi=none "${fixed[@]}" --out one --stop-after 3
  ((status == 3))
  verdict $? 'a single rank trains under srun --mpi=none'
}

# killed_in RANK PHASE: kill -9 of a rank in this phase.
killed_in() {
  struck=$(python3 "$support/hold.py" "$(rank_pid "$1")" 2 --in "$2" --kill)
  happens 100 ranks_ended 4
  sed -i "/^$1 137 /d" "$run_name.ends"
  ended 3 19 && lost_steps &&
    told "missing: rank $1 on ($a|$b) \(its process has ended, last in step [0-9]+, $2" &&
    (($(grep -c '^rank [0-9]*: error: ' <<<"$said") <= ($1 == 0 ? 2 : 1)))  # one from each node
  verdict $? "without MPI, when rank $1 is killed in $2, the others end at once and name it"
  over
}

reduction() {
  on 2
  begin reduction
  killed_in 2 reduction
}

end_of_step() {
  on 3
  begin end_of_step
  killed_in 0 'end of step'
}

crash() {
  on 4
  begin crash "${sooner[@]}"
  strike mini kill-node "$b"
  ended 2 30 && lost_steps && told "2 of 4 ranks missing: rank 2 on $b.*rank 3 on $b"
  verdict $? 'without MPI, when a node crashes, the ranks of the other node end and name its ranks'
  over
}

cancelled() {
  on 5
  begin cancelled
  strike scancel --signal=TERM --name=cancelled
  wait $step
  happens 20 ranks_ended 4
  said=$(tr -d '\0' <cancelled.log)
  says 'stopped after step [0-9]+ on a signal' && ! grep -qv '^[0-9] 3 ' cancelled.ends &&
    (($(newest) >= $(steps_done)))
  verdict $? 'without MPI, SIGTERM leaves a checkpoint of the last step'
}

never_came() {
  on 6
  run srun -w "$a,$b" -N2 --ntasks-per-node=2 --mpi=none --kill-on-bad-exit=0 bash -c \
    '((SLURM_PROCID != 3)) || exit 0; "$@"; status=$?; echo "ended with $status"; exit $status' \
    - "${fixed[@]}" --out never_came --comm.deadline-s 6
  (($(grep -c 'ended with 4' <<<"$said") == 3)) && [[ ! -e never_came ]] &&
    late='error: .*rank 3 did not come to .* within 6 s: from .* came 1 of 2' &&
    (($(grep -c "$late" <<<"$said") == 1))
  verdict $? 'without MPI, a rank that never comes is named once, and the others end'
}

at_once 6 same_weights reduction end_of_step crash cancelled never_came one_rank
