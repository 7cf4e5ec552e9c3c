#!/bin/bash
# Ranks that die, stop or hang in each phase: the others notice from the missing heartbeats, name
# the rank, its host and phase, leave a post-mortem and end. tests/cluster/liveness.sh does the same
# with whole nodes, and without a launcher's help.
# seconds: 600
# waits for ranks to be missed
# apart: crowd (seven trainings at a time)
source "$(dirname "$0")/../../support/e2e.bash"
hold=$support/hold.py
patient=$(patience 4)
pack_small
train=("$LOCKSTEP" train --threads 1 --optim.lr 0.001 --epochs 4000 --checkpoint.every-epochs 0
  --audit.every-steps 0)
usual=(--data.train small/train --batch 16)

# begin RANKS RUN OPTION...: starts a training and waits for its first step; sets `pids`, by rank.
begin() {
  : >"$2.log"
  mpirun $patient --oversubscribe --bind-to none -np "$1" "${train[@]}" \
    --out "$2" "${@:3}" >"$2.log" 2>&1 &
  mpirun=$!
  first_step "$2.log"
  sleep 1.5  # now each rank has told of a step: rank 0 tells the others once a second
  rank_pids $mpirun
}

# post_mortem FILE RANK PHASE: the file is complete and names this rank and phase.
post_mortem() {
  python3 - "$@" <<'PY'
import json, sys
file, rank, phase = sys.argv[1], int(sys.argv[2]), sys.argv[3]
told = json.load(open(file))
one = told["ranks"][rank]
assert told["missing"] == [rank], told
assert one["state"] == "missing" and one["phase"] == phase and one["step"] > 0, one
PY
}

# may_hold LAW: whether hold.py may stop processes here; if not, the law is skipped.
sleep 60 &
cannot=$(python3 "$hold" $! 0.1 2>&1) && cannot=''
kill $!
may_hold() {
  [[ $cannot ]] || return 0
  printf 'SKIPPED: %s\nPASS %s\n' "$cannot" "$1"
  return 1
}

# killed_in PHASE RANK LAW OPTION...: one of two ranks is killed in this phase, after it was held
# there long enough to report the phase; `when` has more options of hold.py.
when=()
killed_in() {
  local phase=$1 rank=$2 law=$3 file=post-mortem.json
  may_hold "$law" || return
  ((rank > 0)) || file=post-mortem-rank1.json
  begin 2 "$phase" "${@:4}"
  python3 "$hold" "${pids[rank]}" 2 --in "$phase" "${when[@]}" --kill
  finish "$phase"
  ((status != 0 && seconds < 30)) && post_mortem "$phase/$file" "$rank" "$phase" &&
    says "missing: rank $rank on $(hostname) \(its process has ended, last in step [0-9]+, $phase"
  verdict $? "$law"
}

forward() {
  killed_in forward 1 'a rank killed in forward is named at once, with its host, step and phase' \
    "${usual[@]}"
}
evaluation() {
  killed_in evaluation 1 'a rank killed in an evaluation is named with this phase' \
    --data.train small/val --data.val small/train --batch 16
}
checkpoint() {
  when=(--while-there 'checkpoint/checkpoints/*.tmp*')
  killed_in checkpoint 0 'another rank names rank 0 when it is killed while writing a checkpoint' \
    "${usual[@]}" --checkpoint.every-steps 1 --checkpoint.background false
}

reduction() {
  local law='a rank killed in a reduction is named, and not the rank that it waited for'
  may_hold "$law" || return
  begin 4 reduction "${usual[@]}"
  python3 "$hold" "${pids[1]}" 10 --in backward &  # the others now wait for this one
  python3 "$hold" "${pids[2]}" 3 --in reduction --kill
  finish reduction
  ((status != 0 && seconds < 30)) && post_mortem reduction/post-mortem.json 2 reduction &&
    says 'missing: rank 2 on .*ended, last in step [0-9]+, reduction of bucket [0-9]'
  verdict $? "$law"
}

# gone PID: there is no such process, or only a zombie.
gone() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.*Z' "/proc/$1/status"; }

# stopped RANK: the whole rank is stopped by SIGSTOP.
stopped() {
  local name=stopped$1 other=$((1 - $1))
  begin 2 "$name" "${usual[@]}" --liveness.timeout-s 3
  kill -STOP "${pids[$1]}"
  happens 180 gone "${pids[other]}"
  ended=$?
  kill -KILL "${pids[$1]}" 2>/dev/null
  finish "$name"
  ((status != 0 && ended == 0)) && says "missing: rank $1 on .*silent for ([3-9]|1[0-2]) s, last in step .*; it is stopped"
  verdict $? "rank $1 is stopped: the other ends on its own and says how long rank $1 was silent, and why"
}
stopped_0() { stopped 0; }
stopped_1() { stopped 1; }

# paused_and_killed RANK: the whole rank is stopped for so long that the end of its connection alone
# could be the network's fault, and then killed.
paused_and_killed() {
  local name=paused$1 other=$((1 - $1))
  begin 2 "$name" "${usual[@]}"
  kill -STOP "${pids[$1]}"
  sleep 4
  kill -KILL "${pids[$1]}"
  finish "$name"
  ((status != 0)) && says "missing: rank $1 on $(hostname) \(its process has ended, last in step"
  verdict $? "rank $1 is stopped for 4 s and then killed: rank $other says at once that it has ended"
}
paused_0() { paused_and_killed 0; }
paused_1() { paused_and_killed 1; }

late() {
  local law='a rank that is alive but does not move is named as late, with its phase and for how long'
  may_hold "$law" || return
  begin 2 late "${usual[@]}" --comm.deadline-s 5
  python3 "$hold" "${pids[1]}" 60 --in forward &
  finish late
  ((status != 0 && seconds < 50)) &&
    says "the others waited for rank 1 on $(hostname) \(in step [0-9]+, [a-z ]+ for ([4-9]|1[0-9]) s\)"
  verdict $? "$law"
  kill $! 2>/dev/null
  kill -KILL "${pids[@]}" 2>/dev/null
}

at_once 7 late stopped_0 stopped_1 paused_0 paused_1 reduction forward evaluation checkpoint
