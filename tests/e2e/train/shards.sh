#!/bin/bash
# --shards V: the training of V ranks on any number of them, with the same bits: whatever ranks and
# threads there are, and whatever they become in the middle of an epoch.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/divided.bash"
"$LOCKSTEP" pack --from shapes --out shapes --train-rows 250 --val-rows 50 >pack.log 2>&1 ||
  cat pack.log

# Ten full steps an epoch and an uneven eleventh of 10 rows, which 8 shards share unevenly.
any=("$LOCKSTEP" train --data.train shapes/train --data.val shapes/val --batch 24 --epochs 2
  --data.keep-last --data.pad 4 --data.flip --optim.lr 0.05 --eval.batch 7 --winograd false
  --checkpoint.every-steps 4)
v8=("${any[@]}" --shards 8 --lanes 2)

run ranks 1 "${v8[@]}" --threads 1 --out one
((status == 0)) && [[ -e one/checkpoints/best.h5 ]] &&
  says 'batch 24 = 8 shards x 3 rows' &&
  says '8 shards on 1 rank: the same bits on any number of ranks up to 8' &&
  says 'up to 8; [0-9.]+ MB for their sums; 2 lanes a shard'
verdict $? 'one rank trains 8 shards, and says what they cost'

run ranks 3 "${v8[@]}" --threads 2 --comm.bucket-mb 0.1 --out three
((status == 0)) && says 'on 3 ranks.*1.12 times an even share, .* 3 shards; 1.33 times the bytes' &&
  same_run one three
verdict $? 'three ranks with two threads each give the bits of one with one, metrics included'

run ranks 8 "${v8[@]}" --threads 1 --recompute 2 --out eight
((status == 0)) && same_run one eight
verdict $? 'a rank for each shard gives the same bits, also where backward makes values again'

# Without the key sums have another order on eight ranks, but the same meaning; of two numbers there
# is no order.
run ranks 8 "${any[@]}" --threads 1 --out plain
((status == 0)) && paste <(without_times plain | head -n 3) <(without_times eight | head -n 3) |
  sed 's/[^\t]*"loss":\([0-9.]*\)[^\t]*/\1/g' |
  awk '{ apart = $1 - $2; if (apart < 0) apart = -apart; if (!(apart <= 1e-6 * $1)) bad = 1 }
    END { exit bad || NR != 3 }'
verdict $? 'shards mean what as many ranks mean without them'
run ranks 2 "${any[@]}" --threads 1 --out plain2
run ranks 2 "${any[@]}" --shards 2 --threads 1 --out two
((status == 0)) && cmp <(tensors "$(newest plain2)") <(tensors "$(newest two)")
verdict $? 'and two shards on two ranks have the bits of two ranks'

run ranks 8 "${v8[@]}" --threads 1 --out moved --stop-after 3
run ranks 3 "$LOCKSTEP" resume moved --threads 2 --stop-after 6
resumed=$said
run ranks 5 "$LOCKSTEP" resume moved --stop-after 9
run ranks 1 "$LOCKSTEP" resume moved --threads 1 --stop-after 0
((status == 0)) && ! grep -q 'may differ' <<<"$resumed" && same_run one moved
verdict $? \
  'a run moves from 8 ranks to 3, 5 and 1 within an epoch, with the bits of one that did not'

others=("${any[@]}" --shards 5 --threads 1 --data.mixup 0.2 --data.shuffle block --data.block 4
  --optim.ema 0.9 --optim.clip-norm 0.5 --optim.rule lars)
run ranks 1 "${others[@]}" --out mixed1
run ranks 4 "${others[@]}" --out mixed4
((status == 0)) && same_run mixed1 mixed4
verdict $? 'so do mixup, a block shuffle, LARS, clipping and an average, in 5 shards'

run ranks 4 "${others[@]}" --out blocks --stop-after 5
run ranks 1 "$LOCKSTEP" resume blocks --shards 4
((status == 2)) && says 'with data.shuffle = block and a batch for = 5 shards; now it is 4 shards'
verdict $? 'a block shuffle depends on the shards: with others no run resumes inside an epoch'
run ranks 2 "$LOCKSTEP" resume blocks --stop-after 0
((status == 0)) && same_run mixed1 blocks
verdict $? 'but it does on other ranks'

run ranks 3 "$LOCKSTEP" bench train --model resnet20 --threads 1 --batch 26 --shards 5 --steps 2 \
  --warm-up 1
((status == 0)) && says 'batch 26 on 3 x cpu'
verdict $? 'a bench shares a batch as the training does'

# ---- what does not fit ---------------------------------------------------------------------------
run ranks 3 "${any[@]}" --shards 2 --out none
((status == 2)) && [[ ! -e none ]] &&
  says 'error: shards = 2 cannot be shared by 3 ranks: each needs at least one'
verdict $? 'fewer shards than ranks are an error'
unfit=('--accumulate 2' '--comm.wire bf16' '--comm.power-sgd 2' '--sync.every 2'
  '--sync.gossip' '--model-options.norm-ranks 2' '--data.shuffle node')
refused_with 'shards = 8' 2 "${v8[@]}"
verdict $? 'what depends on the ranks is an error with shards, in one line each'
run ranks 1 "${any[@]}" --lanes 2 --out none
((status == 2)) && says 'lanes = 2 would have no effect: shards is 0'
verdict $? 'lanes without shards are an error'
run ranks 1 "${any[@]}" --shards 25 --out none
((status == 2)) &&
  says 'batch = 24 cannot be shared: each of shards = 25 micro-batches needs at least one row'
verdict $? 'more shards than rows of a batch are an error'

# ---- every pair of conditions, in the long tier --------------------------------------------------
# Trainings by what changes their bits, and starts by what must not.
trainings=('--batch 64' '--batch 60 --data.keep-last --data.mixup 0.2 --optim.ema 0.9'
  '--batch 64 --data.shuffle block --data.block 4 --data.window 4 --optim.rule lars'
  '--batch 64 --optim.rule lamb --optim.lr 0.01 --data.pad 2 --data.flip'
  '--batch 64 --optim.rule muon --optim.lr 0.02 --optim.clip-norm 0.5'
  '--batch 60 --data.cutmix 1 --data.keep-last --data.shuffle block --data.block 4'
  '--batch 9 --data.keep-last --freeze layer1 --optim.ema 0.99 --eval.batch 7')
if grep -q avx512_bf16 /proc/cpuinfo; then
  trainings+=('--batch 64 --precision bf16 --optim.rule lamb --optim.lr 0.01'
    '--batch 61 --precision bf16 --data.keep-last --data.mixup 0.2')
fi
starts=('1 --threads 1' '2 --threads 2 --recompute 3' '3 --threads 1 --comm.bucket-mb 0.1'
  '5 --threads 1 --comm.bucket-mb 25' '8 --threads 2 --recompute 2' '4 --threads 1'
  '6 --threads 1 --comm.bucket-mb 0.1 --recompute 4' '7 --threads 2')
for ((t = 0; t < ${#trainings[@]}; t++)); do
  nightly || break
  for ((s = 0; s < ${#starts[@]}; s++)); do
    ((s == 0 || (t + s) % 8 < 5)) || continue
    # shellcheck disable=SC2086
    run ranks ${starts[s]%% *} "$LOCKSTEP" train --data.train shapes/train --data.val shapes/val \
      --epochs 2 --winograd false --shards 8 --lanes 2 ${trainings[t]} ${starts[s]#* } \
      --out "pair-$t-$s"
    ((status == 0)) && same_run "pair-$t-0" "pair-$t-$s" || break 2
  done
done
! nightly || ((t == ${#trainings[@]}))
verdict $? 'each pair of what may be asked for and where it may run gives one result a training'
