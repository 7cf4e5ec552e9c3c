#!/bin/bash
# Shards on nodes: the same bits wherever ranks are and however they meet, and in a job that loses a
# node and continues on a spare one.
# seconds: 200
# computes
source "$(dirname "$0")/../support/jobs.bash"
job_cluster 3
v8=("${train[@]}" --shards 8 --lanes 1 --winograd false --epochs 30 --checkpoint.background false)
on() { run srun "${@:2}" "$LOCKSTEP" train "${v8[@]}" --out "$1"; }

on one -N1 -n1 --mpi=pmix
((status == 0)) && on two -N2 -n8 --ntasks-per-node=4 --mpi=pmix && ((status == 0)) &&
  same_run one two
verdict $? 'eight ranks on two nodes give the bits of one rank'
on cyclic -N3 -n5 --distribution=cyclic --mpi=pmix
((status == 0)) && same_run one cyclic
verdict $? 'five ranks that were dealt to three nodes in turn do, too'
v8+=(--comm.all-reduce two-level)
on levels -N2 -n6 --ntasks-per-node=3 --mpi=pmix
((status == 0)) && says 'all-reduces over two levels: 6 ranks on 2 nodes' && same_run one levels
verdict $? 'and six where all-reduces go over two levels'
v8=("${v8[@]:0:${#v8[@]}-2}")
on tcp -N2 -n4 --ntasks-per-node=2 --mpi=none
((status == 0)) && same_run one tcp
verdict $? 'and four that meet over TCP'

# The slow network keeps the job from ending before its node is lost.
mini shape "$node2" delay=20ms
RANKS=2 USED=2 submit spare --nodes=3 --gpus-per-node=2 "$jobs/resilient.sbatch" "${v8[@]}" \
  --checkpoint.every-steps 20 --liveness.timeout-s 5
until_it 1200 more_than spare 30
mini kill-node "$node2"
# Its script has ended: Slurm still waits 120 s for the lost node.
completes() { [[ $(state "$id") == COMPLET* ]]; }
happens 1200 saw spare "start 1, on 2 node\(s\): $node1 $node3" && happens 1200 completes
judged "$id" spare
says "start 0, on 2 node\(s\): $node1 $node2" && says '^done: ' && ! says 'may differ' &&
  same_run one spare
verdict $? 'a job that loses a node continues on its spare one, and ends with the same bits'
