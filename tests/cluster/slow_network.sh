#!/bin/bash
# ResNet-50's gradients on four nodes over links of 1 Gb/s, on the clock backend: what PowerSGD
# and gossip leave of the time that sums are exposed, and what a slow node does to others' steps.
# nightly
# waits for Slurm and for slow links
source "$(dirname "$0")/../support/cluster.bash"
cluster 4 --cpus 8 --mem 8000
for node in "$node1" "$node2" "$node3" "$node4"; do mini shape "$node" rate=1gbit; done
"$LOCKSTEP" pack --from shapes --out small --train-rows 64 --resize 32 >pack.log 2>&1

# exposed NAME OPTION...: the median of the steps' exposed ms, of a run of 8 steps.
exposed() {
  run srun -N4 --ntasks-per-node=1 --mpi=pmix "$LOCKSTEP" train --data.train small/train \
    --model resnet50 --batch 8 --epochs 1 --threads 1 --data.workers 1 --comm.bucket-mb 8 \
    --backend clock --clock.row-ms 10 --clock.step-ms 6 --out "$@"
  ((status == 0)) && python3 - "$1" <<'END'
import json, statistics, sys
lines = [json.loads(line) for line in open(f"{sys.argv[1]}/metrics.jsonl")]
times = [one["exposed_comm_ms"] for one in lines if "lr" in one and "exposed_comm_ms" in one]
assert len(times) == 8, times
print(statistics.median(times[2:]))
END
}
ten_times_less() {
  rm -rf whole products
  whole=$(exposed whole) && products=$(exposed products --comm.power-sgd 2) &&
    echo "    exposed: $whole ms, as products of rank 2 $products ms" &&
    awk -v a="$whole" -v b="$products" 'BEGIN { exit !(a > 10 * b && b > 0) }'
}
thrice ten_times_less
verdict $? 'at 1 Gb/s, gradients as products of rank 2 are exposed for a tenth of the time of whole ones'

shorter() {
  rm -rf whole push
  whole=$(exposed whole) && push=$(exposed push --sync.gossip true) &&
    echo "    exposed: $whole ms, with gossip $push ms" &&
    awk -v a="$whole" -v b="$push" 'BEGIN { exit !(a > 1.2 * b && b > 0) }'
}
thrice shorter
verdict $? 'at 1 Gb/s, weights that each rank sends once are exposed for less than 5/6 of the time of sums'

# A node that needs half as much again as the others' 0.4 s: sums have to wait for it, and messages
# that are on their way for longer do not.
python3 - "$support/../../jobs/gpus/a100.json" <<'END'
import json, os, sys
profile = json.load(open(sys.argv[1]))
for rank, slower in enumerate((1000, 1000, 1000, 1500)):
    os.makedirs(f"node-{rank}")
    slow = dict(profile, rates={k: rate / slower for k, rate in profile["rates"].items()})
    json.dump(slow, open(f"node-{rank}/pace.json", "w"))
END
# paced NAME OPTION...: the median of rank 0's steps, ms, with the pace in each rank's folder.
paced() {
  run srun -N4 --ntasks-per-node=1 --mpi=pmix bash -c 'cd node-$SLURM_PROCID && exec "$@"' - \
    "$LOCKSTEP" train --data.train "$PWD/small/train" --model resnet50 --batch 8 --epochs 2 \
    --threads 1 --data.workers 1 --comm.bucket-mb 8 --backend clock --clock.profile pace.json \
    --clock.efficiency 1 --out "$PWD/$1" "${@:2}"
  ((status == 0)) && python3 - "$1" <<'END'
import json, statistics, sys
lines = [json.loads(line) for line in open(f"{sys.argv[1]}/metrics.jsonl")]
parts = [f"{part}_ms" for part in "data forward backward exposed_comm update other".split()]
steps = [sum(one[part] for part in parts) for one in lines if "lr" in one and "update_ms" in one]
assert len(steps) == 16, steps
print(statistics.median(steps[3:8] + steps[11:]))
END
}
not_held_up() {
  rm -rf all-alike one-slow sum-alike sum-slow
  cp node-3/pace.json slow.json && cp node-0/pace.json node-3/pace.json
  alike=$(paced all-alike --sync.gossip true) && sum_alike=$(paced sum-alike)
  cp slow.json node-3/pace.json
  slow=$(paced one-slow --sync.gossip true) && sum_slow=$(paced sum-slow) &&
    echo "    steps: $alike ms, next to a slow node $slow ms; with sums $sum_alike, $sum_slow ms" &&
    awk -v a="$alike" -v b="$slow" 'BEGIN { exit !(b <= 1.1 * a && a > 0) }'
}
thrice not_held_up
verdict $? "at 1 Gb/s, a node that takes 1.5 times as long lengthens others' steps by gossip by at most 10 %"
