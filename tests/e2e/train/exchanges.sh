#!/bin/bash
# Ways to agree on gradients or weights (`comm.wire`, `comm.power-sgd`, `sync.every`,
# `sync.gossip`): runs say what they do, resume with the same bits, and are not mixed with others.
# ci
# computes
source "$(dirname "$0")/../../support/e2e.bash"
pack_small 130  # 8 steps an epoch
train=("$LOCKSTEP" train --data.train small/train --data.val small/val --batch 16 --epochs 2
  --threads 1 --comm.bucket-mb 0.1 --checkpoint.every-steps 4 --checkpoint.keep 20
  --checkpoint.background false)
last=checkpoints/step-00000016.h5
run ranks 2 "${train[@]}" --out exact
tensors exact/$last >exact.tensors || stop_here "$said"

# kept NAME EXCHANGE PATTERN OPTION...: a run says PATTERN, has other weights than the exact one,
# and ends with the same bits when it was stopped in an epoch's middle.
kept() {
  local run=$1 exchange=$2
  run ranks 2 "${train[@]}" "${@:4}" --out $run
  ((status == 0)) && says "exchange '$exchange': $3" && tensors $run/$last >$run.tensors &&
    ! cmp -s exact.tensors $run.tensors && run "$LOCKSTEP" info $run/$last &&
    says "exchange '$exchange'"
  verdict $? "a run with ${*:4} says so, in its first lines and in its checkpoints"
  run ranks 2 "${train[@]}" "${@:4}" --out $run-cut --stop-after 10
  ((status == 3)) || echo "$said"
  run ranks 2 "${train[@]}" "${@:4}" --out $run-cut --resume auto
  ((status == 0)) && tensors $run-cut/$last | cmp - $run.tensors
  verdict $? "a run with ${*:4} that was stopped after step 10 resumes with the same bits"
}
statistics='and running statistics as fp32'
kept bf16 bf16 "gradients travel as bf16, $statistics" --comm.wire bf16
kept fp16 fp16 "gradients travel as fp16, $statistics" --comm.wire fp16
kept int8 int8 "gradients travel as int8 with a scale for each 256 $statistics" --comm.wire int8
kept power power-sgd 'gradients of .* matrices travel as products of rank 2 from step 8 on' \
  --comm.power-sgd 2 --comm.power-sgd-from-epoch 1
kept rare local '2 groups of 1 ranks agree on their weights every 3 steps; .* their mean is' \
  --sync.every 3 --sync.group rank
kept outer local '.* every 4 steps from step 8 on, with an outer momentum of 0.5' \
  --sync.every 4 --sync.group rank --sync.from-epoch 1 --sync.outer-momentum 0.5
kept push gossip '.* half of its weights to another one, which adds them at once; .* their mean' \
  --sync.gossip true --sync.gossip-late 0
kept late gossip '.* sends half of its weights to another one, which adds them 2 steps later; ' \
  --sync.gossip true --sync.gossip-late 2

# A step is 12 ms for the first group and 116 ms for the second one.
python3 - "$support/../../jobs/gpus/a100.json" <<'END'
import json, os, sys
profile = json.load(open(sys.argv[1]))
for rank, slower in enumerate((1, 10)):
    os.makedirs(f"rank-{rank}")
    rates = {key: rate / slower for key, rate in profile["rates"].items()}
    json.dump(dict(profile, rates=rates), open(f"rank-{rank}/pace.json", "w"))
END
run ranks 2 bash -c 'cd rank-$OMPI_COMM_WORLD_RANK && exec "$@"' - "$LOCKSTEP" train \
  --data.train "$PWD/small/train" --batch 16 --epochs 2 --threads 1 --backend clock \
  --clock.profile pace.json --clock.efficiency 0.001 --out "$PWD/paced" --sync.every 4 \
  --sync.group rank
((status == 0)) && python3 - <<'END'
import json
lines = [json.loads(line) for line in open("paced/metrics.jsonl")]
waits = [one["exposed_comm_ms"] for one in lines if "lr" in one and "exposed_comm_ms" in one]
assert len(waits) == 16, waits
for step, ms in enumerate(waits[4:]):
    assert ms > 250 if step % 4 == 3 else ms < 50, waits
END
verdict $? 'a group waits for a slower one where they agree, and not in the steps between'

# A rank that is killed, in a world that is no power of two, where micro-batches add up.
three=("${train[@]/%2/4}")  # epochs
three=("${three[@]/%16/18}" --accumulate 2 --sync.gossip true)
run ranks 3 "${three[@]}" --out three
whole=$(ls three/checkpoints | tail -n 1)
((status == 0)) && tensors "three/checkpoints/$whole" >three.tensors
mpirun --oversubscribe --bind-to none -np 3 "${three[@]}" --out three-cut >cut.log 2>&1 &
mpirun=$!
until_it 900 test -e three-cut/checkpoints/step-00000004.h5
rank_pids $mpirun
kill -KILL "${pids[1]}"
wait $mpirun
run ranks 3 "${three[@]}" --out three-cut --resume auto
((status == 0)) && says 'resum' && tensors "three-cut/checkpoints/$whole" | cmp - three.tensors
verdict $? 'three ranks that gossip, of which one was killed, resume with the same bits'

refused() {  # refused NAME PATTERN RANKS OPTION...
  run ranks "$3" "${train[@]}" "${@:4}"
  ((status == 2)) && says "$2"
  verdict $? "$1"
}
refused 'a resume with other gradients is an error that names both and the key' \
  "step-.* was written with the exchange 'int8', but this run has 'bf16': .*comm.wire" \
  2 --out int8 --resume auto --comm.wire bf16
last_but_one() { printf '%s\n' "$1"/checkpoints/step-*.h5 | tail -n 2 | head -n 1; }
continues() {  # continues NAME RUN PATTERN RANKS OPTION...: from the last checkpoint but one
  local from
  from=$(last_but_one $2)
  run ranks "$4" "${train[@]}" "${@:5}" --resume "$from" --out $2-$4
  ((status == 0)) && says "the result may differ.*$3" && tensors $2-$4/$last >$2-$4.tensors
  verdict $? "$1"
}
continues 'a resume of int8 on another number of ranks says what is left out' \
  int8 'what int8 had left out .of 2 ranks, now 3' 3 --comm.wire int8
refused 'int8 with one rank is an error that names both keys' \
  'comm.wire = int8 .* ranks = 1' 1 --comm.wire int8 --out one
refused 'int8 with fp16 is an error that names both keys' \
  'comm.wire = int8 .* precision = fp16' 2 --comm.wire int8 --precision fp16 --out both
continues 'a resume of products on another number of ranks says what is left out' \
  power 'what PowerSGD had left out .of 2 ranks, now 3' 3 --comm.power-sgd 2 \
  --comm.power-sgd-from-epoch 1
continues 'a resume of rare agreements on another number of groups begins at the mean, and says so' \
  rare 'own weights, which begin at their mean .of 2 groups, now 3' 3 --sync.every 3 \
  --sync.group rank
refused 'a resume with another rank of products is an error that names the key' \
  "another rank of its products .comm.power-sgd., which here is 1" \
  2 --comm.power-sgd 1 --comm.power-sgd-from-epoch 1 --out power --resume auto
refused 'products with one rank are an error that names both keys' \
  'comm.power-sgd = 2 .* ranks = 1' 1 --comm.power-sgd 2 --out one
refused 'products with a narrow wire are an error that names both keys' \
  'comm.power-sgd = 2 and comm.wire = bf16' 2 --comm.power-sgd 2 --comm.wire bf16 --out both
refused 'products of gradients with rare agreements are an error that names both keys' \
  'comm.power-sgd = 2 .* sync.every = 4' 2 --comm.power-sgd 2 --sync.every 4 --out both
refused 'products with fp16 are an error that names both keys' \
  'comm.power-sgd = 2 .* precision = fp16' 2 --comm.power-sgd 2 --precision fp16 --out both
refused 'a rank of products that is too large is named, with its range' \
  'comm.power-sgd.* 0 (to|and) 8' 2 --comm.power-sgd 9 --out none
refused 'the epoch of products without products is named' \
  'comm.power-sgd-from-epoch.*comm.power-sgd' 2 --comm.power-sgd-from-epoch 1 --out none
refused 'products that begin before the warm-up has ended are an error that names both keys' \
  'comm.power-sgd-from-epoch = 1 .* optim.warmup-epochs = 1.5' 2 --comm.power-sgd 2 \
  --comm.power-sgd-from-epoch 1 --optim.warmup-epochs 1.5 --out none
refused 'products after a warm-up that never ends are an error that names both keys' \
  'comm.power-sgd = 2 .* optim.warmup-epochs = 2 ' 2 --comm.power-sgd 2 --optim.warmup-epochs 2 \
  --out none
refused 'a wire that does not exist is named, with those that do' \
  'comm.wire.*int4.*fp32, bf16, fp16' 2 --comm.wire int4 --out none
refused 'groups of nodes on one node are an error that names the keys' \
  'sync.every = 4 .* sync.group = node, and all ranks are on one node' \
  2 --sync.every 4 --out one
refused 'weights do not travel narrow: the error names both keys' \
  'sync.every = 4 .* comm.wire = bf16' 2 --sync.every 4 --comm.wire bf16 --out both
refused 'one rank has no one to agree with' 'sync.every = 4 .* ranks = 1' 1 --sync.every 4 --out one
refused 'a key of groups without groups is named' 'sync.group.*sync.every' 2 --sync.group rank \
  --out none
refused 'gossip with one rank is an error that names both keys' \
  'sync.gossip = true .* ranks = 1' 1 --sync.gossip true --out one
for other in 'sync.every 4' 'comm.wire int8' 'comm.power-sgd 2' 'optim.ema 0.9' 'precision fp16'; do
  refused "gossip with ${other% *} is an error that names both keys" \
    "sync.gossip = true and ${other% *} = ${other#* } do not fit together" \
    2 --sync.gossip true --$other --out both
done
refused 'late weights without gossip are named' 'sync.gossip-late.*sync.gossip' \
  2 --sync.gossip-late 2 --out none
continues 'a resume of gossip as an exact run begins at the mean, and says so' \
  late 'exchange .gossip, now exact., with which all ranks begin at their mean' 2
for one in 'int8 int8 --comm.wire int8' 'rare local --sync.every 3 --sync.group rank' \
  'power power-sgd --comm.power-sgd 2 --comm.power-sgd-from-epoch 1' \
  'push gossip --sync.gossip true --sync.gossip-late 0'; do
  read -r name exchange keys <<<"$one"
  continues "on one rank a run with $keys continues as an exact one, and says so" \
    $name "exchange .$exchange, now exact., with which all ranks begin at their mean" 1 $keys
done
run ranks 2 "${train[@]}" --sync.gossip true --out back --stop-after 5 &&
  run ranks 1 "$LOCKSTEP" resume back --stop-after 7
((status == 3)) && says "exchange 'exact' in place of 'gossip'" && says 'gossip, now exact' &&
  run ranks 2 "$LOCKSTEP" resume back --stop-after 9
((status == 3)) && says 'exact, now gossip.*begin at their mean' && says "exchange 'gossip': "
verdict $? "'resume' continues a run that gossips on one rank, and then on two again"
continues 'a resume of gossip on another number of ranks begins at the mean, and says so' \
  late "own weights, which begin at their mean .of 2 ranks, now 3" 3 --sync.gossip true \
  --sync.gossip-late 2
refused 'a resume with other delays is an error that names the key' \
  'sync.gossip-late., which here is 1' 2 --sync.gossip true --out late --resume auto

# nodes "3 2" COMMAND...: that many ranks on each of some nodes.
nodes() {
  local counts=($1) each=() count node=0
  shift
  for count in "${counts[@]}"; do
    ((++node))
    while ((count-- > 0)); do each+=(${each:+:} env SLURMD_NODENAME=node$node "$@"); done
  done
  unlike_ranks "${each[@]}" 2>&1
}
unlike=("${train[@]/%16/20}" --sync.every 4 --sync.outer-momentum 0.9)
run nodes '2 1' "${unlike[@]}" --out unlike
((status == 0)) && says '2 groups of 1 to 2 ranks agree' && says 'takes up to .* each of 2 nodes' &&
  run nodes '2 1' "${unlike[@]}" --out unlike-cut --stop-after 6 &&
  run nodes '2 1' "${unlike[@]}" --out unlike-cut --resume auto
((status == 0)) && tensors unlike-cut/checkpoints/step-00000012.h5 >cut.tensors &&
  tensors unlike/checkpoints/step-00000012.h5 | cmp - cut.tensors
verdict $? 'groups of nodes with unlike numbers of ranks resume with the same bits'
run nodes '3' "${unlike[@]}" --out unlike-one --resume "$(last_but_one unlike)"
((status == 0)) && says 'local, now exact.*begin at their mean'
verdict $? 'groups of nodes continue as an exact run on one node, and say so'

# A bit of a rank's part is wrong.
cp -r push torn && python3 - torn/$last <<'END'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(-4321, 2)
    byte = file.read(1)[0]
    file.seek(-1, 1)
    file.write(bytes([byte ^ 1]))
END
run ranks 2 "${train[@]}" --sync.gossip true --sync.gossip-late 0 --out none --resume torn/$last
((status == 2)) && says 'error: torn/checkpoints/step-00000016.h5: the part rank-1 .* torn'
verdict $? "a torn part of one rank's state in a checkpoint that was named is an error"
run ranks 2 "${train[@]/%2/3}" --sync.gossip true --sync.gossip-late 0 --out torn --resume auto
((status == 0)) && says 'step-00000016.h5: the part rank-1 .* torn .*looking for an earlier one' &&
  says 'resuming from torn/checkpoints/step-000000'
verdict $? "a torn part of one rank's state is named, and the checkpoint before it is taken"

# Convolutions have other layouts on other instruction sets.
moved() {  # moved ONE OTHER: the largest difference of a weight
  "$LOCKSTEP" export "$1" --to one.npz --force >export.log 2>&1 &&
    "$LOCKSTEP" export "$2" --to other.npz --force >>export.log 2>&1 || cat export.log
  python3 - <<'END'
import array, zipfile
def weights(name):
    with zipfile.ZipFile(name) as file:
        for entry in sorted(file.namelist()):
            if entry.endswith("weight.npy"):
                data = file.read(entry)
                yield array.array("f", data[10 + int.from_bytes(data[8:10], "little"):])
print(max(abs(a - b) for one, other in zip(weights("one.npz"), weights("other.npz"))
          for a, b in zip(one, other)))
END
}
elsewhere() {  # elsewhere RUN MOST OPTION...: one step, after which no weight differs by MOST
  local law="a resume of $1 on another instruction set continues with the same state" isa from to
  from=$(last_but_one $1)
  to=$((10#$(basename $from .h5 | tr -dc 0-9) + 1))
  local step=("${train[@]}" "${@:3}" --resume $from --stop-after $to --out)
  to=$(printf 'checkpoints/step-%08d.h5' $to)
  run ranks 2 "${step[@]}" $1-here
  ((status == 3)) || verdict $? "$law"
  for isa in SSE41 AVX2 AVX512_CORE; do
    rm -rf $1-isa
    ONEDNN_MAX_CPU_ISA=$isa run ranks 2 "${step[@]}" $1-isa
    ((status == 3)) && ! says 'backend \(' && continue
    ((status == 3)) && ! says 'begin at their mean|left out' &&
      python3 -c "import sys; sys.exit(not float(sys.argv[2]) < float(sys.argv[1]))" \
        $2 "$(moved $1-here/$to $1-isa/$to)"
    verdict $? "$law: $isa"
    return
  done
  echo "SKIP $law: oneDNN has one instruction set here"
}
# Each scale of int8 is for 256 numbers that lie next to each other: elsewhere these are others.
elsewhere int8 1e-3 --comm.wire int8
elsewhere power 1e-5 --comm.power-sgd 2 --comm.power-sgd-from-epoch 1
elsewhere rare 1e-5 --sync.every 3 --sync.group rank
elsewhere outer 1e-5 --sync.every 4 --sync.group rank --sync.from-epoch 1 --sync.outer-momentum 0.5
elsewhere late 1e-5 --sync.gossip true --sync.gossip-late 2
[[ ! -e one && ! -e both && ! -e none ]]
verdict $? 'an error makes no folder'
run ranks 1 "${train[@]}" --comm.wire bf16 --out alone
((status == 0)) && run ranks 1 "${train[@]}" --out single && tensors alone/$last >alone.tensors &&
  tensors single/$last | cmp - alone.tensors
verdict $? 'a rank alone rounds nothing: a scaling study may begin with it'
