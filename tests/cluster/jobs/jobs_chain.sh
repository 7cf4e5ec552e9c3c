#!/bin/bash
# A chain of jobs where none is requeued: each continues the training, whatever ended the one before
# it; once it is done, or fails, the others are cancelled.
# ci
# waits for Slurm
source "$(dirname "$0")/../../support/jobs.bash"
job_cluster 3

# chain NAME OPTION...: the numbers of its jobs in `ids`
chain() {
  RUN=$1 run "$jobs/chain.sh" 5 --output="$1.out" --open-mode=append "${small[@]}" "${@:2}"
  mapfile -t ids < <(sed -n 's/^job [1-5] of 5: //p' <<<"$said")
}
states_are() {  # of the five jobs, in order
  local id all=()
  for id in "${ids[@]}"; do all+=("$(state "$id")"); done
  said="${all[*]}
$(cat "$run_name.out" 2>/dev/null)"
  [[ ${all[*]} == "$1" ]]
}
started() { (($(find "$1/generations" -type f 2>/dev/null | wc -l) == $2)); }

run_name=whole
chain whole --epochs 90
((status == 0 && ${#ids[@]} == 5)) && until_it 600 has_checkpoint whole
# As Slurm does before a time limit. The second job loses its node.
scancel --signal=USR1 --batch "${ids[0]}"
until_it 1200 started whole 2
until_it 600 more_than whole $(($(steps whole | wc -l) + 45))
on=$(squeue -h -j "${ids[1]}" -o %N)
scontrol update NodeName="$on" State=DOWN Reason=lost
happens 1200 states_are 'FAILED NODE_FAIL COMPLETED CANCELLED CANCELLED' && started whole 3 &&
  steps_are whole 900 && ! says 'requeue' && says '^done: ' &&
  ranks 2 "$LOCKSTEP" train "${train[@]}" "${pace[@]}" --epochs 90 --out plain >plain.out 2>&1 &&
  [[ $(tensors whole/checkpoints/step-00000900.h5) == \
    "$(tensors plain/checkpoints/step-00000900.h5)" ]]
verdict $? 'a chain of five: a stopped job, a lost node, and the third ends the training; the others are cancelled'

run_name=wrong
chain wrong --epochs 0
happens 1200 states_are 'FAILED CANCELLED CANCELLED CANCELLED CANCELLED' && says 'epochs = 0'
verdict $? 'a training that fails ends its chain'
run "$jobs/chain.sh" 0 "${small[@]}"
((status == 2)) && says 'how many jobs'
verdict $? 'a chain of no jobs is an error'
