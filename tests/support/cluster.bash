# What scripts on the mini cluster share, in addition to e2e.bash. They source it and start a
# cluster of the size they need by `cluster N OPTION...`; then they run in its shell.
source "$(dirname "${BASH_SOURCE[0]}")/e2e.bash"
mini_slurm=$(realpath "$support/../cluster/mini-slurm/mini-slurm")

skip_all() {
  echo "SKIP cluster, $(basename "$0" .sh): $1"
  exit 0
}

# cluster N OPTION...: starts N nodes, called $node1, $node2, ... Everything on them ends with the
# script. Numbers 3 to 9 of mini-slurm belong to the tests; this waits for a free one and takes down
# what a killed run left there.
cluster() {
  local command number i
  [[ $(id -u) == 0 ]] || skip_all 'needs root'
  for command in slurmctld slurmd srun munged ip bridge nsenter unshare; do
    command -v "$command" >/dev/null || skip_all "$command is not installed (jobs/setup.sh cluster)"
  done
  unshare --net --uts --ipc --pid --mount --fork true 2>/dev/null ||
    skip_all 'this machine gives no namespaces (a container needs --privileged)'
  unset ${!SLURM_*} ${!SBATCH_*} ${!SALLOC_*} ${!PMI*}  # the tests may run in a job themselves
  try_for 600 free_number || skip_all 'seven other scripts have clusters up'
  export MINI_SLURM_ID=$number
  "$mini_slurm" down >/dev/null 2>&1
  trap 'show_cores; "$mini_slurm" down >/dev/null 2>&1' EXIT
  "$mini_slurm" up "$@" >up.log 2>&1 || { cat up.log; exit 1; }
  eval "$("$mini_slurm" env)"
  for ((i = 1; i <= $1; i++)); do printf -v "node$i" 'c%dnode%d' "$number" "$i"; done
  export LOCKSTEP_RENDEZVOUS_DIR=$WORK/meetings
  # When a rank jumps to a bad address, Open MPI's own handler shows nothing; its core shows how it
  # came there.
  ulimit -c unlimited 2>/dev/null
  export OMPI_MCA_opal_signal=
}

# free_number: sets `number` to one that no other script has; this script holds it until it ends.
free_number() {
  for number in {9..3}; do
    exec 8>"/run/lock/lockstep-cluster-$number"
    flock -n 8 && return
  done
  return 1
}

# show_cores: the threads of each rank that crashed here, and what was on the stack of the one at
# fault.
show_cores() {
  local core
  command -v gdb >/dev/null || return
  for core in "$WORK"/core*; do
    [[ -f $core ]] || continue
    echo "a rank crashed:"
    gdb -nx -batch -ex 'x/32ag $rsp' -ex 'thread apply all backtrace' "$LOCKSTEP" "$core" 2>&1
  done
}

# note_ends: sets `noted`, which srun starts as `bash -c "$noted" - COMMAND...`, so that the file
# $NOTE_END gets a line "RANK STATUS TIME" for each rank that ends. A rank notes that itself: srun,
# which PMIx tells of the first end, may kill the shell around a rank at once.
note_ends() {
  "${CXX:-g++}" -x c -O1 -shared -fPIC -o note_end.so "$support/preloads/note_end.c"
  noted="LD_PRELOAD=$PWD/note_end.so"' "$@"; status=$?
    ((status < 128)) || echo "$SLURM_PROCID $status $EPOCHREALTIME" >>"$NOTE_END"; exit "$status"'
}

# alive RUN: the processes of the ranks that write to this folder, as numbered in this shell.
alive() {
  local pid
  for pid in $(pgrep -f "lockstep train .*--out $1( |\$)"); do
    [[ ! "/proc/$pid/exe" -ef $LOCKSTEP ]] || echo "$pid"
  done
}

# mini COMMAND...: changes nodes and networks (see tests/cluster/mini-slurm/mini-slurm --help).
mini() { "$mini_slurm" "$@"; }

# in_batch LINE...: submits a script of these lines and waits; `options` holds sbatch's options.
options=()
in_batch() {
  { echo '#!/bin/bash'; printf '%s\n' "$@"; } >batch.sh
  rm -f batch.log
  sbatch -W "${options[@]}" -o batch.log --open-mode=append batch.sh >sbatch.log 2>&1
  status=$?
  said=$(cat sbatch.log batch.log 2>/dev/null | tr -d '\0')
}
