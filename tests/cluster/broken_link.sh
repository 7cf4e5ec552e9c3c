#!/bin/bash
# The network between two nodes is cut, and neither of them is rank 0's; or a node takes small
# packets only. Rank 0 hears all ranks, all ranks wait, and none is late. The nodes probe each
# other, the broken link is named, and a job starts again without one of its two nodes.
# seconds: 300
# ci
# waits for ranks to be missed
# apart: crowd
source "$(dirname "$0")/../support/jobs.bash"
job_cluster 17
short=("${pace[@]/20/50}" --liveness.timeout-s 5 --checkpoint.every-steps 20)
note_ends

# strikes_after RUN COMMAND...: runs it when the run has a checkpoint, and notes the time in
# `struck`.
strikes_after() {
  until_it 1200 has_checkpoint "$1"
  struck=$EPOCHREALTIME
  "${@:2}"
}

# srun_names_it RUN MPI NODES FAULT PATTERN COMMAND...: a rank on each of the nodes, started by srun
# --mpi=MPI, until the command breaks the network: all ranks end in time with status 4, but those
# that srun is faster to kill, and the error has the pattern.
srun_names_it() {
  local run=$1 took
  all_ended() { [[ -s $run.ends && ! $(alive "$run") ]]; }
  : >"$run.ends"
  NOTE_END=$PWD/$run.ends srun -w "$3" -N"$(tr , '\n' <<<"$3" | wc -l)" --ntasks-per-node=1 \
    -c1 --mpi="$2" \
    --kill-on-bad-exit=0 bash -c "$noted" - "$LOCKSTEP" train "${train[@]}" "${short[@]}" \
    --epochs 100000 \
    --out "$run" >"$run.out" 2>&1 &
  local step=$!
  strikes_after "$run" "${@:6}"
  happens 600 all_ended
  took=$(awk -v struck="$struck" '$3 > last { last = $3 } END { printf "%.1f", last - struck }' \
    "$run.ends")
  said="after $took s: $(cat "$run.ends") $(tr '\r' '\n' <"$run.out" | grep -av '^epoch')"
  echo "| $4, srun --mpi=$2 | timeout ${timeout:-5} s | $took | $(grep -ao 'error: .*' "$run.out" |
    head -n 1) | $(
    cut -d' ' -f2 "$run.ends" | sort -u | xargs) |"
  [[ $2 == pmix || $(wc -l <"$run.ends") == $(tr , '\n' <<<"$3" | wc -l) ]] && all_ended &&
    ! grep -qvE '^[012] (4|137) ' "$run.ends" && grep -q ' 4 ' "$run.ends" &&
    awk "BEGIN { exit !($took < ${within:-20}) }" && says "$5"
  verdict $? "srun --mpi=$2: $4: all ranks end in time with status 4, and the link is named"
  kill $step 2>/dev/null
}

cut_link() {  # cut_link RUN MPI NODE NODE NODE
  srun_names_it "$1" "$2" "$3,$4,$5" "the network between two other nodes than rank 0's is cut" \
    "error: the network between $4 \(rank 1\) and $5 \(rank 2\) is broken" mini cut "$4" "$5"
  said=$(cat "$1/post-mortem.json")
  says "\"leave_out\": \"$5\"" && says '"step": [0-9]+'
  verdict $? "srun --mpi=$2: the post-mortem names a node to leave out"
}
over_mpi() { cut_link over_mpi pmix "$node1" "$node2" "$node3"; }
over_tcp() { cut_link over_tcp none "$node11" "$node12" "$node13"; }

small_packets() {  # small_packets RUN MPI NODE NODE
  srun_names_it "$1" "$2" "$3,$4" 'a node takes small packets only' \
    "error: the network passes small packets only from $3 \(rank 0\) to $4 \(rank 1\): packets of 1500 bytes do not pass" \
    mini exec "$4" ip link set eth0 mtu 600
}
small_over_mpi() { small_packets small_over_mpi pmix "$node14" "$node15"; }
# With the timeout of a run that sets none. Within 30 s, and 3 s more where the disk keeps the
# post-mortem waiting (seen with an fsync of 10 s: 30.3 s; else 27 to 29).
small_over_tcp() {
  local within=33 timeout=20 short=("${pace[@]/20/50}" --checkpoint.every-steps 20)
  small_packets small_over_tcp none "$node16" "$node17"
}

# nodes_of ID: those that the job runs on.
nodes_of() { scontrol show hostnames "$(scontrol show job "$1" | sed -n 's/^ *NodeList=//p')"; }

multi_node() {
  submit multi --nodes=3 --ntasks-per-node=1 --cpus-per-task=1 --gpus-per-node=0 --mem=1000 \
    --exclude="$node1,$node2,$node3,$node8,$node9,$node10,$node11,$node12,$node13,$node14,$node15,$node16,$node17" "$jobs/multi-node.sbatch" "${train[@]}" \
    "${short[@]}" --epochs 30
  local job=$id
  mini shape "$node4" delay=5ms  # it must not end before it is struck
  strikes_after multi mini cut "$node5" "$node6"
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
  strikes_after resilient mini cut "$node9" "$node10"
  ends "$job" resilient 'network cut between two nodes, resilient.sbatch' \
    "neither is rank 0's" COMPLETED 0:0 0 &&
    says "start 1, on 2 node\(s\): $node8 $node9" && steps_are resilient 300
  verdict $? 'resilient.sbatch: the job continues without a node of the broken link'
}
at_once 4 over_mpi over_tcp small_over_mpi small_over_tcp multi_node resilient
