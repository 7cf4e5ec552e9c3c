#!/bin/bash
# The network between two nodes is cut, and neither of them is rank 0's: rank 0 hears all ranks, all
# ranks wait, and none is late. The nodes probe each other, the broken link is named, and a job
# starts again without one of its two nodes.
# seconds: 300
# waits for ranks to be missed
# apart: crowd
source "$(dirname "$0")/../support/jobs.bash"
job_cluster 13
short=("${pace[@]/20/50}" --liveness.timeout-s 5 --checkpoint.every-steps 20)
cat >noted <<'END'
#!/bin/bash
"$REAL" "$@"
status=$?
echo "$SLURM_PROCID $status $EPOCHREALTIME" >>"$ENDS"
exit "$status"
END
chmod +x noted

# cut_after RUN FROM TO: cuts the link when the run has a checkpoint, and notes the time in
# `struck`.
cut_after() {
  until_it 1200 has_checkpoint "$1"
  struck=$EPOCHREALTIME
  mini cut "$2" "$3"
}

# srun_names_it MPI NODE NODE NODE: three ranks, on the first node rank 0, started by srun
# --mpi=MPI.
srun_names_it() {
  local mpi=$1 run=over_$1 two=$3 three=$4 took
  all_ended() { (($(wc -l <"$run.ends") == 3)); }
  : >"$run.ends"
  ENDS=$PWD/$run.ends REAL=$LOCKSTEP srun -w "$2,$3,$4" -N3 -n3 -c1 --mpi="$mpi" \
    --kill-on-bad-exit=0 \
    ./noted train "${train[@]}" "${short[@]}" --epochs 100000 --out "$run" >"$run.out" 2>&1 &
  local step=$!
  cut_after "$run" "$two" "$three"
  happens 600 all_ended
  took=$(awk -v struck="$struck" '$3 > last { last = $3 } END { printf "%.1f", last - struck }' "$run.ends")
  said="after $took s: $(cat "$run.ends") $(tr '\r' '\n' <"$run.out" | grep -av '^epoch')"
  local cut="network cut between two nodes, srun --mpi=$mpi"
  echo "| $cut | neither is rank 0's (timeout 5 s) | $took | $(
    grep -ao 'error: .*' "$run.out" | head -n 1) | $(cut -d' ' -f2 "$run.ends" | sort -u | xargs) |"
  all_ended && ! grep -qv '^[012] 4 ' "$run.ends" && awk "BEGIN { exit !($took < 20) }" &&
    says "error: the network between $two \(rank 1\) and $three \(rank 2\) is broken"
  verdict $? "srun --mpi=$mpi: when the network between two other nodes than rank 0's is cut, all ranks end in time with status 4, and the link is named"
  said=$(cat "$run/post-mortem.json")
  says "\"leave_out\": \"$three\"" && says '"step": [0-9]+'
  verdict $? "srun --mpi=$mpi: the post-mortem names a node to leave out"
  kill $step 2>/dev/null
}
over_mpi() { srun_names_it pmix "$node1" "$node2" "$node3"; }
over_tcp() { srun_names_it none "$node11" "$node12" "$node13"; }

# nodes_of ID: those that the job runs on.
nodes_of() { scontrol show hostnames "$(scontrol show job "$1" | sed -n 's/^ *NodeList=//p')"; }

multi_node() {
  submit multi --nodes=3 --ntasks-per-node=1 --cpus-per-task=1 --gpus-per-node=0 --mem=1000 \
    --exclude="$node1,$node2,$node3,$node8,$node9,$node10,$node11,$node12,$node13" \
    "$jobs/multi-node.sbatch" "${train[@]}" \
    "${short[@]}" --epochs 30
  local job=$id
  mini shape "$node4" delay=5ms  # it must not end before it is struck
  cut_after multi "$node5" "$node6"
  ends "$job" multi 'network cut between two nodes, multi-node.sbatch' \
    "neither is rank 0's" COMPLETED 0:0 1 &&
    says "the network between $node5 \(rank 1\) and $node6 \(rank 2\) is broken" &&
    says "the next start is without $node6" && says 'resuming from multi/checkpoints' &&
    steps_are multi 300 &&
    [[ $(nodes_of "$job" | xargs) == "$node4 $node5 $node7" ]]
  verdict $? 'multi-node.sbatch: the job is requeued without a node of the broken link, and resumes'
}

resilient() {
  RANKS=1 submit resilient --nodes=3 --cpus-per-task=1 --gpus-per-node=0 --mem=1000 \
    --nodelist="$node8,$node9,$node10" "$jobs/resilient.sbatch" "${train[@]}" "${short[@]}" \
    --epochs 30
  local job=$id
  mini shape "$node8" delay=5ms
  cut_after resilient "$node9" "$node10"
  ends "$job" resilient 'network cut between two nodes, resilient.sbatch' \
    "neither is rank 0's" COMPLETED 0:0 0 &&
    says "start 1, on 2 node\(s\): $node8 $node9" && steps_are resilient 300
  verdict $? 'resilient.sbatch: the job continues without a node of the broken link'
}
at_once 4 over_mpi over_tcp multi_node resilient
