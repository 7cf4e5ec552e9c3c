#!/bin/bash
# A job that loses a node: jobs/resilient.sbatch continues on the nodes that are left; Slurm starts
# other jobs again, unless it may not.
# seconds: 500
# ci
# waits for Slurm, which lets a requeued job wait
source "$(dirname "$0")/../../support/jobs.bash"
job_cluster 5

# The slow network keeps it from ending before its node is lost.
mini shape "$node2" delay=30ms
RANKS=2 submit lost --exclude="$node4,$node5" --gpus-per-node=2 "$jobs/resilient.sbatch" \
  "${train[@]/24/25}" "${pace[@]}" --epochs 60 --checkpoint.every-steps 20 --liveness.timeout-s 5
lost=$id

# Two jobs on one of the other nodes, which is then set to DOWN: one of them may start again on the
# last node.
submit down --exclude="$node1,$node2,$node3" "${small[@]}" --epochs 150
down=$id
runs_on() { on=$(squeue -h -t R -j "$down" -o %N) && [[ $on ]]; }
until_it 1200 runs_on
submit gone --no-requeue --nodelist="$on" "${small[@]}" --epochs 100000
gone=$id
until_it 1200 has_checkpoint down
until_it 1200 has_checkpoint gone
scontrol update NodeName="$on" State=DOWN Reason=lost

# The other job's node is lost: first only the ranks notice, then Slurm.
until_it 1800 more_than lost 25
mini kill-node "$node3"
happens 1800 saw lost "start 1, on 2 node\(s\): $node1 $node2" &&
  happens 1200 saw lost 'batch 25 = 4 rank'
judged "$lost" lost
says '2 of 6 ranks missing' && says 'batch 25 = 6 ranks x 1 micro-batch x 5 or 4 rows' &&
  says 'batch 25 = 4 ranks x 1 micro-batch x 7 or 6 rows' &&
  [[ $(state "$lost") == RUNNING && $(field "$lost" Restarts) == 0 ]]
verdict $? 'resilient.sbatch: the nodes that are left resume from the last checkpoint, with the same global batch, which they cannot share evenly'
scontrol update NodeName="$node3" State=DOWN Reason=lost
mini shape "$node2"

ends "$down" down 'node DOWN (NODE_FAIL)' 'scontrol update State=DOWN' COMPLETED 0:0 1 &&
  says 'resuming from down/checkpoints' &&
  steps_are down 1500
verdict $? 'Slurm starts a job whose node fails again, and it resumes'
ends "$gone" gone 'node DOWN, --no-requeue' 'scontrol update State=DOWN' NODE_FAIL '*' 0
verdict $? 'a job whose node fails and that may not be requeued is NODE_FAIL'
ends "$lost" lost 'node lost, resilient.sbatch' 'node killed, then DOWN in Slurm' COMPLETED \
  '*' 1 && steps_are lost 600 &&
  [[ $(grep -c 'resuming from' lost.out) == 2 ]]
verdict $? 'resilient.sbatch: when Slurm ends the job because of the node, it resumes, and each step is done once'
