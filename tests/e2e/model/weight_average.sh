#!/bin/bash
# lockstep average: the mean of checkpoints' weights, with running statistics from training rows.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
pack_small

train=("$LOCKSTEP" train --data.train small/train --data.val small/val --batch 24 --threads 2
  --data.flip --optim.lr 0.02 --checkpoint.keep 10)
run "${train[@]}" --epochs 3 --out run
a=run/checkpoints/step-00000020.h5 b=run/checkpoints/step-00000030.h5
average=("$LOCKSTEP" average --data small --threads 2)
weights() { tensors "$1" | paste - - | grep '"weights/' | grep -v 'running_' | sort; }
top1() { grep -o '"top1": [0-9.]*' "$1" | head -n 1 | grep -o '[0-9.]*$'; }
loss() { grep -o '"loss": [0-9.]*' "$1" | grep -o '[0-9.]*$'; }

run "${average[@]}" $b $b $b --out same.h5
((status == 0)) &&
  says 'same.h5: the mean of 3 checkpoints of resnet20; running statistics from 10 batches of 24'
verdict $? 'average says what it made, of what, and from how many rows'
cmp <(weights same.h5) <(weights $b)
verdict $? 'the mean of equal checkpoints has their bits'
run "$LOCKSTEP" eval $b --data small/val --json b.json
run "$LOCKSTEP" eval same.h5 --data small/val --json same.json
((status == 0)) && awk -v a="$(loss same.json)" -v b="$(loss b.json)" \
  'BEGIN { exit !(a > 0 && (a - b) ^ 2 <= (0.2 * b) ^ 2) }'
verdict $? 'with new running statistics it evaluates about as they do'

run "${average[@]}" $a $b --out mean.h5 --batches 4 --batch 50
((status == 0)) && says 'the mean of 2 .* from 4 batches of 50' && run "$LOCKSTEP" info mean.h5
((status == 0)) && run "$LOCKSTEP" export mean.h5 --to mean.npz
((status == 0)) && run "$LOCKSTEP" eval mean.npz --data small/val
((status == 0)) && run "$LOCKSTEP" predict mean.h5 small/val --out predicted
((status == 0)) && run "${train[@]}" --init mean.h5 --stop-after 1 --out from_mean
((status == 3))
verdict $? 'info, export, eval, predict and --init read the mean'
cp mean.h5 before.h5
run "${average[@]}" $a $b --out mean.h5
((status == 2)) && says '^error: mean.h5: is there already; --force' && cmp mean.h5 before.h5
verdict $? 'average writes over no file'
run "${average[@]}" $a $b --out $a --force
((status == 2)) && says "^error: .*$a"
verdict $? 'average does not write over what it reads'

run "${train[@]}" --model resnet32 --stop-after 1 --out other
run "${average[@]}" $a other --out none.h5
((status == 2)) && [[ ! -e none.h5 ]] &&
  says "^error: $a and other/.* have no mean: other/.* has resnet32, and the first file has resnet20"
verdict $? 'checkpoints of two networks have no mean, and the error names both'
echo text >text.h5
run "${average[@]}" $a text.h5 --out none.h5
((status == 2)) && [[ ! -e none.h5 ]] && says '^error: text.h5: '
verdict $? 'a file that is no checkpoint is an error that names it'
run "$LOCKSTEP" average $a --data small/none --out none.h5
((status == 2)) && [[ ! -e none.h5 ]] && says '^error: .*small/none'
verdict $? 'a training set that is not there is an error that names it'
