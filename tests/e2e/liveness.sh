#!/bin/bash
# Ranks that die, stop or stand still in each phase: the others notice by their heartbeats, say
# which, where and in what phase, leave a post-mortem and end. tests/cluster/liveness.sh does it to
# nodes, and without a launcher's help.
source "$(dirname "$0")/../support/e2e.bash"
pack_small
train=("$LOCKSTEP" train --threads 1 --optim.lr 0.001 --epochs 4000 --checkpoint.every-epochs 0
  --audit.every-steps 0)
usual=(--data.train small/train --batch 16)

# begin RANKS RUN OPTION...: starts a training and waits for its first step; `pids` are the ranks'.
begin() {
  local n=$1 name=$2
  mpirun --oversubscribe --bind-to none -np "$n" "${train[@]}" --out "$name" "${@:3}" \
    >"$name.log" 2>&1 &
  mpirun=$!
  for _ in $(seq 300); do
    grep -q 'first step done' "$name.log" && break
    sleep 0.1
  done
  sleep 0.5  # each rank has told of itself since
  pids=($(ps -o pid= --ppid $mpirun | sort -n))
}

finish() {  # finish RUN: waits for the launcher; `seconds` is how long it took
  local began=$SECONDS
  wait $mpirun
  status=$?
  seconds=$((SECONDS - began))
  said=$(tr -d '\0' <"$1.log")
}

# post_mortem FILE RANK PHASE: it is whole and says so.
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

# killed_in PHASE RANK RANKS OPTION...: a rank is killed until that was in this phase.
killed_in() {
  local phase=$1 rank=$2 n=$3 file=post-mortem.json try
  ((rank > 0)) || file=post-mortem-rank1.json
  for try in 1 2 3 4 5 6; do
    begin "$n" "$phase-$try" "${@:4}"
    sleep "0.$((try * 13 % 10))"
    kill -KILL "${pids[rank]}"
    finish "$phase-$try"
    says "missing: rank $rank on $(hostname) \(its process has ended, last in step [0-9]+, $phase" ||
      continue
    ((status != 0 && seconds < 10)) && post_mortem "$phase-$try/$file" "$rank" "$phase"
    return
  done
  return 1
}

killed_in forward 1 2 --data.train small/train --batch 32 --model resnet18
verdict $? 'a rank that is killed in forward is named at once, with its host, step and phase'
killed_in evaluation 1 2 --data.train small/val --data.val small/train --batch 32 --model resnet18
verdict $? 'a rank that is killed in an evaluation is named with it'
killed_in checkpoint 0 2 "${usual[@]}" --model resnet18 --checkpoint.every-steps 1
verdict $? 'rank 0, killed while it writes a checkpoint, is named by another rank'

killed_while_waiting() {
  local try name
  for try in 1 2 3 4 5 6; do
    name=reduction-$try
    begin 4 "$name" "${usual[@]}"
    kill -STOP "${pids[1]}"  # for which the others now wait, most often in a reduction
    sleep 1.5
    kill -KILL "${pids[2]}"
    finish "$name"
    says 'missing: rank 2 on .*ended, last in step [0-9]+, reduction of bucket [0-9]' || continue
    ((status != 0 && seconds < 15)) && post_mortem "$name/post-mortem.json" 2 reduction
    return
  done
  return 1
}
killed_while_waiting
verdict $? 'a rank that is killed in a reduction is named, and not the one for which it waited'

for rank in 0 1; do
  begin 2 "stopped$rank" "${usual[@]}" --liveness.timeout-s 4
  kill -STOP "${pids[rank]}"
  sleep 8
  kill -0 "${pids[1 - rank]}" 2>/dev/null && ! grep -q '^State:.*Z' "/proc/${pids[1 - rank]}/status"
  alive=$?
  kill -KILL "${pids[rank]}" 2>/dev/null
  finish "stopped$rank"
  ((status != 0 && alive != 0)) && says "missing: rank $rank on .*silent for [4-6] s, last in step"
  verdict $? "rank $rank is stopped: the other ends by itself and says for how long it was silent"
done

# Only the main thread is held, as by a disk that does not answer; the heartbeat goes on.
hold() {
  python3 - "$1" <<'PY'
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(16, int(sys.argv[1]), None, None) != 0:  # PTRACE_ATTACH: this thread alone
    sys.exit("ptrace: errno %d" % ctypes.get_errno())
time.sleep(30)
PY
}
begin 2 late "${usual[@]}" --comm.deadline-s 6
hold "${pids[1]}" >hold.log 2>&1 &
holder=$!
finish late
if grep -q ptrace hold.log; then
  echo "SKIPPED: $(cat hold.log)"
  echo 'PASS a rank that lives but stands still is named as late, with its phase and for how long'
else
  ((status != 0 && seconds < 30)) &&
    says "the others waited for rank 1 on $(hostname) \(in step [0-9]+, [a-z ]+ for [5-9] s\)"
  verdict $? 'a rank that lives but stands still is named as late, with its phase and for how long'
fi
kill $holder 2>/dev/null
kill -KILL "${pids[@]}" 2>/dev/null
exit 0
