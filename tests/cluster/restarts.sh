#!/bin/bash
# Trainings that end and start again in the same job: Slurm starts them again after a requeue, a
# time limit and a lost node, even while old processes still run on a node that is cut off. They end
# with the weights of an uninterrupted training.
# seconds: 600
# ci
# waits for Slurm
# apart: crowd (eight trainings of up to six ranks each at a time)
source "$(dirname "$0")/../support/faults.bash"
cluster 17 --conf SlurmdTimeout=10 --conf MessageTimeout=5 --conf KillWait=15
pack_small

# submit RUN NODES OPTION... -- OPTION...: a job on these nodes only (sbatch's options may select
# some of them), with sbatch's options and the training's. Its script asks Slurm for another start
# until the training is finished, up to `most_starts` starts: when ranks end one after the other,
# srun kills the last (137), and Slurm may give a lost node to the next start once more. The file
# RUN.enough ends this.
most_starts=9
submit() {
  local nodes=$2 options=()
  run_name=$1 run_dir=$1
  shift 2
  while [[ $1 != -- ]]; do options+=("$1") && shift; done
  shift
  cat >"$run_name.sh" <<END
#!/bin/bash
echo "start \${SLURM_RESTART_COUNT:-0} on \$(hostname)"
srun --mpi=pmix --kill-on-bad-exit=1 '$LOCKSTEP' ${train[@]} ${rows[@]} \\
  --checkpoint.every-steps $every --checkpoint.background false --out $run_name --resume auto $@
status=\$?
echo "ended on \$(hostname) with \$status"
if ((status != 0 && \${SLURM_RESTART_COUNT:-0} + 1 < $most_starts)) &&
    [[ ! -e $run_name.enough ]]; then
  until scontrol requeue \$SLURM_JOB_ID; do sleep 1; done
  sleep 60
fi
exit \$status
END
  job=$(sbatch --parsable -J "$run_name" --requeue --open-mode=append -o "$run_name.log" \
    --exclude="$(sinfo -h -N -o %N | grep -vxE "${nodes// /|}" | sort -u | paste -sd,)" \
    "${options[@]}" "$run_name.sh")
}

log_says() {  # log_says PATTERN [TIMES]: the job's output has it
  said=$(tr -d '\0' <"$run_name.log" 2>/dev/null)
  (($(grep -cE -- "$1" <<<"$said") >= ${2:-1}))
}
wait_for() { happens $(($1 * 10)) log_says "${@:2}"; }  # wait_for SECONDS PATTERN [TIMES]
went_on_from() { log_line 'resuming from' | sed 's/.*: step \([0-9]*\),.*/\1/'; }
log_line() { tr -d '\0' <"$run_name.log" | grep -o "$1.*" | tail -n 1; }

# On a node that is cut off, the old processes still train and write into the same directory.
split_brain() {
  submit split_brain "$node1 $node2" -N1 -n2 --
  until_it 1200 has_checkpoint
  first=$(sed -n 's/^start 0 on //p' split_brain.log)
  strike mini cut "$first"
  wait_for 150 'start 1 on' && before=$(steps_done) &&
    wait_for 60 'resuming from split_brain/checkpoints/step-[0-9]+' && from=$(went_on_from) &&
    wait_for 60 "was started again on .* while this start, generation 1, was still running" &&
    row 'node of a requeued job cut off' "the node's bridge port drops everything" \
      "$(since_strike), until the old start ended" "$(error_line)" \
      $((before > from ? before - from : 0))
  verdict $? 'the old start ends when it sees the new one, which resumes from the last checkpoint'

  wait_for 60 "ended on $first with [1-9]"
  happens 600 goes_on_to $((from + 80))
  status=$?
  said="from $from, reached $(steps_done)
$(tr -d '\0' <split_brain.log)"
  ((status == 0)) && [[ -z $(steps_of split_brain | uniq -d) ]]
  verdict $? 'from then on only the new start writes: no step is in the metrics twice'
  scancel "$job"
  mini mend "$first"
}
steps_of() { tr -d '\0' <"$1/metrics.jsonl" | grep -o '^{"step":[0-9]*,' | sort; }

# resilient COMMAND...: submits jobs/resilient.sbatch by this command, with the scenario's variables
# and arguments. A checkpoint waits for the disk, however slow it is: what a fault costs can be
# promised.
resilient() {
  RUN=$run_dir RANKS=2 LOCKSTEP=$LOCKSTEP "$@" "$support/../../jobs/resilient.sbatch" \
    "${train[@]:1}" "${rows[@]}" \
    --checkpoint.every-steps $every --checkpoint.background false --liveness.timeout-s 6
}
went_down() { sinfo -h -n "$1" -o %T | grep -q down; }

# With salloc the script runs outside the nodes, and the allocation survives the loss of any of
# them.
no_kill() {
  run_name=no_kill run_dir=no_kill
  resilient salloc -J no_kill --no-kill --exclusive --nodes=3 -w "$node11,$node12,$node13" \
    --cpus-per-task=1 >no_kill.log 2>&1 &
  until_it 1200 has_checkpoint
  strike mini kill-node "$node11"
  before=$(steps_done)
  wait_for 150 'start 1, on 2 node' && wait_for 60 'resuming from' && took=$(since_strike) &&
    from=$(went_on_from) && ((before - from <= every)) &&
    wait_for 5 '2 of 6 ranks missing|missing: rank 0 on' &&
    row 'node killed in salloc --no-kill' \
      'all its processes and its network at once (timeout 6 s)' \
      "$took, until the next start trained" "$(error_line)" \
      $((before > from ? before - from : 0)) &&
    happens 600 went_down "$node11" && happens 300 goes_on_to $(($(steps_done) + 20)) &&
    [[ $(squeue -h -n no_kill -o %T) == RUNNING ]] && ! log_says 'start 2'
  verdict $? \
    'salloc --no-kill: the nodes that are left continue, also after Slurm has noticed the loss'
  scancel --name=no_kill
}

# A start on two nodes comes no further than to the start of its ranks. The next one has its number
# where Slurm noticed the loss.
lost_in_start() {
  run_name=lost_in_start run_dir=lost_in_start
  cat >late_start <<END
#!/bin/bash
((SLURM_STEP_NUM_NODES == 2)) || exec '$LOCKSTEP' "\$@"
touch starting.\$SLURM_PROCID
until [[ -e node_is_lost ]]; do sleep 0.1; done
exit 4
END
  chmod +x late_start
  LOCKSTEP=$PWD/late_start resilient salloc -J lost_in_start --no-kill --exclusive --nodes=2 \
    -w "$node8,$node17" --cpus-per-task=1 >lost_in_start.log 2>&1 &
  until_it 600 test -e starting.3
  mini kill-node "$node8"
  touch node_is_lost
  wait_for 150 'start [01], on 1 node' && wait_for 60 'first step done'
  verdict $? 'a node that is lost before the training begins: the next start is without it'
  scancel --name=lost_in_start
}

# The node on which the job's script runs.
head_lost() {
  run_name=head_lost run_dir=head_lost
  local head
  job=$(resilient sbatch --parsable -J head_lost -o head_lost.log --nodes=1-3 --gpus-per-node=0 \
    --cpus-per-task=1 --exclude="$(sinfo -h -N -o %N |
      grep -vxE "$node14|$node15|$node16" | sort -u | paste -sd,)")
  until_it 1200 has_checkpoint
  has_head() { head=$(squeue -h -j "$job" -o %B) && [[ $head ]]; }
  until_it 100 has_head
  strike mini kill-node "$head"
  before=$(steps_done)
  wait_for 200 'start 1, on [12] node' && wait_for 60 'resuming from' && took=$(since_strike) &&
    from=$(went_on_from) && ((before - from <= every)) && happens 300 goes_on_to $((from + 20)) &&
    [[ -z $(steps_of head_lost | uniq -d) ]] &&
    row "node of the job's script killed" \
      'all its processes and its network at once (timeout 6 s)' \
      "$took, until the next start trained" \
      "in post-mortem-rank*.json: $(grep -ohE 'missing: rank 0[^,]*' \
      head_lost/post-mortem-rank*.json | head -n 1)" $((before > from ? before - from : 0))
  verdict $? "when the node of the job's own script is lost, Slurm starts the job again on the others, which resume"
  scancel "$job"
}

cancelled() {
  submit cancelled "$node3" -N1 -n2 --
  until_it 1200 has_checkpoint
  strike scancel "$job"
  wait_for 15 'stopped after step [0-9]+ on a signal'
  took=$(since_strike)
  says 'stopped after step' && (($(newest) >= $(steps_done))) &&
    row 'scancel' 'scancel of the job' "$took" \
      "$(log_line 'stopped after')" $(($(steps_done) - $(newest)))
  verdict $? 'scancel leaves a checkpoint of the last step'
}

time_limit() {
  most_starts=2
  submit time_limit "$node4" -N1 -n2 -t 1 -- --walltime.margin-s 25
  until_it 1200 has_checkpoint
  struck=$EPOCHREALTIME
  wait_for 60 'because the allocation ends soon' && took=$(since_strike) &&
    wait_for 150 'start 1 on' && wait_for 60 'resuming from time_limit/checkpoints/step-[0-9]+' &&
    row 'time limit' 'sbatch -t 1, 25 s margin' "$took after its first checkpoint" \
      "$(log_line 'stopped after')" 0
  verdict $? 'before a time limit a checkpoint is written, and the next start resumes from it'
  scancel "$job"
}

# all_faults is compared with this run, which keeps every checkpoint that all_faults may end with.
uninterrupted() {
  run_name=uninterrupted run_dir=uninterrupted
  srun -J uninterrupted -w "$node9,$node10" -N2 --ntasks-per-node=2 --mpi=pmix "$LOCKSTEP" \
    "${train[@]}" "${rows[@]}" --checkpoint.every-steps $every --checkpoint.background false \
    --checkpoint.keep 10000 --out uninterrupted >uninterrupted.log 2>&1
  true
}

goes_on() {  # goes_on STEPS: the training does that many more steps
  happens 300 goes_on_to $(($(steps_done) + $1)) && ! log_says '^(rank [0-9]+: )?error:'
}

# survived FAULT HOW: the training continues as if nothing had happened.
survived() {
  struck=$EPOCHREALTIME
  goes_on 10 && row "$1" "$2" "continues (10 more steps after $(since_strike) s)" 'nothing' 0
  verdict $? "a training survives: $1"
}

# starts_again NUMBER FAULT HOW SAID: the training started again, from its last checkpoint.
starts_again() {
  local before from
  before=$(steps_done)
  wait_for 150 "start $1 on" && wait_for 150 'resuming from' "$1" && took=$(since_strike) &&
    from=$(went_on_from) &&
    ((before - from <= every)) && happens 300 goes_on_to $((from + 10)) &&
    row "$2" "$3" "$took, until the next start trained" \
      "$(log_line "$4" | sed 's/; rank [0-9]* is in .*//')" \
      $((before > from ? before - from : 0))
  verdict $? "a training resumes from its last checkpoint after: $2"
}

on_nodes() {  # $a and $b are the job's nodes
  local nodes
  has_nodes() { nodes=$(squeue -h -j "$job" -o %N) && [[ $nodes ]]; }
  until_it 100 has_nodes
  read -r a b < <(scontrol show hostnames "$nodes" | paste -sd' ')
}

# the_others_ended: whom slurmctld answers nothing while it is restarted, it asks again a minute
# later; until then a job that was just ending keeps its nodes, which it may drain.
the_others_ended() {
  local one
  for one in *.verdicts; do
    [[ $one == @(all_faults|uninterrupted).verdicts || -e ${one%.verdicts}.ended ]] || return
  done
}

all_faults() {
  local had
  submit all_faults "$node5 $node6 $node7" -N2 --ntasks-per-node=2 -- --liveness.timeout-s 12
  until_it 1200 has_checkpoint
  on_nodes
  mini cut "$b"
  sleep 5
  mini mend "$b"
  survived 'network cut for 5 s (timeout 12 s)' "the node's bridge port drops everything"

  mini shape "$b" delay=20ms loss=2%
  goes_on 8
  mini shape "$b"
  survived '2 % loss, 20 ms delay' 'netem, or a relay that drops and delays'

  until_it 3000 the_others_ended
  mini restart-slurmctld
  survived 'slurmctld restarted' 'SIGTERM, then started again'

  stopped=$(rank_pid 3)
  kill -STOP "$stopped"
  sleep 2
  kill -CONT "$stopped"
  survived 'a rank stopped for 2 s' 'kill -STOP, kill -CONT'

  strike scontrol requeue "$job"
  starts_again 1 'requeue' 'scontrol requeue' 'stopped after'

  on_nodes
  strike mini kill-node "$b"
  starts_again 2 'node killed, job requeued' \
    'all its processes and its network at once (timeout 12 s)' \
    '[0-9]* of 4 ranks missing'

  touch all_faults.enough
  had=$(grep -ac 'stopped after step' all_faults.log)
  happens 600 stopped $((had + 1))
  as_uninterrupted
  verdict $? \
    'a training that survived all these faults has the weights and metrics of an uninterrupted one'
  scancel "$job"
  scancel --name=uninterrupted
}

# stopped TIMES: each start is told to stop, once: Slurm, too, may requeue a job that lost a node,
# when it notices, and start 3 knows nothing of what start 2 was told.
told=0
stopped() {
  local starts
  starts=$(tr -d '\0' <"$run_name.log" | grep -c 'resuming from')
  ((starts == told)) || { scancel --signal=USR1 "$job" && told=$starts; }
  log_says 'stopped after step' "$1"
}

# as_uninterrupted: equal at its newest checkpoint, which the uninterrupted run writes, too.
as_uninterrupted() {
  local step file lines
  step=$(($(newest) / every * every))
  file=checkpoints/step-$(printf %08d "$step").h5
  happens 600 test -e "uninterrupted/$file" || return
  tensors "all_faults/$file" >faults.tensors && tensors "uninterrupted/$file" >uninterrupted.tensors
  lines=$(without_times uninterrupted | grep -n "^{\"step\":$step," | cut -d: -f1)
  said="at step $step, line $lines: $(diff faults.tensors uninterrupted.tensors)"
  [[ -s faults.tensors ]] && cmp faults.tensors uninterrupted.tensors &&
    cmp <(without_times all_faults | head -n "$lines") \
      <(without_times uninterrupted | head -n "$lines")
}

at_once 8 uninterrupted all_faults head_lost no_kill lost_in_start time_limit split_brain cancelled
