#!/bin/bash
# A cgroup's quota of processor time, version 1: as a container's limit of cores has it.
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
