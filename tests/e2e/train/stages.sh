#!/bin/bash
# --stages N: a network cut over N ranks gives the bits of one rank that accumulates the same
# micro-batches: in any order of them, whatever else is asked for, and wherever it resumes.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/divided.bash"
"$LOCKSTEP" pack --from shapes --out shapes --train-rows 105 --val-rows 50 >pack.log 2>&1 ||
  cat pack.log

# Four full steps an epoch and an uneven fifth of 9 rows; micro-batches of two sizes where 24 or 9
# rows cannot be shared evenly.
any=("$LOCKSTEP" train --data.train shapes/train --data.val shapes/val --batch 24
  --data.keep-last --data.pad 4 --data.flip --eval.batch 7 --winograd false
  --threads 1 --checkpoint.every-steps 4 --audit.every-steps 1)
usual=(--epochs 1 --optim.lr 0.05)

# ---- the bits of one rank ------------------------------------------------------------------------
# stages_like ONE RANKS OPTION...: a run of that many ranks ends as the run ONE did.
stages_like() {
  local out
  out=like-$((++likes))
  run ranks "$2" "${any[@]}" "${@:3}" --out "$out"
  ((status == 0)) && same_run "$1" "$out"
}
likes=0

cases=('1 2 gpipe' '2 4 1f1b' '4 3 gpipe' '7 2 1f1b' '7 4 1f1b' '8 3 gpipe' '1 3 zb-h1'
  '4 2 zb-h1' '7 4 zb-h1')
if nightly; then
  cases=()
  for m in 1 2 4 7 8; do
    for n in 2 3 4; do cases+=("$m $n gpipe" "$m $n 1f1b" "$m $n zb-h1"); done
  done
fi
equal=0
for one in "${cases[@]}"; do
  read -r m n order <<<"$one"
  [[ -e one-$m ]] || run ranks 1 "${any[@]}" "${usual[@]}" --accumulate "$m" --out "one-$m"
  stages_like "one-$m" "$n" "${usual[@]}" --accumulate "$m" --stages "$n" --pipeline "$order" ||
    break
  ((++equal))
done
((equal == ${#cases[@]}))
verdict $? 'stages give the bits of one rank: weights, momentum, statistics and metrics'

run ranks 2 "${any[@]}" --accumulate 4 --stages 2 --epochs 1 \
  --out told
((status == 0)) && says 'batch 24 = 1 replica x 4 micro-batches x 6 rows' &&
  says '2 stages, cut after layer[0-9.]+relu: the largest has 1\.[0-9]+ times an even share of the work' &&
  says '1f1b, with 2 micro-batches in memory in the first stage'
verdict $? 'a run with stages says where it cuts'

others=("${usual[@]}" --optim.rule lars --optim.ema 0.9 --optim.clip-norm 0.5 --data.mixup 0.2
  --accumulate 4)
run ranks 1 "${any[@]}" "${others[@]}" --out mixed
stages_like mixed 3 "${others[@]}" --stages 3 --pipeline zb-h1
verdict $? 'so do LARS, clipping, an average and mixup'
stages_like mixed 2 "${others[@]}" --stages 2 --pipeline gpipe --recompute 2
verdict $? 'and values that backward makes again'
least() {
  run ranks 2 "${any[@]}" "${others[@]}" "$@" --recompute auto --memory-limit 1000 --out none
  grep -oE 'needs at least [0-9]+' <<<"$said" | grep -oE '[0-9]+' | sort -n | tail -n 1
}
limit=$(least --stages 2) && [[ $limit ]] &&
  stages_like mixed 2 "${others[@]}" --stages 2 --recompute auto \
    --memory-limit $((limit + 4194304))
verdict $? 'also as few of them as a limit allows'

others=(--epochs 1 --optim.rule lamb --optim.lr 0.01 --freeze layer1 --accumulate 3
  --optim.clip-norm 1)
run ranks 1 "${any[@]}" "${others[@]}" --out frozen
stages_like frozen 3 "${others[@]}" --stages 3 &&
  stages_like frozen 3 "${others[@]}" --stages 3 --pipeline zb-h1
verdict $? 'and LAMB with frozen layers'

others=(--epochs 1 --optim.rule muon --optim.lr 0.02 --accumulate 4 --data.shuffle block
  --data.block 4)
run ranks 1 "${any[@]}" "${others[@]}" --out muon
stages_like muon 4 "${others[@]}" --stages 4
verdict $? 'and Muon'

if grep -q avx512_bf16 /proc/cpuinfo; then
  run ranks 1 "${any[@]}" "${usual[@]}" --accumulate 4 --precision bf16 --out half
  stages_like half 3 "${usual[@]}" --accumulate 4 --precision bf16 --stages 3 --pipeline zb-h1
  verdict $? 'and bf16'
else
  echo 'SKIP and bf16: this processor has no bf16'
fi

# ---- replicas ------------------------------------------------------------------------------------
others=("${usual[@]}" --accumulate 2 --optim.clip-norm 0.5)
run ranks 2 "${any[@]}" "${others[@]}" --out pair
stages_like pair 4 "${others[@]}" --stages 2
verdict $? 'two replicas of two stages give the bits of two ranks'

# ---- resume --------------------------------------------------------------------------------------
run ranks 4 "${any[@]}" "${usual[@]}" --accumulate 4 --stages 4 --out moved --stop-after 2
run ranks 2 "$LOCKSTEP" resume moved --stages 2 --stop-after 4
resumed=$said
run ranks 1 "$LOCKSTEP" resume moved --stages 1 --stop-after 0
[[ -e one-4 ]] || run ranks 1 "${any[@]}" "${usual[@]}" --accumulate 4 --out one-4
((status == 0)) && ! grep -q 'may differ' <<<"$resumed" && same_run one-4 moved
verdict $? 'a run moves from 4 stages to 2 and to one rank within an epoch, with the same bits'

kill_second killed "${any[@]}" --accumulate 4 --stages 2 --epochs 200 --comm.deadline-s 20
verdict $? 'a stage that is killed ends the run in time'
run ranks 1 "$LOCKSTEP" resume killed --stages 1 --epochs 200 --stop-after 60
run ranks 1 "${any[@]}" --accumulate 4 --epochs 200 --stop-after 60 --out whole
((status == 3)) && cmp <(tensors "$(newest killed)") <(tensors "$(newest whole)")
verdict $? 'and the run resumes from its last checkpoint with the bits of one that was not killed'

for command in eval predict; do
  case $command in
    eval) words=(eval told --data shapes/val) ;;
    predict) words=(predict told --data shapes/val --out told.csv) ;;
  esac
  run ranks 1 "$LOCKSTEP" "${words[@]}"
  ((status == 0)) || break
done
verdict $? 'its checkpoints are read by other commands'

# ---- what does not fit ---------------------------------------------------------------------------
run ranks 3 "${any[@]}" --stages 2 --out none
((status == 2)) && [[ ! -e none ]] &&
  says 'error: stages = 2 does not divide the number of ranks, 3: each replica'
verdict $? 'ranks that are no replicas are an error'
run ranks 1 "${any[@]}" --stages 2 --out none
((status == 2)) && says 'error: stages = 2 on 1 rank: each stage needs a rank; at most 1'
verdict $? 'and so are more stages than ranks'
run ranks 11 "${any[@]}" --stages 11 --out none
((status == 2)) && [[ ! -e none ]] &&
  says 'error: stages = 11: resnet20 can be cut into at most 10 stages, at the ends of its blocks'
verdict $? 'and more than a network has blocks'
run ranks 2 "${any[@]}" --stages 2 --accumulate 25 --out none
((status == 2)) && says 'batch = 24 cannot be shared: each of ranks x accumulate = 1 x 25 = 25'
verdict $? 'and more micro-batches than rows'
unfit=('--shards 2' '--comm.wire bf16' '--comm.power-sgd 2' '--sync.every 2'
  '--sync.gossip' '--model-options.norm-ranks 2' '--comm.all-reduce two-level')
refused_with 'stages = 2' 4 "${any[@]}" --stages 2
verdict $? 'what has no meaning with stages is an error, in one line each'
run ranks 4 "${any[@]}" --stages 2 --pipeline zb-h1 --recompute 2 --out none
((status == 2)) && [[ ! -e none ]] &&
  says 'error: pipeline = zb-h1 and recompute = 2 do not fit together: .*; leave one of them out'
verdict $? 'weight gradients apart, of what backward makes again, are an error'
run ranks 1 "${any[@]}" --pipeline gpipe --out none
((status == 2)) && says 'pipeline = gpipe would have no effect: stages is 1'
verdict $? 'an order of micro-batches without stages is an error'
run ranks 2 "$LOCKSTEP" bench train --model resnet20 --batch 8 --accumulate 4 --stages 2 --steps 1
((status == 0)) && says 'resnet20 fp32 batch 8 on 2 x cpu.*images/s'
verdict $? 'a benchmark of steps has stages'
run ranks 2 "$LOCKSTEP" bench train --model resnet20 --stages 2 --steps 1 --layers
((status == 2)) && says 'error: stages = 2: .*the times of the tape are about all of a replica'
verdict $? 'but the times of a tape are those of one rank'

# ---- over TCP ------------------------------------------------------------------------------------
over_tcp 3 "${any[@]}" "${usual[@]}" --accumulate 4 --stages 3 --out tcp
((status == 0)) && same_run one-4 tcp
verdict $? 'three stages over TCP give the same bits'
