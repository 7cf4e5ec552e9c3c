#!/bin/bash
# ResNet-50's gradients on four nodes over links of 1 Gb/s, on the clock backend: what PowerSGD
# leaves of the time that sums are exposed.
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
