#!/bin/bash
# The average of the weights (optim.ema), clipped gradients (optim.clip-norm), LARS: a resumed run
# ends with the bits of an uninterrupted one, both validations are reported, the average is
# evaluated from a checkpoint, and what is turned off leaves no trace.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
pack_small

# Ten full steps an epoch and an uneven eleventh of 10 rows.
plain=("$LOCKSTEP" train --data.train small/train --data.val small/val --batch 24 --threads 1
  --data.keep-last --data.flip --optim.lr 0.05 --checkpoint.every-steps 3
  --checkpoint.background false)
train=("${plain[@]}" --optim.ema 0.9 --optim.clip-norm 2 --optim.rule lars --optim.trust 0.5)
step_file() { echo "$1/checkpoints/step-$(printf %08d "$2").h5"; }  # step_file RUN STEP

for world in 1 4; do
  run ranks $world "${train[@]}" --epochs 2 --out whole-$world
  tensors "$(step_file whole-$world 22)" >whole.tensors
  ((status == 0)) && (($(grep -c '"ema/' whole.tensors) == $(grep -c '"weights/' whole.tensors))) &&
    (($(grep -c gradient_norm whole-$world/metrics.jsonl) == 22))
  verdict $? "on $world ranks a checkpoint holds the average of all weights, and each step its norm"

  run ranks $world "${train[@]}" --epochs 2 --out stopped-$world --stop-after 7
  ((status == 3)) && run ranks $world "${train[@]}" --epochs 2 --out stopped-$world --resume auto &&
    tensors "$(step_file stopped-$world 22)" | cmp whole.tensors - &&
    cmp <(without_times whole-$world) <(without_times stopped-$world)
  verdict $? \
    "on $world ranks k steps + save + the rest = all steps, bit for bit, with their average"
done

# number KEY FILE: the last number that a JSON file has under this key.
number() { grep -o "\"$1\": *[0-9.e+-]*" "$2" | tail -n 1 | grep -o '[0-9.e+-]*$'; }
best=whole-1/checkpoints/best.h5
epoch=$(number best_epoch whole-1/summary.json)
of_epoch() { number "$1" <(grep "\"epoch\":$epoch,.*\"last_step\"" whole-1/metrics.jsonl); }
same() { awk -v a="$1" -v b="$2" \
  'BEGIN { exit !(a != "" && b != "" && (a - b) ^ 2 <= (1e-5 * b) ^ 2) }'; }

run "$LOCKSTEP" eval $best --data small/val --json raw.json
((status == 0)) && run "$LOCKSTEP" eval $best --data small/val --ema --json ema.json
((status == 0)) && same "$(number loss raw.json)" "$(of_epoch val_loss)" &&
  same "$(number loss ema.json)" "$(of_epoch ema_loss)" && ! cmp -s raw.json ema.json
verdict $? \
  'eval gives the losses that training printed: of the weights, and with --ema of the average'

same "$(number best_val_top1 whole-1/summary.json)" "$(of_epoch ema_top1)" &&
  best_of_all=$(grep -o '"ema_top1":[0-9.]*' whole-1/metrics.jsonl | cut -d: -f2 | sort -g |
  tail -n 1) &&
  same "$best_of_all" "$(of_epoch ema_top1)"
verdict $? 'the best checkpoint is the one whose average validates best'

run "$LOCKSTEP" info whole-1
((status == 0)) && says 'validation loss .*, top-1 .*; average: loss .*, top-1 '
verdict $? 'info shows both validations of an epoch'

run "${plain[@]}" --epochs 1 --out plain
((status == 0)) && tensors "$(step_file plain 11)" >plain.tensors && ! grep -q ema plain.tensors &&
  ! grep -Eq 'ema_|gradient_norm' plain/metrics.jsonl plain/summary.json
verdict $? 'without the two keys, no file of a run mentions an average or a norm'

run "${plain[@]}" --epochs 1 --optim.ema 0.9 --optim.clip-norm 1e6 --out together
((status == 0)) && tensors "$(step_file together 11)" | grep -A 1 -E '"(weights|momentum)/' |
  grep -v -- -- |
  cmp - <(grep -A 1 -E '"(weights|momentum)/' plain.tensors | grep -v -- --)
verdict $? 'an average and a limit above all norms leave the weights as they are, bit for bit'

run "$LOCKSTEP" eval plain/checkpoints/best.h5 --data small/val --ema
((status == 2)) && says 'plain/checkpoints/best.h5: holds no average of the weights'
verdict $? 'eval --ema of a checkpoint without an average is an error that names it'

run "${plain[@]}" --epochs 2 --optim.ema 0.9 --out plain --resume auto
((status == 0)) && says 'optim.ema \(0, now 0.9\)' &&
  tensors "$(step_file plain 22)" >later.tensors && grep -q '"ema/conv1.weight"' later.tensors
verdict $? 'a run that is resumed with an average begins it at its weights, and says what changed'

refused=0
for bad in 1 1.5 -0.1 nan much; do
  run "${plain[@]}" --out bad --optim.ema "$bad"
  ((status == 2)) && says "optim.ema" && [[ ! -e bad ]] && ((++refused))
done
verdict $((refused != 5)) 'a decay outside [0, 1) is an error that names the key'
