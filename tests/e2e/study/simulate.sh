#!/bin/bash
# lockstep simulate on the machines in jobs/machines, what-ifs, and bad input; bench comm between
# two ranks, and a simulation from its figures.
# waits
source "$(dirname "$0")/../../support/e2e.bash"
machines=$(realpath "$support/../../jobs/machines")

worst=0
for machine in "$machines"/*.toml; do
  run timeout 60 "$LOCKSTEP" simulate --machine "$machine" --json all.json
  ((status == 0)) && says '^10000 ' && says 'efficiency is' || worst=1
done
verdict $worst 'every machine is simulated from 1 to 10,000 ranks'

# step_ms OPTION...: of the last line.
step_ms() {
  "$LOCKSTEP" simulate --machine "$machines/dgx-a100-hdr.toml" --ranks 64 --json one.json \
    "$@" >/dev/null &&
    python3 -c 'import json; print(json.load(open("one.json"))["points"][-1]["step_ms"])'
}
usual=$(step_ms) && larger=$(step_ms --model resnet152) && float=$(step_ms --precision fp32) &&
  full=$(step_ms --batch 16384) && single=$(step_ms --comm.bucket-mb 4096) &&
  awk -v a="$usual" -v b="$larger" -v c="$float" -v d="$full" -v e="$single" \
    'BEGIN { exit !(b > 1.5 * a && c > 1.2 * a && d > 3 * a && e > a) }'
verdict $? 'a deeper network, more bits, more rows and a single bucket make a step longer'

# exposed OPTION...: ms of sums that backward does not hide, on 4 nodes of fast ranks at 1 Gb/s.
sed -e 's/^node-gb-per-s .*/node-gb-per-s = 0.125/' -e 's/^row-ms .*/row-ms = 0.5/' \
  "$machines/cpu-100gbe.toml" >slow.toml
on=(--ranks 4 --per-node 1)
exposed() {
  "$LOCKSTEP" simulate --machine slow.toml "${on[@]}" --json one.json "$@" >/dev/null &&
    python3 -c 'import json; print(json.load(open("one.json"))["points"][-1]["exposed_comm_ms"])'
}
fp32=$(exposed) && bf16=$(exposed --comm.wire bf16) && int8=$(exposed --comm.wire int8) &&
  rare=$(exposed --sync.every 8) &&
  awk -v a="$fp32" -v b="$bf16" -v c="$int8" -v d="$rare" \
    'BEGIN { exit !(a > 1.8 * b && a > 3 * c && a > 0.8 * 8 * d && c > 0 && d > 0) }'
verdict $? 'at 1 Gb/s bf16 shortens what is exposed by 1.8, int8 by 3, and agreeing every 8 steps by 6.4'

# Of 32 ranks int8 sends 7 times as much over a node's link as with a rank a node.
on=(--ranks 32 --per-node 8)
crowded=$(exposed --comm.wire int8) && whole=$(exposed) &&
  awk -v a="$int8" -v b="$crowded" -v c="$whole" 'BEGIN { exit !(b > 7 * a && b > 1.8 * c) }'
verdict $? 'of 8 ranks a node each sends its int8 over the link: dearer than fp32 over two levels'
on=(--ranks 4 --per-node 1)

products=$(exposed --comm.power-sgd 2 --power-sgd-gb-s 1e6) &&
  costly=$(exposed --comm.power-sgd 2 --power-sgd-gb-s 1) &&
  awk -v a="$fp32" -v b="$products" -v c="$costly" \
    'BEGIN { exit !(a > 10 * b && b > 0 && c - b > 100 && c - b < 104) }'
verdict $? 'products of rank 2 shorten it by more than 10, and making them takes the time that is given'

# 102 MB of weights leave each node once, 818 ms. A step of 16 ms hides late ones.
late=$(exposed --sync.gossip) && once=$(exposed --sync.gossip --sync.gossip-late 0) &&
  awk -v a="$fp32" -v b="$late" -v c="$once" \
    'BEGIN { exit !(a > 1.4 * b && c - b > 15 && c - b < 17 && c > 815 && c < 825) }'
verdict $? 'gossip sends two thirds of the bytes of four ranks, and a step hides late weights'

# A rank of ResNet-50 gives each other one 425,352 bytes in 98 gathers: to three 10.2 ms at 1 Gb/s,
# and 98 times a latency of 30 us and three messages of 5 us.
norms() {
  exposed --model-options.norm-ranks "$1" >/dev/null &&
    python3 -c 'import json; print(json.load(open("one.json"))["points"][-1]["norms_ms"])'
}
all=$(norms 4) && pairs=$(norms 2) &&
  awk -v a="$all" -v b="$pairs" \
    'BEGIN { exit !(a > 14.6 && a < 14.65 && b > 6.8 && b < 6.85) }'
verdict $? "batch norms of four ranks wait for three others' numbers, of pairs for one other's"

run "$LOCKSTEP" simulate --machine "$machines/dgx-a100-hdr.toml" --ranks 8 \
  --hwloc "$support/../fixtures/topologies/p4d.xml"
((status == 0)) && says '8 GPUs, 2 NUMA nodes' && says '31.5 +24.5 +rdmap16s27 +2 +15.8'
verdict $? 'the paths inside of an absent node are shown, bound and unbound'

run ranks 2 "$LOCKSTEP" bench comm --from-kb 16 --to-mb 2 --longest-s 0.2 --json comm.json
((status == 0)) && says '2 ranks on 1 node' && says 'alpha .*, beta .*/s \(bus' &&
  python3 - <<'END' && run "$LOCKSTEP" simulate --machine "$machines/cpu-100gbe.toml" \
    --comm comm.json
import json
verbs = json.load(open("comm.json"))["verbs"]
for verb in ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "send"):
    points = verbs[verb]["points"]
    assert len(points) >= 2 and all(p["seconds"] > 0 for p in points), verb
    factor = 0.5 if verb in ("reduce-scatter", "all-gather") else 1
    assert all(abs(p["busbw"] - factor * p["algbw"]) < 1e-6 * p["busbw"] for p in points), verb
END
((status == 0)) && says '^2 '
verdict $? 'bench comm measures every verb, and a simulation reads its figures'

run "$LOCKSTEP" simulate --machine "$machines/dgx-a100-hdr.toml" --batch 64 --ranks 3 \
  --json uneven.json
((status == 0)) && grep -q '"batch": 64,' uneven.json
verdict $? 'a batch that ranks share unequally is simulated, as it is trained'

cat >train.toml <<'END'
model = "resnet18"
accumulate = 4
[optim]
rule = "lamb"
lr = 0.01
[sync]
gossip = true
END
keys=(--model resnet18 --accumulate 4 --optim.rule lamb --sync.gossip)
one=$(exposed --config train.toml) && other=$(exposed "${keys[@]}") && [[ $one == "$other" ]] &&
  run "$LOCKSTEP" simulate --machine slow.toml "${on[@]}" --config train.toml &&
  says '^resnet18 in fp32' && says 'warning: .*does not know what accumulate, optim.rule make of'
verdict $? "a training's own file is what is simulated, and what the machine does not know is named"

# refused PATTERN COMMAND...: ends with status 2 and says why.
refused() {
  run "$LOCKSTEP" "${@:2}"
  ((status == 2)) && says "$1" || { worst=1; echo "$said"; }
}
worst=0
a100=(--machine "$machines/dgx-a100-hdr.toml")
grep -v '^row-ms' "$machines/dgx-a100-hdr.toml" >lacks.toml
refused 'lacks.toml: lacks .device.row-ms' simulate --machine lacks.toml
refused 'comm.power-sgd = 2 and comm.wire = bf16 both say how gradients travel' simulate \
  --machine slow.toml --comm.power-sgd 2 --comm.wire bf16
refused 'both say how ranks agree on weights' simulate --machine slow.toml --sync.gossip \
  --sync.every 8
refused 'ranks whose weights differ have no' simulate --machine slow.toml --sync.gossip \
  --model-options.norm-ranks 2 --ranks 4
refused 'sync.gossip-late = 2 would have no effect' simulate --machine slow.toml \
  --sync.gossip-late 2
refused '.--power-sgd-gb-s would have no effect without --comm.power-sgd' simulate "${a100[@]}" \
  --comm.power-sgd 0 --power-sgd-gb-s 2
refused '.--efficiency would have no effect without --tape' simulate "${a100[@]}" --efficiency 0.4
refused 'norm-ranks = 3 does not divide the number of ranks, 4' simulate --machine slow.toml \
  --ranks 4 --model-options.norm-ranks 3
refused 'does not share batch norm.s statistics' simulate "${a100[@]}" \
  --model-options.norm-ranks 2
refused 'none.toml' simulate --machine none.toml
refused \
  'another network or precision needs its rates, device.memory-gb-per-s and device.fp32-tflops' \
  simulate --machine "$machines/pcie-8.toml" --model resnet18
refused '.nonsense. is not known' simulate "${a100[@]}" --model nonsense
refused 'batch = 64 cannot be shared' simulate "${a100[@]}" --batch 64 --ranks 65
refused 'batch = 64 and batch-per-rank = 8 contradict each other' simulate "${a100[@]}" \
  --batch 64 --batch-per-rank 8
refused 'says nothing about others' simulate "${a100[@]}" --comm comm.json --ranks 5
refused 'lacks.toml: it is not a JSON object; lockstep' simulate "${a100[@]}" --comm lacks.toml
refused 'int4.*fp32, bf16, fp16' simulate "${a100[@]}" --comm.wire int4
refused 'leave out --comm' simulate --machine slow.toml --comm comm.json --sync.every 4
refused 'a simulation has no run' simulate "${a100[@]}" --stop-after 2
refused 'start two or more' bench comm
verdict $worst 'bad input is named'
