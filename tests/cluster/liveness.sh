#!/bin/bash
# Ranks, nodes and networks that fail during a training on two nodes with two ranks each: all other
# ranks end in time, on their own, and name the missing ones, or continue as if nothing had
# happened. Only lockstep reacts: srun is told not to.
# seconds: 400
# waits for ranks to be missed
# apart: crowd (seven trainings of four ranks each at a time)
source "$(dirname "$0")/../support/faults.bash"
mkdir full
# before the nodes are created, because they inherit it
mount -t tmpfs -o size=12m tmpfs full 2>/dev/null
trap 'umount -l "$WORK/full"' EXIT
cluster 26 --conf SlurmdTimeout=120
trap 'show_cores; mini down >/dev/null 2>&1; umount -l "$WORK/full"' EXIT
pack_small
# What is tested is who notices what, so steps only wait; in make test-all they compute.
computing=("${train[@]}")
nightly || train+=(--backend clock --clock.step-ms 200) every=5
sooner=(--liveness.timeout-s 6)

# ended_well RANKS SECONDS FAULT HOW PATTERN LAW: the ranks ended in time with this message, and
# lost only the steps since the last checkpoint.
ended_well() {
  ended "$1" "$2" && told "$5" && lost_steps && row "$3" "$4" "$took" "$(error_line)" "$lost"
  verdict $? "$6"
}

cut_for_good() {  # with the default timeout
  on 1
  begin cut_for_good
  strike mini cut "$b"
  ended_well 4 30 'network cut for good' 'the node'\''s bridge port drops everything' \
    "2 of 4 ranks missing: rank 2 on $b \(silent for 2[0-9] s, last in step.*, rank 3 on $b" \
    'when the network is cut for good, both sides end within 30 s, and each names the other'
  grep -q '^[01] 4 ' cut_for_good.ends && grep -q '^[23] 4 ' cut_for_good.ends &&
    [[ -s cut_for_good/post-mortem.json && -s cut_for_good/post-mortem-rank2.json ]]
  verdict $? 'each side of a cut network ends on its own and leaves a post-mortem'
  mini mend "$b"
  over
}

stopped() {
  on 2
  begin stopped "${sooner[@]}"
  strike kill -STOP "$(rank_pid 3)"
  ended_well 3 30 'SIGSTOP' 'kill -STOP of a rank (timeout 6 s)' \
    "1 of 4 ranks missing: rank 3 on $b \(silent for ([6-9]|1[0-2]) s, last in step .*; it is stopped" \
    'when a rank is stopped, the others end on their own and say that it is stopped'
  over
}

crash() {
  on 3
  begin crash "${sooner[@]}"
  strike mini kill-node "$b"
  ended_well 2 30 'node killed' 'all its processes and its network at once (timeout 6 s)' \
    "2 of 4 ranks missing: rank 2 on $b.*rank 3 on $b" \
    'when a node crashes, the ranks of the other node end and name its ranks'
  over
}

crash_of_the_first() {
  on 4
  begin crash_of_the_first "${sooner[@]}"
  strike mini kill-node "$a"
  ended_well 2 30 "rank 0's node killed" 'all its processes and its network at once (timeout 6 s)' \
    "missing: rank 0 on $a \(silent for ([6-9]|1[0-2]) s.*or this node is cut off from it" \
    "when the node of rank 0 crashes, the others end and name rank 0"
  said=$(cat crash_of_the_first/post-mortem-rank2.json)
  says '"missing": \[' && says "\"host\": \"$a\",.*"
  verdict $? "without rank 0 another rank leaves the post-mortem"
  over
}

# killed_in RANK PHASE OPTION...: kill -9 of a rank in this phase, after it was held there long
# enough to report the phase; the options are hold.py's.
killed_in() {
  struck=$(python3 "$support/hold.py" "$(rank_pid "$1")" 2 --in "$2" "${@:3}" --kill)
  happens 100 ranks_ended 4
  sed -i "/^$1 137 /d" "$run_name.ends"
  ended_well 3 19 "rank killed in $2" "kill -9 of rank $1" \
    "missing: rank $1 on ($a|$b) \(its process has ended, last in step [0-9]+, $2" \
    "when a rank is killed in $2, the others end at once and name it"
  over
}

forward() {
  on 5
  train=("${computing[@]}") every=20  # a clock's forward pass takes no time of the host's
  begin forward
  killed_in 3 forward
}

reduction() {
  on 6
  begin reduction
  killed_in 2 reduction
}

checkpoint() {
  on 7
  begin checkpoint  # in which the main thread waits
  killed_in 0 checkpoint --while-there 'checkpoint/checkpoints/*.tmp*'
}

evaluation() {
  on 8
  rows=(--data.train small/val --data.val small/train)
  every=2
  begin evaluation
  killed_in 1 evaluation
}

cut_for_a_while() {
  on 9
  begin cut_for_a_while
  mini cut "$b"
  sleep 5
  from=$(steps_done)
  strike mini mend "$b"
  happens 600 goes_on_to $((from + 1))
  took=$(since_strike)
  happens 600 goes_on_to $((from + 50)) && asked_to_end && ! says 'missing' &&
    row 'network cut for 5 s' "the node's bridge port drops everything" \
      "continues ${took} s after the mend" 'nothing' 0
  verdict $? 'a network that is cut for 5 s ends no rank'
}

slow_network() {
  on 10
  begin slow_network
  sleep 2
  mini shape "$b" delay=20ms loss=2%
  from=$(steps_done)
  happens 1200 goes_on_to $((from + 20)) && asked_to_end && ! says 'missing' &&
    row '2 % loss, 20 ms delay' 'netem or a relay that drops and delays' \
      "continues: $(median_step 1 "$from") ms a step, then $(median_step $((from + 5)) \
      $((from + 20)))" \
      'nothing' 0
  verdict $? 'a network that loses 2 % and delays by 20 ms only slows a training'
  mini shape "$b"
}

disk_full() {
  on 11
  run_dir=full/run
  begin disk_full
  strike dd if=/dev/zero of=full/filler bs=64k status=none 2>/dev/null
  wait $step
  status=$? took=$(since_strike) said=$(tr -d '\0' <disk_full.log)
  ((status != 0)) && awk "BEGIN { exit !($took <= 30) }" && lost_steps &&
    says 'rank 0: error: .*full/run/.*: No space left on device' &&
    row 'disk full' 'the file system of the run is filled between two checkpoints' "$took" \
      "$(error_line)" "$lost"
  verdict $? 'a full disk ends the run and is named; the checkpoint before it is intact'
  said+=$(cat full/run/post-mortem.json)
  says '"reason": "rank 0 on .*: No space left on device' && says "\"host\": \"$b\"" &&
    [[ ! -e full/run/.post-mortem ]]
  verdict $? 'even on a full disk there is reserved space for the post-mortem'
  rm full/filler
  begin disk_full --resume auto --stop-after $(($(newest) + 3))
  wait $step
  said=$(tr -d '\0' <disk_full.log)
  says 'resuming from full/run/checkpoints/step-[0-9]+.h5' && says 'stopped after step'
  verdict $? 'a run whose disk was full resumes when there is space again'
}

# start NAME SCRIPT: a training whose ranks first run the script and then, if it lets them, the
# training.
start() {
  run_name=$1 run_dir=$1
  : >"$1.ends"
  struck=$EPOCHREALTIME
  NOTE_END=$PWD/$1.ends srun -J "$1" -w "$a,$b" -N2 --ntasks-per-node=2 --mpi=pmix \
    --kill-on-bad-exit=0 bash -c "$2 $noted" - "$LOCKSTEP" "${train[@]}" "${rows[@]}" \
    --out "$1" >"$1.log" 2>&1 &
  step=$!
}

# A rank that never starts: MPI_Init would wait for it for ever. Of the four that end, srun reports
# this one.
never_came() {
  on 12
  start never_came '((SLURM_PROCID != 3)) || kill -KILL $$;'
  ended 4 100 && told "rank 3 did not come to $a within 60 s: from $b came 1 of 2" &&
    (($(grep -c 'did not come' <<<"$said") == 1)) && [[ ! -e never_came ]] &&
    row 'rank killed before its start' 'kill -9 of rank 3 before it began' "$took" "$(error_line)" \
      'nothing'
  verdict $? \
    'when a rank dies before its program starts, the others end in MPI_Init, and it is named once'
  over
}

# A rank that has started and is killed in MPI_Init, where all wait for another one.
start_up() {
  on 13
  export LOCKSTEP_RENDEZVOUS_DIR=$WORK/meetings_start_up
  start start_up '((SLURM_PROCID != 1)) || sleep 60; [[ $SLURM_PROCID != 3 ]] || exec "$@";'
  until_it 300 came 2
  until_it 300 came 3
  sleep 1  # greetings
  strike kill -KILL "$(rank_pid 3)"
  happens 180 grep -q '^0 4 ' start_up.ends
  ended 3 19 && told "start-up: rank 3 on $b came, and its process has ended" &&
    row 'rank killed in start-up' 'kill -9 of rank 3 in MPI_Init' "$took" "$(error_line)" 'nothing'
  verdict $? 'when a rank is killed in MPI_Init, the others that are there end at once and name it'
  over
}
# came RANK: it has a connection to rank 0, at the port in rank 0's file of the meeting.
came() {
  local pid port inode
  port=$(sed -n 3p "$LOCKSTEP_RENDEZVOUS_DIR"/meeting-*-0 2>/dev/null) && [[ $port ]] &&
    pid=$(rank_pid "$1") || return
  for inode in $(awk -v port="$(printf ':%04X$' "$port")" '$3 ~ port && $4 == "01" { print $10 }' \
    "/proc/$pid/net/tcp" "/proc/$pid/net/tcp6"); do
    [[ $(ls -l "/proc/$pid/fd") == *"socket:[$inode]"* ]] && return
  done
  return 1
}

scenarios=(cut_for_good never_came crash crash_of_the_first stopped disk_full forward reduction \
  checkpoint
  evaluation start_up)
! nightly || scenarios+=(cut_for_a_while slow_network)  # restarts.sh does both to one training
at_once 7 "${scenarios[@]}"
