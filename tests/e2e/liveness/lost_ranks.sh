#!/bin/bash
# Ranks that are killed, hang or are told to stop in the middle of a training: the others end in
# time, the message says what happened, no process is left, and the run can be resumed.
# seconds: 600
# ci
# waits for ranks to be missed
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
"$LOCKSTEP" pack --from shapes --out large --train-rows 10000 --val-rows 53 --resize 8 \
  >pack.log 2>&1 || cat pack.log
train=("$LOCKSTEP" train --batch 16 --threads 1 --optim.lr 0.05 --checkpoint.every-epochs 0
  --eval.every-epochs 20)
# Would take minutes and never finishes. Its lines are few, because mpirun reads no more of them
# once it was told to end, and ranks whose pipe is full wait for it.
long=(--data.train large/train --data.val large/val --epochs 100)
# 900 steps: some seconds, long enough to be hit.
short=(--data.train small/train --data.val small/val --epochs 60)

# begin RANKS RUN OPTION...: starts a training and waits for its first step. Sets `mpirun`, the
# launcher's process, and `pids`, the ranks' processes.
begin() {
  local n=$1 name=$2
  mpirun --oversubscribe --bind-to none "${launch[@]}" -np "$n" "${train[@]}" --out "$name" \
    "${@:3}" >"$name.log" 2>&1 &
  mpirun=$!
  first_step "$name.log"
  rank_pids $mpirun
}
launch=()

# none_left: within 5 s no process of a rank is left, except zombies.
none_left() {
  local left pid
  for _ in $(seq 50); do
    left=0
    for pid in "${pids[@]}"; do
      [[ -e /proc/$pid ]] && ! grep -q '^State:.*Z' "/proc/$pid/status" 2>/dev/null && left=1
    done
    ((left == 0)) && return 0
    nap 0.1
  done
  said+=$'\n'"left: $(ps -o pid,stat,args -p "$(IFS=,; echo "${pids[*]}")")"
  return 1
}

for n in 2 4; do
  begin $n "killed$n" "${long[@]}"
  kill -KILL "${pids[n - 1]}"
  finish "killed$n"
  ((${#pids[@]} == n && status != 0 && seconds < 30)) && says "process rank $((n - 1)) with PID" &&
    none_left
  verdict $? "one of $n ranks is killed: the others end within 30 s and name it"
done

for lost in 1 0 2; do
  n=$((lost == 2 ? 4 : 2))
  begin $n "hung$lost" "${long[@]}" --comm.deadline-s 4
  kill -STOP "${pids[lost]}"
  finish "hung$lost"
  ((status == 1 && seconds < 30)) && says "error: .*: rank $lost did not arrive within 4 s(;|$)" &&
    none_left
  verdict $? "rank $lost of $n hangs: after the deadline it alone is named, and the job ends"
done
run "$LOCKSTEP" info hung1
((status == 0)) && says 'not finished'
verdict $? 'a run that lost a rank is described as not finished'

# ---- where TCP is blocked between the ranks, which MPI connects ----------------------------------
"${CXX:-g++}" -x c -O1 -shared -fPIC -o no_tcp.so "$support/preloads/no_tcp.c" -ldl
launch=(-x "LD_PRELOAD=$PWD/no_tcp.so")
blocked='warning: rank 1 on .* does not reach rank 0 on .*: .* port [0-9]+: no connection through [a-z0-9]+: the ranks agree over MPI'
begin 2 blocked "${long[@]}" --comm.deadline-s 4
kill -STOP "${pids[1]}"
finish blocked
((status == 1 && seconds < 30)) && says "$blocked" && none_left &&
  says 'error: .*: rank 1 did not arrive within 4 s(;|$)'
verdict $? 'where TCP is blocked, the ranks say so once and agree over MPI; one that hangs is named'
begin 4 blocked_killed "${long[@]}"
kill -KILL "${pids[3]}"
finish blocked_killed
((status != 0 && seconds < 30)) && says 'process rank 3 with PID' && none_left
verdict $? 'where TCP is blocked, the others end within 30 s after one of 4 ranks is killed'
run mpirun --oversubscribe --bind-to none "${launch[@]}" -np 2 "${train[@]}" "${short[@]}" \
  --stop-after 60 --out over_mpi
((status == 3)) && says "$blocked" &&
  run ranks 2 "${train[@]}" "${short[@]}" --stop-after 60 --out over_tcp &&
  ((status == 3)) && ! says 'does not reach' &&
  cmp <(tensors over_mpi/checkpoints/step-00000060.h5) \
    <(tensors over_tcp/checkpoints/step-00000060.h5)
verdict $? 'where TCP is blocked, a training has the bits of any other'
launch=()

# ---- signals -------------------------------------------------------------------------------------
stopped() {  # stopped RUN: it says after which step it stopped, and has that step's checkpoint
  local file
  says "stopped after step [0-9]+ on a signal" && none_left &&
    file=$(grep -o "$1/checkpoints/step-[0-9]*.h5" <<<"$said") &&
    "$LOCKSTEP" info "$file" >/dev/null
}

ranks 2 "${train[@]}" "${short[@]}" --out whole >whole.log 2>&1 || cat whole.log
begin 2 one "${short[@]}"
kill -TERM "${pids[1]}"
finish one
((status == 3)) && stopped one
verdict $? 'SIGTERM to one rank stops all after the same step, with a checkpoint and status 3'
run ranks 2 "${train[@]}" "${short[@]}" --out one --resume auto
((status == 0)) && says 'resuming from one/checkpoints/step-[0-9]+.h5: step [0-9]' &&
  cmp <(tensors one/checkpoints/step-00000900.h5) <(tensors whole/checkpoints/step-00000900.h5) &&
  cmp <(without_times one) <(without_times whole)
verdict $? 'a run stopped by SIGTERM to one rank resumes, and ends with the same bits and metrics'

begin 4 four "${long[@]}"
kill -USR1 "${pids[2]}"
finish four
((status == 3)) && stopped four
verdict $? 'SIGUSR1 to one of 4 ranks stops all, with a checkpoint and status 3'

# The second rank starts after the first, which waits for it in MPI_Init, has received its signal.
mpirun --oversubscribe --bind-to none -np 2 bash -c \
  'until ((OMPI_COMM_WORLD_RANK == 0)) || [[ -e signalled ]]; do sleep 0.1; done; exec "$@"' \
  - "${train[@]}" "${long[@]}" --out early >early.log 2>&1 &
mpirun=$!
heeds_usr1() {
  find_ranks $mpirun
  [[ ${pids[0]:-} && $(readlink "/proc/${pids[0]}/exe") == "$LOCKSTEP" ]] &&
    ((0x$(awk '/^SigCgt/ { print $2 }' "/proc/${pids[0]}/status") & 0x200))
}
until_it 600 heeds_usr1
kill -USR1 "${pids[0]}"
touch signalled
finish early
((status == 3)) && says 'stopped after step 1 on a signal'
verdict $? 'a signal that arrives before the ranks have met stops the run after its first step'

begin 2 twice "${long[@]}"
for signal in USR1 TERM USR1; do kill -$signal "${pids[1]}"; done
for signal in TERM USR1; do kill -$signal "${pids[0]}"; done
finish twice
((status == 3)) && stopped twice && (($(compgen -G 'twice/checkpoints/step-*.h5' | wc -l) == 1))
verdict $? 'signals that come twice, and at a different time to each rank, stop a run once'

# What the shell starts in the background ignores SIGINT, unless it is told not to.
for signal in INT HUP; do
  env --default-signal=INT,HUP "${train[@]}" "${long[@]}" --out "$signal" >"$signal.log" 2>&1 &
  mpirun=$! pids=($!)
  first_step "$signal.log"
  kill -$signal $mpirun
  finish "$signal"
  ((status == 3)) && stopped "$signal"
  verdict $? "SIG$signal leaves a checkpoint of the step at which it arrived, with status 3"
done

# mpirun waits this many seconds before it passes SIGTERM on, and again before it kills; Open MPI 5
# kills after half a second, and no longer passes on what ranks say. It ends with its own status.
launch=(--mca odls_base_sigkill_timeout 4)
begin 2 all "${long[@]}"
kill -TERM $mpirun
finish all
at=$(sed -n '$s/.*"reason":"a signal","steps":\([0-9]*\),.*/\1/p' all/metrics.jsonl)
((status != 0)) && none_left && [[ $at ]] &&
  "$LOCKSTEP" info "all/checkpoints/step-$(printf %08d "$at").h5" >/dev/null
verdict $? 'SIGTERM to mpirun leaves a checkpoint of the step at which it arrived'
