#!/bin/bash
# A cgroup's quota of processor time and its limit of memory, version 1: as a container's limits
# have them.
# ci
# computes
root=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/../../support/e2e.bash"
group=/sys/fs/cgroup/cpu/lockstep-$$
if [[ $(nproc) -lt 2 ]] || ! mkdir $group 2>/dev/null; then
  echo 'SKIP a quota decides how many threads compute: it takes 2 cores, and the right to make groups'
  exit 0
fi
trap 'echo $$ >/sys/fs/cgroup/cpu/cgroup.procs; rmdir $group' EXIT
pack_small
within() {  # within QUOTA COMMAND...: microseconds of each 100 ms
  echo $1 >$group/cpu.cfs_quota_us && echo $BASHPID >$group/cgroup.procs && exec "${@:2}"
}
train=("$LOCKSTEP" train --data.train small/train --batch 50 --epochs 1)

run within 50000 "${train[@]}" --out half
((status == 0)) && says "a cgroup's quota gives the time of 0.5 of $(nproc) cores: 1 thread$" &&
  says ', 1 thread'
verdict $? 'half a core has one thread'
run within 150000 "${train[@]}" --out more
((status == 0)) && says "the time of 1.5 of $(nproc) cores: 2 threads$" && says ', 2 threads'
verdict $? 'one and a half have two'
run within 50000 "${train[@]}" --threads 2 --out asked
((status == 0)) && says ': 2 threads, which will be stopped at times$' && says ', 2 threads'
verdict $? 'more threads are taken where they are asked for, and said'
run within 200000 mpirun --oversubscribe --bind-to none -np 2 "${train[@]}" --out two
((status == 0)) && ! says "a cgroup's quota"
verdict $? 'a quota of all cores changes nothing'

memory=/sys/fs/cgroup/memory/lockstep-$$
if ! mkdir $memory 2>/dev/null; then
  echo 'SKIP a limit of memory takes the right to make groups'
  exit 0
fi
trap 'echo $$ >/sys/fs/cgroup/cpu/cgroup.procs; rmdir $group; rmdir $memory' EXIT
limited() {  # limited BYTES COMMAND...
  echo $1 >$memory/memory.limit_in_bytes && echo $BASHPID >$memory/cgroup.procs && exec "${@:2}"
}
run limited 2147483648 "${train[@]}" --out roomy
((status == 0)) && says "^a cgroup limits memory to 2.1 GB; steps of 1 rank need [0-9.]+ MB" &&
  grep -q 'oom_kill 0' $memory/memory.oom_control
verdict $? 'a limit of memory is said, with what steps need of it, and kept'
run limited 209715200 "$LOCKSTEP" train --data.train small/train --batch 250 --model resnet50 \
  --dry-run --out tight
says '^warning: a cgroup limits memory to 209.7 MB; .* the system will end them'
verdict $? 'steps that need more than that are announced before the system ends them'
