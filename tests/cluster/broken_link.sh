#!/bin/bash
# The network between two nodes is cut, and neither of them is rank 0's: rank 0 hears all ranks, all
# ranks wait, and none is late. The nodes probe each other, the broken link is named, and a job
# starts again without one of its two nodes.
# seconds: 300
# waits for ranks to be missed
# apart: crowd
source "$(dirname "$0")/../support/jobs.bash"
job_cluster 10
short=(--liveness.timeout-s 5 --checkpoint.every-steps 20 --eval.every-epochs 100000)
cat >noted <<'END'
#!/bin/bash
"$REAL" "$@"
status=$?
echo "$SLURM_PROCID $status $EPOCHREALTIME" >>"$ENDS"
exit "$status"
END
chmod +x noted

# cut_after RUN FROM TO: cuts the link when the run has a checkpoint, and notes the time in `struck`.
cut_after() {
  within 120 has_checkpoint "$1" || return
  struck=$EPOCHREALTIME
  mini cut "$2" "$3"
}
all_ended() { (($(wc -l <ends) == 3)); }

srun_names_it() {
  : >ends
  ENDS=$PWD/ends REAL=$LOCKSTEP srun -w "$node1,$node2,$node3" -N3 -n3 -c1 --mpi=pmix --kill-on-bad-exit=0 \
    ./noted train "${train[@]}" "${short[@]}" --epochs 100000 --out named >named.out 2>&1 &
  cut_after named "$node2" "$node3"
  within 60 all_ended
  took=$(awk -v struck="$struck" '$3 > last { last = $3 } END { printf "%.1f", last - struck }' ends)
  said="after $took s: $(cat ends) $(tr '\r' '\n' <named.out | grep -av '^epoch')"
  echo "| network cut between two nodes | neither is rank 0's (timeout 5 s) | $took | $(
    grep -ao 'error: .*' named.out | head -n 1) | 4 |"
  all_ended && ! grep -qv '^[012] 4 ' ends && awk "BEGIN { exit !($took < 20) }" &&
    says "error: the network between $node2 \(rank 1\) and $node3 \(rank 2\) is broken"
  verdict $? 'when the network between two other nodes than rank 0'\''s is cut, all ranks end in time with status 4, and the link is named'
  said=$(cat named/post-mortem.json)
  says "\"leave_out\": \"$node3\"" && says '"step": [0-9]+'
  verdict $? 'the post-mortem names a node to leave out'
  kill %% 2>/dev/null
}

# nodes_of ID: those that the job runs on.
nodes_of() { scontrol show hostnames "$(scontrol show job "$1" | sed -n 's/^ *NodeList=//p')"; }

multi_node() {
  submit multi --nodes=3 --ntasks-per-node=1 --cpus-per-task=1 --gpus-per-node=0 --mem=1000 \
    --exclude="$node1,$node2,$node3,$node8,$node9,$node10" "$jobs/multi-node.sbatch" "${train[@]}" \
    "${short[@]}" --epochs 30
  local job=$id
  mini shape "$node4" delay=5ms  # it must not end before it is struck
  cut_after multi "$node5" "$node6"
  ends "$job" multi 'network cut between two nodes, multi-node.sbatch' "neither is rank 0's" COMPLETED 0:0 1 &&
    says "the network between $node5 \(rank 1\) and $node6 \(rank 2\) is broken" &&
    says "the next start is without $node6" && says 'resuming from multi/checkpoints' && steps_are multi 300 &&
    [[ $(nodes_of "$job" | xargs) == "$node4 $node5 $node7" ]]
  verdict $? 'multi-node.sbatch: the job is requeued without a node of the broken link, and resumes'
}

resilient() {
  RANKS=1 submit resilient --nodes=3 --cpus-per-task=1 --gpus-per-node=0 --mem=1000 \
    --nodelist="$node8,$node9,$node10" "$jobs/resilient.sbatch" "${train[@]}" "${short[@]}" --epochs 30
  local job=$id
  mini shape "$node8" delay=5ms
  cut_after resilient "$node9" "$node10"
  ends "$job" resilient 'network cut between two nodes, resilient.sbatch' "neither is rank 0's" COMPLETED 0:0 0 &&
    says "start 1, on 2 node\(s\): $node8 $node9" && steps_are resilient 300
  verdict $? 'resilient.sbatch: the job continues without a node of the broken link'
}
at_once 3 srun_names_it multi_node resilient
