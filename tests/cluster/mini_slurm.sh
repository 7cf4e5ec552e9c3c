#!/bin/bash
# mini-slurm, the cluster that the other scripts use, really does to nodes and networks what it
# says.
# waits for Slurm
source "$(dirname "$0")/../support/cluster.bash"
cluster 2 --gpus-per-node 2

run srun -N2 --ntasks-per-node=2 --gpus-per-task=1 bash -c \
  'echo "$(hostname) $CUDA_VISIBLE_DEVICES"'
((status == 0)) && [[ $(sort <<<"$said" | tr '\n' ' ') == "$node1 0 $node1 1 $node2 0 $node2 1 " ]]
verdict $? 'each task has its node and its GPU'

# reaches: the first node can connect to the second one's slurmd.
address=$(awk -v node="$node2" '$2 == node { print $1 }' "/run/mini-slurm-$MINI_SLURM_ID/hosts")
port=$(scontrol show config | awk '$1 == "SlurmdPort" { print $3 }')
reaches() { mini exec "$node1" timeout 2 bash -c "exec 3<>/dev/tcp/$address/$port" 2>/dev/null; }
open_before=1 shut=1 mended=1
try_for 5 reaches && open_before=0
mini cut "$node2"
reaches || shut=0
mini mend "$node2"
try_for 5 reaches && mended=0
said="before $open_before, cut $shut, mended $mended"
((open_before + shut + mended == 0))
verdict $? 'a cut network carries nothing, and a mended one carries data again'

mini shape "$node2" delay=100ms
began=$(date +%s%N)
reaches
took=$((($(date +%s%N) - began) / 1000000))
mini shape "$node2"
said="connecting took $took ms"
((took >= 200))
verdict $? 'a delayed network is slow in both directions'

in_batch 'echo "$SLURM_RESTART_COUNT"' \
  '[[ $SLURM_RESTART_COUNT ]] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }'
((status == 0)) && says '^1$'
verdict $? 'a job that is requeued starts again'

mini kill-node "$node2"
run timeout 90 srun -N1 -w "$node1" hostname
((status == 0)) && says "$node1" && mini status | grep -q "$node2: down"
verdict $? 'a node that is killed is down, and the other node still works'
mini start-node "$node2" && mini wait "$node2"
run srun -N2 hostname
((status == 0)) && says "$node2"
verdict $? 'a node that was started again accepts tasks'

# A process that is still in a node's network holds the network, and so the interface to it.
state=/run/mini-slurm-$MINI_SLURM_ID
nsenter -t "$(cut -d' ' -f1 "$state/pid/init.$node1")" -n sleep 600 &
holder=$!
in_the_network() { [[ $(readlink "/proc/$holder/ns/net") != $(readlink /proc/self/ns/net) ]]; }
until_it 100 in_the_network
pids=$(cut -d' ' -f1 "$state"/pid/*)
mini down >/dev/null 2>&1
left=0
for pid in $pids; do  # zombies do not count
  grep -s '^State:' "/proc/$pid/status" | grep -qv Z && left=$pid
done
said="process: $left; $(ip -o link | grep -E "$node1|msbr$MINI_SLURM_ID")"
((left == 0)) && [[ ! -e $state ]] && ! says "$node1|msbr"
verdict $? 'when the cluster is down, no process, interface or file is left'
run mini up 2
((status == 0)) && kill -0 $holder
verdict $? "a process that still holds a node's network does not keep the next cluster from starting"
kill $holder
