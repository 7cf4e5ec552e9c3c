# What scripts on the mini cluster share, beside e2e.bash. They source it, say how large a cluster
# they want by `cluster N OPTION...`, and then stand in its shell.
source "$(dirname "${BASH_SOURCE[0]}")/e2e.bash"
mini_slurm=$(realpath "$support/../cluster/mini-slurm/mini-slurm")

skip_all() {
  echo "SKIP cluster, $(basename "$0" .sh): $1"
  exit 0
}

# cluster N OPTION...: N nodes, called $node1, $node2, ... Everything on them ends with the script.
# Numbers 5 to 9 of mini-slurm belong to the tests, which wait for one that is free; what a killed run left
# there is taken down.
cluster() {
  local command number i
  [[ $(id -u) == 0 ]] || skip_all 'needs root'
  for command in slurmctld slurmd srun munged ip bridge nsenter unshare; do
    command -v "$command" >/dev/null || skip_all "$command is not installed (jobs/setup.sh cluster)"
  done
  unshare --net --uts --ipc --pid --mount --fork true 2>/dev/null ||
    skip_all 'this machine gives no namespaces (a container needs --privileged)'
  unset ${!SLURM_*} ${!SBATCH_*} ${!SALLOC_*} ${!PMI*}  # the tests may run in a job themselves
  until_it 600 free_number || skip_all 'five other scripts have clusters up'
  export MINI_SLURM_ID=$number
  "$mini_slurm" down >/dev/null 2>&1
  trap 'show_cores; "$mini_slurm" down >/dev/null 2>&1' EXIT
  "$mini_slurm" up "$@" >up.log 2>&1 || { cat up.log; exit 1; }
  eval "$("$mini_slurm" env)"
  for ((i = 1; i <= $1; i++)); do printf -v "node$i" 'c%dnode%d' "$number" "$i"; done
  export LOCKSTEP_RENDEZVOUS_DIR=$WORK/meetings
  # Of a rank that jumped to nowhere Open MPI's own handler shows nothing; its core shows how it came there.
  ulimit -c unlimited 2>/dev/null
  export OMPI_MCA_opal_signal=
}

# free_number: `number` is one that no other script has; it is this one's until it ends.
free_number() {
  for number in 9 8 7 6 5; do
    exec 8>"/run/lock/lockstep-cluster-$number"
    flock -n 8 && return
  done
  return 1
}

# show_cores: where the threads of each rank that crashed here stood, and what lay on the stack of the culprit.
show_cores() {
  local core
  command -v gdb >/dev/null || return
  for core in "$WORK"/core*; do
    [[ -f $core ]] || continue
    echo "a rank crashed:"
    gdb -nx -batch -ex 'x/32ag $rsp' -ex 'thread apply all backtrace' "$LOCKSTEP" "$core" 2>&1
  done
}

# mini COMMAND...: what happens to nodes and networks (tests/cluster/mini-slurm/mini-slurm --help).
mini() { "$mini_slurm" "$@"; }

# in_batch LINE...: submits a script of these lines and waits; sbatch's options stand in `options`.
options=()
in_batch() {
  { echo '#!/bin/bash'; printf '%s\n' "$@"; } >batch.sh
  rm -f batch.log
  sbatch -W "${options[@]}" -o batch.log --open-mode=append batch.sh >sbatch.log 2>&1
  status=$?
  said=$(cat sbatch.log batch.log 2>/dev/null | tr -d '\0')
}
