#!/bin/bash
# seconds: 400
# Nodes and networks that fail under a training: within 30 s all ranks have ended, or go on as if
# nothing had been, and nobody but lockstep noticed: srun is told to do nothing about it.
source "$(dirname "$0")/../support/cluster.bash"
cluster 2 --conf SlurmdTimeout=120
pack_small
train=(train --data.train small/train --batch 16 --threads 1 --optim.lr 0.05 --audit.every-steps 0
  --checkpoint.every-epochs 0)

# begin RUN OPTION...: two ranks on each of two nodes; returns when they train. `step` is srun's.
begin() {
  local name=$1
  : >"$name.ends"
  srun -N2 --ntasks-per-node=2 --mpi=pmix --kill-on-bad-exit=0 bash -c \
    '"$@"; status=$?; echo "$SLURM_PROCID $status $(date +%s)" >>'"$name"'.ends' \
    - "$LOCKSTEP" "${train[@]}" --out "$name" "${@:2}" >"$name.log" 2>&1 &
  step=$!
  for _ in $(seq 600); do
    grep -q 'first step done' "$name.log" && break
    sleep 0.1
  done
  sleep 1
}

# ends_of RUN RANKS SECONDS: waits until so many ranks have ended by themselves, all with status 4.
ends_of() {
  local began=$SECONDS
  while (($(wc -l <"$1.ends") < $2 && SECONDS - began < $3)); do sleep 0.2; done
  seconds=$((SECONDS - began))
  said="after $seconds s: $(cat "$1.ends") $(tr -d '\0' <"$1.log")"
  (($(wc -l <"$1.ends") >= $2)) && ! grep -qv '^[0-9] 4 ' "$1.ends"
}

over() {  # nothing of a step is left, and both nodes are free
  scancel -u root 2>/dev/null
  [[ $# == 0 ]] || mini start-node "$1"
  wait $step 2>/dev/null
  for _ in $(seq 600); do
    (($(sinfo -h -N -o %t | grep -c '^idle$') == 2)) && break
    sleep 0.1
  done
}

steps=(--epochs 200)  # 3000: longer than the cut
begin stall "${steps[@]}"
mini cut "$node2"
sleep 5
mini mend "$node2"
wait $step
status=$?
said=$(tr -d '\0' <stall.log)
((status == 0)) && says 'done: 200 epoch' && ! says 'missing'
verdict $? 'a network that is cut for 5 s ends nobody'

begin lost --epochs 100000
mini cut "$node2"
ends_of lost 4 30 && says "2 of 4 ranks missing: rank 2 on $node2 \(silent for 2[0-9] s, last in step" &&
  says "rank 3 on $node2" && [[ -s lost/post-mortem.json && -s lost/post-mortem-rank2.json ]]
verdict $? 'a network that is cut for good: both sides end within 30 s, and each names the other'
mini mend "$node2"
over

begin crash --epochs 100000
mini kill-node "$node2"
ends_of crash 2 30 && says "2 of 4 ranks missing: rank 2 on $node2.*rank 3 on $node2"
verdict $? 'a node that crashes: the ranks of the other end within 30 s and name its ranks'
over "$node2"

begin first --epochs 100000
mini kill-node "$node1"
ends_of first 2 30
said+=$(cat first/post-mortem-rank2.json)
says '"missing": \[' && says "\"host\": \"$node1\",.*" && says 'rank 0 on'
verdict $? "the node of rank 0 crashes: the others end, and leave a post-mortem"
over "$node1"

begin killed --epochs 100000
pid=$(mini exec "$node2" pgrep -f "lockstep train" | sort -n | tail -n 1)
mini exec "$node2" kill -KILL "$pid"
sleep 3
ends_of killed 4 30
said+=$(cat killed.ends)
(($(grep -c '^[0-3] 4 ' killed.ends) == 3)) && says 'missing: rank [23] on .*its process has ended'
verdict $? 'srun does nothing about a rank that is killed: the others end by themselves'
over

mini shape "$node2" delay=20ms loss=2%
begin slow --epochs 1
wait $step
status=$?
mini shape "$node2"
said=$(tr -d '\0' <slow.log)
((status == 0)) && says 'done: 1 epoch' && ! says 'missing'
verdict $? 'a network that loses 2 % and delays by 20 ms only slows a training'
