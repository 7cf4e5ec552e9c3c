#!/bin/bash
# The preflight on several nodes: all nodes good; a node with a slow network, with little time on
# its cores, or with another limit; and a data set that is not mounted.
# computes
# alone: it measures nodes
source "$(dirname "$0")/../support/cluster.bash"
cluster 3

preflight() { run srun -N3 --ntasks-per-node=1 --mpi=pmix "$@"; }

# left_out NODE: the verdict excludes this node. It may exclude others by chance, even in one range
# with it, because the nodes share this machine's processors.
left_out() {
  local list
  list=$(sed -n 's/.*leave out --exclude=\([^ ]*\).*/\1/p' <<<"$said" | tail -n 1)
  [[ -n $list ]] && scontrol show hostnames "$list" | grep -qx "$1"
}

took_less_than() {
  awk -v took="$(sed -n 's/.*took \([0-9.]*\) s.*/\1/p' <<<"$said")" -v most="$1" \
    'BEGIN { exit !(took != "" && took + 0 < most + 0) }'
}

# The preflight measures nodes that share this machine with each other and with everything else, and
# leaves out the slow ones: a moment in which one of them gets little is a measurement, too. So the
# four laws about measured figures have three tries.

# All nodes share one processor, so each gets the same part of it; with two, one node would have its
# own.
sound() {
  preflight taskset -c 0 "$LOCKSTEP" preflight --json all.json
  ((status == 0)) && (($(grep -Ec "^c[0-9]node[123] .* good$" <<<"$said") == 3)) &&
    (($(grep -c '"round_trip_s"' all.json) == 3)) && took_less_than 15
}
thrice sound
verdict $? 'three sound nodes with three links pass in less than 15 s'

slow() {
  preflight "$LOCKSTEP" preflight
  ((status == 1)) && says "$node2: 2 of its 2 links are slow: at best [0-9.]+ MB/s" &&
    left_out "$node2"
}
mini shape "$node2" rate=40mbit
thrice slow
verdict $? 'the node with a slow network is named, with the option that excludes it'

far() {
  preflight "$LOCKSTEP" preflight
  ((status == 1)) && says "$node2: 2 of its 2 links are slow: .* [34][0-9][0-9]\.[0-9]+ ms there and back" && took_less_than 15
}
mini shape "$node2" delay=150ms
thrice far
verdict $? 'a node that is very far away is named, in less than 15 s'

pair() {
  run srun -N2 -w "$node1,$node2" --ntasks-per-node=1 --mpi=pmix "$LOCKSTEP" preflight \
    --json two.json
  says "between all nodes: [0-9.]+ MB/s, .*: slow for a cluster's network" &&
    awk -F '[:,]' '/"bytes_per_s"/ { exit !($2 < 6e6) }' <(grep -A4 '"nodes"' two.json)
}
mini shape "$node2" rate=40mbit
thrice pair
verdict $? 'a slow link between two nodes is reported, and no node is blamed for it'
mini shape "$node2"

preflight bash -c "[[ \$SLURMD_NODENAME != $node3 ]] || ulimit -n 777; exec \"$LOCKSTEP\" preflight"
((status == 1)) && says "$node3: limit of open files \(ulimit -n\) 777, on 2 other nodes " &&
  left_out "$node3"
verdict $? 'the node with another limit is named'

run salloc -N3 --ntasks-per-node=1 mpirun bash -c \
  "((OMPI_COMM_WORLD_RANK != 2)) || ulimit -n 777; exec \"$LOCKSTEP\" preflight"
((status == 1)) && left_out "$node3" && ! says 'mpirun|non-zero'
verdict $? 'under mpirun it is named, too, and mpirun adds nothing'

# The data set is hidden on one node: its task sees an empty folder.
pack_small
train=("$LOCKSTEP" train --data.train "$WORK/small/train" --epochs 1 --batch 48 --threads 1)
preflight unshare --mount bash -c \
  "[[ \$SLURMD_NODENAME != $node1 ]] || mount -t tmpfs none '$WORK/small'; exec \"\$@\"" - \
  "${train[@]}" --out lost --require-preflight
((status == 2)) && says "$node1: $WORK/small/train is not there, on 2 other nodes can be read" &&
  says 'would leave out --exclude=' && left_out "$node1" && [[ ! -e lost ]]
verdict $? 'a training that requires its preflight does not begin where a node lacks the data'

preflight "${train[@]}" --out run --preflight
((status == 0)) && says 'preflight of 3 node' && says 'done: 1 epoch' &&
  grep -q '"flops_per_s"' run/preflight.json
verdict $? 'a training begins after its preflight, whose report is in the run'\''s folder'

# All nodes come first on this machine, and this one may have a twelfth of a core.
groups=/sys/fs/cgroup/cpu/lockstep-$MINI_SLURM_ID
slow=$groups/slow quick=$groups/quick
if [[ -w /sys/fs/cgroup/cpu/cgroup.procs ]] && mkdir -p "$slow" "$quick" 2>/dev/null; then
  echo 262144 | tee "$groups/cpu.shares" "$slow/cpu.shares" >"$quick/cpu.shares"
  echo 8000 >"$slow/cpu.cfs_quota_us"
  preflight bash -c "[[ \$SLURMD_NODENAME == $node2 ]] && group=$slow || group=$quick
    echo 0 >\$group/cgroup.procs; exec \"$LOCKSTEP\" preflight"
  for _ in $(seq 50); do rmdir "$slow" "$quick" "$groups" 2>/dev/null && break; sleep 0.1; done
  ((status == 1)) && says "$node2: the measuring threads got [0-9]+ % of their cores" &&
    left_out "$node2"
  verdict $? 'the node whose cores something else uses is named'
else
  echo 'SKIP the node whose cores something else uses is named: no cgroup v1 to slow one down'
fi
