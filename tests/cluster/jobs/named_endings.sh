#!/bin/bash
# What lockstep why says of many runs that really ended in these ways, each way at several moments,
# seeds and ranks, and of as many to which nothing happened. e2e/study/why.sh does one of each.
# seconds: 1800
# nightly
# waits for ranks to be missed
# apart: crowd
own=$(realpath "$(dirname "$0")")
source "$own/../../support/faults.bash"
mkdir full ice
mount -t tmpfs -o size=24m tmpfs full && truncate -s 100M ice.ext4 &&
  mkfs.ext4 -q ice.ext4 && mount -o loop ice.ext4 ice || skip_all 'no file system can be mounted'
let_go() {
  fsfreeze -u "$WORK/ice" 2>/dev/null
  umount -l "$WORK/ice" "$WORK/full"
}
trap let_go EXIT
cluster 24 --conf SlurmdTimeout=120 --conf MinJobAge=3600 \
  --conf PreemptType=preempt/partition_prio --conf PreemptMode=CANCEL \
  --conf 'PartitionName=low Nodes=ALL PriorityTier=1 GraceTime=20' \
  --conf 'PartitionName=high Nodes=ALL PriorityTier=10'
trap 'show_cores; mini down >/dev/null 2>&1; let_go' EXIT
pack_small
cat >damage.py <<'END_OF_SCRIPT'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(file.seek(0, 2) // 2)
    file.write(b"\xa5" * 4096)
END_OF_SCRIPT
rows=(--data.train small/train)
train=("$LOCKSTEP" train --batch 25 --threads 1 --audit.every-steps 0 --checkpoint.every-epochs 0)
for_ever=(--epochs 100000 --checkpoint.every-steps 5 --optim.lr 0.001)
clock=(--backend clock --clock.step-ms 50)

source "$own/endings.bash"
: >truth >healthy
at_once 7 time_limit hard_limit healthy1 healthy2 healthy3 preempted preempted_deaf cut_off \
  unplugged a_link a_link_of_tcp small_packets crash crash_of_the_first held_rank lost_rank frozen \
  failing_disk disk_full killed_for_memory out_of_memory out_of_time finished stopped diverged \
  bad_data disagreement killed unknown

run python3 "$own/named_endings.py" kinds truth
echo "$said"
verdict $status 'why names sixty endings of twelve kinds, with a macro-F1 of 0.97 at least'
run python3 "$own/named_endings.py" healthy healthy
verdict $status 'why accuses none of a hundred healthy runs'
