#!/bin/bash
# Fine-tuning: what --freeze keeps and saves, how it resumes, bad options, the last layer.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
pack_small

train=("$LOCKSTEP" train --data.train small/train --data.val small/val --batch 24 --threads 1
  --data.flip --optim.lr 0.05)
run ranks 2 "${train[@]}" --epochs 1 --out base
base=base/checkpoints/best.h5
tensors $base | paste - - >base.tensors
((status == 0)) && [[ -s base.tensors ]] && ! says 'frozen'
verdict $? 'a training without --freeze says nothing of it'

# bits OF PATTERN: the checksums of the tensors whose names match.
bits() { grep -E "$2" "$1" | sort; }
reduced() { grep -o 'a step reduces [0-9.]* [kM]*B' <<<"$said" | grep -o '[0-9.]* [kM]*B'; }
in_bytes() { awk '{ print $1 * ($2 == "MB" ? 1e6 : $2 == "kB" ? 1e3 : 1) }'; }

tuned=("${train[@]}" --init $base --epochs 2 --optim.ema 0.9 --checkpoint.every-steps 4)
frozen='"weights/(conv1|bn1|layer1|layer2)[.]'
run ranks 2 "${tuned[@]}" --freeze layer2 --out layer2
((status == 0)) && says 'frozen up to layer2: [0-9]* of [0-9]* parameters learn; a step reduces'
verdict $? 'a run says what is frozen, what learns and what a step reduces'
run "$LOCKSTEP" scaling base layer2
((status == 0)) && says 'base and layer2 have other numbers of learned weights \(--freeze\)'
verdict $? 'runs of which one freezes layers are not compared in silence'
worst=0
for other in 'comm.wire int8' 'sync.gossip true'; do
  run ranks 2 "${train[@]}" --init $base --freeze layer2 --$other --stop-after 1 --out "${other% *}"
  ((status == 3)) && says 'parameters learn$' && ! says 'a step reduces' || worst=1
done
verdict $worst 'what a step reduces is left out where other bytes travel'
tensors layer2/checkpoints/step-00000020.h5 | paste - - >layer2.tensors
cmp <(bits base.tensors "$frozen") <(bits layer2.tensors "$frozen") &&
  (($(bits base.tensors "$frozen" | wc -l) == 65)) &&
  ! cmp -s <(bits base.tensors '"weights/layer3') <(bits layer2.tensors '"weights/layer3')
verdict $? 'after two epochs on two ranks frozen weights and running statistics have their bits'
(($(grep -c '"weights/' layer2.tensors) == $(grep -c '"ema/' layer2.tensors))) &&
  ! grep -Eq '"momentum/(conv1|bn1|layer1|layer2)[.]' layer2.tensors &&
  grep -q '"momentum/layer3[.]' layer2.tensors
verdict $? 'a checkpoint holds all weights and their average, and no momentum of what is frozen'

number() { grep -o "\"$1\":[0-9.]*" <<<"$2" | tail -n 1 | cut -d : -f 2; }
last=$(grep '"kind":"epoch"' layer2/metrics.jsonl | tail -n 1)
run "$LOCKSTEP" eval layer2/checkpoints/step-00000020.h5 --data small/val --json eval.json
((status == 0)) &&
  awk -v a="$(number loss "$(tr -d ' ' <eval.json)")" -v b="$(number val_loss "$last")" \
    'BEGIN { exit !(a > 0 && (a - b) ^ 2 <= (1e-5 * b) ^ 2) }'
verdict $? 'eval of its checkpoint gives the loss that the run validated'

run ranks 2 "${tuned[@]}" --freeze layer2 --out cut --stop-after 7
((status == 3)) && run ranks 2 "$LOCKSTEP" resume cut
((status == 0)) && tensors cut/checkpoints/step-00000020.h5 | paste - - | cmp layer2.tensors - &&
  cmp <(without_times layer2) <(without_times cut)
verdict $? 'with frozen layers a run that was stopped ends with the bits of one that was not'
run "$LOCKSTEP" resume cut --freeze layer1 --epochs 3
((status == 2)) && says '^error: .*had freeze = layer2, this one has layer1: keep it, or .*--init'
verdict $? 'a resume with other frozen layers is an error that says what to do'

ok=0 less=1e12
for name in conv1 layer1 layer2 backbone; do
  run "${tuned[@]}" --freeze $name --out of_$name --stop-after 1
  now=$(reduced | in_bytes)
  ((status == 3)) && awk -v a="$now" -v b="$less" 'BEGIN { exit !(a > 0 && a < b) }' || ok=1
  less=$now
done
verdict $ok 'the more is frozen, the less a step reduces'
for name in none conv1 layer2 backbone; do
  run "$LOCKSTEP" train --data.train small/train --batch 240 --threads 1 --epochs 1 --init $base \
    --freeze $name --out of_$name-240
done
memory() { grep -o '"step_memory_bytes":[0-9]*' "of_$1-240/metrics.jsonl" | cut -d : -f 2; }
said="a step's bytes: $(memory none), frozen: $(memory conv1), $(memory layer2), $(memory backbone)"
(($(memory conv1) < $(memory none) && $(memory layer2) < $(memory conv1))) &&
  (($(memory backbone) > 0 && 2 * $(memory backbone) < $(memory none)))
verdict $? 'the more is frozen, the less memory a step needs; the last layer alone, less than half'

run "${tuned[@]}" --freeze layer1 --recompute 3 --out again
((status == 0)) && run "${tuned[@]}" --freeze layer1 --out kept
((status == 0)) && cmp <(tensors again/checkpoints/step-00000020.h5) \
  <(tensors kept/checkpoints/step-00000020.h5)
verdict $? 'recompute gives the same bits next to frozen layers'

# ---- with other exchanges, and within a limit of memory ------------------------------------------
for exchange in 'comm.wire bf16' 'comm.wire int8' 'sync.every 3 --sync.group rank' \
  'sync.gossip true'; do
  out=by_${exchange%% *}_${exchange##* }
  with=("${tuned[@]}" --freeze layer2 --$exchange)
  [[ $exchange != *gossip* ]] || with=("${with[@]/%0.9/0}")  # its ranks have no one average
  run ranks 2 "${with[@]}" --out $out
  ((status == 0)) && tensors $out/checkpoints/step-00000020.h5 | paste - - >$out.tensors &&
    cmp <(bits base.tensors "$frozen") <(bits $out.tensors "$frozen") &&
    ! cmp -s <(bits layer2.tensors '"weights/layer3') <(bits $out.tensors '"weights/layer3')
  verdict $? "--$exchange keeps the bits of what is frozen, and trains the rest in its own way"
  run ranks 2 "${with[@]}" --out $out.cut --stop-after 7
  ((status == 3)) && run ranks 2 "$LOCKSTEP" resume $out.cut
  ((status == 0)) && cmp <(without_times $out) <(without_times $out.cut) &&
    tensors $out.cut/checkpoints/step-00000020.h5 | paste - - | cmp $out.tensors -
  verdict $? "--$exchange with frozen layers: a run that was stopped ends with the same bits"
done
limited=("${tuned[@]}" --freeze layer1 --recompute auto)
run "${limited[@]}" --memory-limit 1000 --out limited
least=$(sed -n 's/.* is too small: .* at least \([0-9]*\) bytes.*/\1/p' <<<"$said")
((status == 2)) && [[ $least && ! -e limited ]] &&
  run "${limited[@]}" --memory-limit $((least + 4194304)) --out limited
peak=$(sed -n 's/.*"peak_resident_bytes": \([0-9]*\).*/\1/p' limited/summary.json)
said+=$'\n'"$peak bytes at most, the limit is $least"
((status == 0)) && ((peak && peak <= 105 * least / 100)) &&
  cmp <(tensors limited/checkpoints/step-00000020.h5) <(tensors kept/checkpoints/step-00000020.h5)
verdict $? 'a limit of memory holds next to frozen layers, and gives the same bits'

# ---- bad options ---------------------------------------------------------------------------------
refused() {  # refused LAW PATTERN OPTION...
  run "${train[@]}" --out other "${@:3}"
  ((status == 2)) && [[ ! -e other ]] && says "^error: $2"
  verdict $? "$1"
}
refused 'a layer that does not exist is an error' '.*freeze.*layer9' --init $base --freeze layer9
refused 'a factor of 0 for the backbone points to --freeze' \
  '.*backbone-lr-factor = 0 .*--freeze backbone' --init $base --optim.backbone-lr-factor 0
refused 'a factor for a frozen backbone is an error' \
  '.*backbone-lr-factor = 0.1 would have no effect' --init $base \
  --freeze backbone --optim.backbone-lr-factor 0.1
refused 'a rehearsal does not freeze' 'freeze = conv1 would have no effect' \
  --freeze conv1 --backend clock --clock.row-ms 1
refused 'weights of another form are an error that names the tensor' \
  "$base: a resnet20 of another form: .*'layer2.0.downsample.0.weight'" \
  --init $base --model-options.shortcut conv
run "${train[@]}" --freeze layer1 --out random --stop-after 1
((status == 3)) && says 'warning: freeze = layer1: these layers keep random weights; --init FILE'
verdict $? 'freezing random weights is said'

# ---- the last layer ------------------------------------------------------------------------------
if /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
  /usr/bin/python3 - <<'PYTHON'
import h5py
import numpy

with h5py.File("three.h5", "w") as file:
    file["x"] = numpy.random.default_rng(1).integers(0, 256, (60, 8, 8, 3), dtype=numpy.uint8)
    file["y"] = numpy.arange(60) % 3
PYTHON
  run "$LOCKSTEP" train --data.train three.h5 --batch 30 --threads 1 --stop-after 1 --init $base \
    --freeze backbone --out three
  ((status == 3)) &&
    says 'the weights of .*, and a new last layer for 3 classes: the file.s says 10 classes;'
  verdict $? 'a data set with other classes gets a new last layer, and the run says so in a line'
else
  echo 'SKIP a data set with other classes gets a new last layer: /usr/bin/python3 has no h5py'
fi
