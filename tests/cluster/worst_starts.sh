#!/bin/bash
# Starts that go wrong on one rank only, strangers at a start, and what a start that is killed
# leaves; a file system that freezes, and a node's step daemon that is killed.
# seconds: 400
# ci
# waits for ranks to be missed
# apart: crowd
source "$(dirname "$0")/../support/jobs.bash"
mkdir frozen
truncate -s 60M frozen.ext4
can_freeze=
mkfs.ext4 -q frozen.ext4 2>/dev/null && mount -o loop frozen.ext4 frozen 2>/dev/null && can_freeze=1
job_cluster 14
trap 'fsfreeze -u "$WORK/frozen" 2>/dev/null; show_cores; mini down >/dev/null 2>&1; umount -l "$WORK/frozen" 2>/dev/null' EXIT
few=(--epochs 1 --checkpoint.every-epochs 0)
two() { srun -w "$1,$2" -N2 -n2 -c1 --mpi="${mpi:-pmix}" --kill-on-bad-exit=0 "${@:3}"; }

# timed COMMAND...: as `run`; `took` is its seconds.
timed() {
  local began=$EPOCHREALTIME
  run "$@"
  took=$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $began }")
  said="after $took s: $said"
}
seconds_at_most() { awk "BEGIN { exit !($took <= $1) }"; }
first_error() { grep -m 1 -oE 'error: .*' <<<"$said"; }

builds() {
  local id other
  id=$("$LOCKSTEP" --version | grep -oE '[0-9a-f]{16}')
  other=${id:1}f
  python3 - "$LOCKSTEP" other-lockstep "$id" "$other" <<'END'
import sys
source, target, old, new = sys.argv[1:]
content = open(source, "rb").read()
assert old.encode() in content and old != new
open(target, "wb").write(content.replace(old.encode(), new.encode()))
END
  chmod +x other-lockstep
  local one='if ((SLURM_PROCID == 1)); then exec ./other-lockstep "$@"; else exec "$LOCKSTEP" "$@"; fi'
  timed two "$node1" "$node2" bash -c "$one" - train "${train[@]}" "${few[@]}" --out builds
  echo "| another build on a node | a byte of its build id is another | $took | $(first_error) | $status |"
  ((status == 2)) && says "error: the ranks run different builds of lockstep: $id on rank 0, but $other on rank 1" &&
    says '--allow-different-builds' && [[ ! -e builds ]]
  verdict $? 'a different build on a node is an error at the start'
  timed two "$node1" "$node2" bash -c "$one" - train "${train[@]}" "${few[@]}" --out builds \
    --allow-different-builds
  ((status == 0)) && says "warning: the ranks run different builds of lockstep: $id on rank 0" &&
    [[ -e builds/summary.json ]]
  verdict $? '--allow-different-builds makes that a warning'
}

bad_option() {
  local one law
  export LOCKSTEP_RENDEZVOUS_DIR=$WORK/option_meetings
  for one in 1 0; do
    timed two "$node3" "$node4" bash -c \
      'if ((SLURM_PROCID == '$one')); then exec "$LOCKSTEP" "$@" --no-such-option 1; else exec "$LOCKSTEP" "$@"; fi' - \
      train "${train[@]}" "${few[@]}" --out option
    law="when only rank $one has a bad option, the other does not wait for it"
    echo "| a bad option on rank $one only | --no-such-option | $took | $(first_error) | $status |"
    # Rank 0 tells the other one at the door, so nothing more is to be said.
    says 'error: .*no-such-option' && seconds_at_most 8 &&
      { ((one == 0)) || says 'came, and its process has ended|has gone'; } &&
      [[ -z $(ls "$LOCKSTEP_RENDEZVOUS_DIR" 2>/dev/null) ]]
    verdict $? "$law"
  done
}

secrets() {
  local folder=$WORK/secret_meetings
  # Rank 1 never comes, so rank 0 waits for it, and is killed.
  LOCKSTEP_RENDEZVOUS_DIR=$folder two "$node5" "$node6" bash -c \
    'if ((SLURM_PROCID == 1)); then sleep 5; else "$LOCKSTEP" "$@" & sleep 2; kill -KILL $!; fi' - whoami >secrets.log 2>&1
  said=$(ls -l "$folder")
  local left
  left=$(ls "$folder")
  touch -d '2 minutes ago' "$folder"/*
  LOCKSTEP_RENDEZVOUS_DIR=$folder run two "$node5" "$node6" "$LOCKSTEP" whoami
  ((status == 0)) && [[ $left && -z $(ls "$folder") ]]
  verdict $? 'what a start that was killed has left with its secret, the next start removes'
}

frozen_disk() {
  local law='a frozen file system ends no run until ranks must wait for it; then it is named, and the status is 4' mpi pid
  if [[ ! $can_freeze ]]; then
    echo "SKIP $law: no loop device here"
    return
  fi
  ended_by_it() { grep -qaE 'task 1: (Exited|Killed)' "$mpi.log" || [[ -s $mpi.end ]]; }
  # begin MPI NODE NODE: rank 1's status goes to MPI.end, its words to MPI.err: srun may lose both.
  begin() {
    mpi=$1 two "$2" "$3" bash -c '((SLURM_PROCID == 0)) || exec 2>"$MPI.err"
      "$@"; status=$?; ((SLURM_PROCID == 0)) || echo $status >"$MPI.end"' - \
      "$LOCKSTEP" train "${train[@]}" "${pace[@]}" --epochs 100000 --checkpoint.every-epochs 0 \
      --checkpoint.every-steps 20 \
      --comm.deadline-s 6 --out "frozen/$1" >"$1.log" 2>&1 &
  }
  MPI=pmix begin pmix "$node9" "$node10"
  MPI=none begin none "$node11" "$node12"
  until_it 600 has_checkpoint frozen/pmix
  until_it 600 has_checkpoint frozen/none
  fsfreeze -f frozen
  sleep 12  # twice the deadline
  local began=$EPOCHREALTIME alive=0
  for mpi in pmix none; do
    ! ended_by_it || alive=1
    for pid in $(pgrep -f "lockstep train .*--out frozen/$mpi\$"); do
      [[ $(readlink "/proc/$pid/exe") != "$LOCKSTEP" ]] || kill -USR1 "$pid"
    done
  done
  for mpi in pmix none; do
    happens 400 ended_by_it
    took=$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $began }")
    # Under PMIx, srun learns of the end first, and may kill rank 1 before it has ended itself.
    local ending=$(cat "$mpi.end" 2>/dev/null)
    [[ $ending || $mpi == none ]] || ending=$(grep -aoE 'task 1: Killed' "$mpi.log")
    said="after $took s: status $ending $(cat "$mpi.err" "$mpi.log" | tr '\r' '\n' |
      grep -av '^epoch')"
    echo "| file system frozen under the run, srun --mpi=$mpi | fsfreeze -f (deadline 6 s) | $took | $(first_error) | $ending |"
    says 'error: .*rank 0( on [^ ]*)? did not (arrive|answer) within 6 s; the others wait for rank 0 on .*for [0-9]+ s\): does the file system of the run answer\?' &&
      says 'with errorcode 4|status (4|task 1: Killed) ' && seconds_at_most 30 && ((alive == 0))
    verdict $? "srun --mpi=$mpi: $law"
  done
  fsfreeze -u frozen
  wait
}

# Rank 1 comes when rank 0's port has got 400 connections that say nothing; rank 0 may open 300
# files.
strangers() {
  local folder=$WORK/stranger_meetings mpi
  cat >strangers.py <<'END'
import glob, socket, sys, time

# What is being written next to the card has another ending.
while not (cards := glob.glob(sys.argv[1] + "/meeting-*-0")):
    time.sleep(0.1)
port = int(open(cards[0]).read().split("\n")[2])
held = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(400)]
open(sys.argv[2], "w").close()
time.sleep(9)
END
  for mpi in pmix none; do
    LOCKSTEP_RENDEZVOUS_DIR=$folder mpi=$mpi timed two "$node13" "$node14" bash -c '
      if ((SLURM_PROCID == 1)); then
        for ((i = 0; i < 300; ++i)); do [[ -e came-$mpi ]] && break || sleep 0.1; done
      else
        python3 strangers.py "$0" "came-$mpi" &
      fi
      ulimit -n 300
      exec "$@"' "$folder" "$LOCKSTEP" train "${train[@]}" "${few[@]}" --out "strangers-$mpi"
    echo "| 400 silent connections to the meeting, srun --mpi=$mpi | limit of 300 descriptors, rank 1 comes after them | $took | - | $status |"
    ((status == 0)) && [[ -e came-$mpi && -e strangers-$mpi/summary.json ]]
    verdict $? "srun --mpi=$mpi: 400 silent connections to the port where ranks meet do not keep them from meeting"
  done
}

step_daemon() {
  submit daemon --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --gpus-per-node=0 --mem=1000 \
    --nodelist="$node7,$node8" "$jobs/multi-node.sbatch" "${train[@]}" "${pace[@]}" \
    --checkpoint.every-steps 20 --epochs 60
  local job=$id pid
  until_it 1200 has_checkpoint daemon
  for pid in $(pgrep -f 'lockstep train .*--out daemon'); do
    grep -qzx 'SLURM_PROCID=3' "/proc/$pid/environ" 2>/dev/null &&
      [[ $(readlink "/proc/$pid/exe") == "$LOCKSTEP" ]] &&
      kill -KILL "$(awk '{ print $4 }' "/proc/$pid/stat")" && break
  done
  ends "$job" daemon 'slurmstepd of a node killed, multi-node.sbatch' 'kill -9' COMPLETED 0:0 \
    '[1-9]*' &&
    says 'resuming from daemon/checkpoints' && steps_are daemon 600
  verdict $? 'multi-node.sbatch: a step daemon that is killed costs a restart, not the job'
}
at_once 6 builds bad_option secrets strangers frozen_disk step_daemon
