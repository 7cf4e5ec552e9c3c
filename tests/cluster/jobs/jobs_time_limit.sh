#!/bin/bash
# A job that reaches its time limit: if it is requeued in time, it resumes, also when its ranks are
# stuck; only if nothing can requeue it, it ends as TIMEOUT.
# seconds: 500
# ci
# waits for limits of a minute
source "$(dirname "$0")/../../support/jobs.bash"
job_cluster 3
limit=(--time=1 --signal=B:USR1@40)

# If all ranks are stopped, they can neither react to the signal before the time limit nor end each
# other. They must be stopped before Slurm's signal, so these jobs begin before the others.
STUCK_AFTER=1000 strike STOP '0 1' submit hard --nodelist="$node1" "${limit[@]}" "${small[@]}" \
  --epochs 30
hard=$id
STUCK_AFTER=2 strike STOP '0 1' submit stuck --nodelist="$node1" "${limit[@]}" "${small[@]}" \
  --epochs 30
stuck=$id
until_it 200 has_checkpoint hard
until_it 200 has_checkpoint stuck

# On a slow network steps take equally long on any machine: all together longer than a job may run
# before Slurm signals.
mini shape "$node3" delay=30ms
submit timed "${limit[@]}" --nodelist="$node2,$node3" --ntasks-per-node=1 --gpus-per-node=1 \
  "$jobs/multi-node.sbatch" "${train[@]}" --epochs 10
timed=$id

ends "$timed" timed 'time limit' 'steps that take longer' COMPLETED '*' '[1-9]*' &&
  steps_are timed 100 &&
  ranks 2 "$LOCKSTEP" train "${train[@]}" --epochs 10 --out uninterrupted >uninterrupted.out 2>&1 &&
  [[ $(tensors timed/checkpoints/step-00000100.h5) == \
    "$(tensors uninterrupted/checkpoints/step-00000100.h5)" ]]
verdict $? 'a job that reaches its time limit is requeued, and ends with the weights of an uninterrupted run'

ends "$stuck" stuck 'time limit, ranks stuck' \
  'kill -STOP of all ranks; USR1 40 s before the limit' COMPLETED 0:0 '[1-9]' &&
  ! sed '/DUE TO JOB REQUEUE/,$d' <<<"$said" | grep 'stopped after' &&
  says 'resuming from stuck/checkpoints' &&
  steps_are stuck 300
verdict $? 'a job whose ranks are stuck just before the time limit is requeued, and resumes from its last checkpoint'

ends "$hard" hard 'time limit strikes' 'kill -STOP of all ranks, no requeue' TIMEOUT '*' 0
verdict $? 'a job that the time limit ends is TIMEOUT, never COMPLETED'

submit hard --nodelist="$node1" "${small[@]}" --epochs 30
ends "$id" hard 'the same, submitted again' 'nothing' COMPLETED 0:0 0 &&
  says 'resuming from hard/checkpoints' && steps_are hard 300
verdict $? 'a job submitted again with the same $RUN resumes from its last checkpoint'
