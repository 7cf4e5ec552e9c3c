#!/bin/bash
# --tiles T: ranks that share the lines of each image train as one rank does with whole images, up
# to rounding; with the same tiles the bits are the same wherever they run and resume.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/divided.bash"
"$LOCKSTEP" pack --from shapes --out shapes --train-rows 105 --val-rows 50 >pack.log 2>&1 ||
  cat pack.log

# Four full steps an epoch and an uneven fifth of 9 rows.
any=("$LOCKSTEP" train --data.train shapes/train --data.val shapes/val --batch 24
  --data.keep-last --data.pad 4 --data.flip --eval.batch 7 --winograd false
  --threads 1 --checkpoint.every-steps 4 --audit.every-steps 1)
usual=(--epochs 1 --optim.lr 0.01)

# near ONE OTHER STEPS BOUND: that many losses of two runs differ by at most BOUND of themselves.
near() {
  /usr/bin/python3 - "$@" <<'PYTHON'
import json, sys
one, other, steps, bound = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
def losses(run):
    records = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    return [(r["loss"], r["rows"]) for r in records if r["kind"] == "step"][:steps]
a, b = losses(one), losses(other)
far = max(abs(x[0] / y[0] - 1) for x, y in zip(a, b))
if len(a) != steps or len(b) != steps or [x[1] for x in a] != [x[1] for x in b] or not far <= bound:
    sys.exit(f"{other}: {far} from {one}, {a} {b}")
PYTHON
}

# ---- one rank's training, up to rounding ---------------------------------------------------------
run ranks 1 "${any[@]}" "${usual[@]}" --out one
for tiles in 2 3 4; do
  run ranks $tiles "${any[@]}" "${usual[@]}" --tiles $tiles --out tiles-$tiles
  ((status == 0)) && near one tiles-$tiles 5 1e-3 && near one tiles-$tiles 2 1e-6 || break
done
verdict $? 'tiles train as one rank does with whole images'
says 'batch 24 = 1 replica x 1 micro-batch x 24 rows' && says '4 tiles of each image'
verdict $? 'and the run says how it cuts'

others=("${usual[@]}" --optim.rule lars --optim.ema 0.9 --optim.clip-norm 0.5 --data.mixup 0.2
  --accumulate 3)
run ranks 2 "${any[@]}" "${others[@]}" --out pair
run ranks 4 "${any[@]}" "${others[@]}" --tiles 2 --recompute 2 --out pair-tiles
((status == 0)) && near pair pair-tiles 2 1e-6 && near pair pair-tiles 5 1e-3
verdict $? 'so do two replicas, with LARS, clipping, an average, mixup and values made again'

if grep -q avx512_bf16 /proc/cpuinfo; then
  run ranks 1 "${any[@]}" "${usual[@]}" --precision bf16 --out half
  run ranks 2 "${any[@]}" "${usual[@]}" --precision bf16 --tiles 2 --out half-tiles
  ((status == 0)) && near half half-tiles 3 0.02
  verdict $? 'and bf16'
else
  echo 'SKIP and bf16: this processor has no bf16'
fi

# ---- with stages ---------------------------------------------------------------------------------
run ranks 2 "${any[@]}" "${usual[@]}" --accumulate 3 --tiles 2 --out flat
some=(--accumulate 3 --tiles 2 --recompute auto --memory-limit)
run ranks 2 "${any[@]}" "${usual[@]}" "${some[@]}" 1000 --out none
limit=$(grep -oE 'needs at least [0-9]+' <<<"$said" | grep -oE '[0-9]+' | sort -n | tail -n 1)
[[ $limit ]] &&
  run ranks 2 "${any[@]}" "${usual[@]}" "${some[@]}" $((limit + 4194304)) --out some &&
  ((status == 0)) && same_run flat some
verdict $? 'all tiles make the same values again, as few as a limit allows, with the same bits'
for words in '2 1f1b' '3 gpipe' '2 zb-h1'; do
  read -r stages order <<<"$words"
  run ranks $((2 * stages)) "${any[@]}" "${usual[@]}" --accumulate 3 --tiles 2 \
    --stages "$stages" --pipeline "$order" --out "product-$stages-$order"
  ((status == 0)) && same_run flat "product-$stages-$order" || break
done
verdict $? 'two tiles of 2 or 3 stages give the bits of two tiles'
product=("${usual[@]}" --optim.clip-norm 0.5 --optim.rule lars --optim.ema 0.9)
run ranks 8 "${any[@]}" "${product[@]}" --accumulate 2 --tiles 2 --stages 2 --out eight \
  --stop-after 2
run ranks 8 "$LOCKSTEP" resume eight --tiles 1 --accumulate 1 --stop-after 3
run ranks 1 "$LOCKSTEP" resume eight --stages 1 --accumulate 4 --stop-after 0
run ranks 1 "${any[@]}" "${product[@]}" --accumulate 4 --out eight-whole
((status == 0)) && near eight-whole eight 5 1e-3
verdict $? '2 x 2 x 2 ranks become 4 replicas of 2 stages and one rank, and train the same'

# ---- the same bits -------------------------------------------------------------------------------
run ranks 4 "${any[@]}" "${others[@]}" --tiles 2 --out again
((status == 0)) && same_run pair-tiles again
verdict $? 'making values again changes no bit'

run ranks 2 "${any[@]}" "${usual[@]}" --tiles 2 --out moved --stop-after 2
run ranks 2 "$LOCKSTEP" resume moved --stop-after 0
resumed=$said
((status == 0)) && ! grep -q 'may differ' <<<"$resumed" && same_run tiles-2 moved
verdict $? 'a run that resumes within an epoch has the bits of one that did not stop'
run ranks 2 "${any[@]}" "${usual[@]}" --tiles 2 --trace 2:3 --out traced
((status == 0)) && same_run tiles-2 traced
verdict $? 'a timeline changes nothing'
run ranks 2 "${any[@]}" "${usual[@]}" --tiles 2 --out whole --stop-after 2
run ranks 1 "$LOCKSTEP" resume whole --tiles 1 --stop-after 0
((status == 0)) && says 'tiles \(2, now 1\)' && near one whole 5 1e-3
verdict $? 'one rank resumes the run of two tiles, and says that the bits may differ'

kill_second killed "${any[@]}" --tiles 2 --epochs 200 --comm.deadline-s 20
verdict $? 'a tile that is killed ends the run in time'
run ranks 2 "$LOCKSTEP" resume killed --epochs 200 --stop-after 60
run ranks 2 "${any[@]}" --tiles 2 --epochs 200 --stop-after 60 --out lived
((status == 3)) && cmp <(tensors "$(newest killed)") <(tensors "$(newest lived)")
verdict $? 'and the run resumes from its last checkpoint with the bits of one that was not killed'

run ranks 2 "${any[@]}" "${usual[@]}" --tiles 2 --out judged
validation=$(grep -oE 'validation: loss [0-9.]+, top-1 [0-9.]+ %' <<<"$said")
run ranks 1 "$LOCKSTEP" eval judged --data shapes/val
((status == 0)) && [[ -n $validation ]] && says "${validation#validation: }"
verdict $? 'its validation is that of one rank'

# ---- what does not fit ---------------------------------------------------------------------------
run ranks 3 "${any[@]}" --tiles 2 --out none
((status == 2)) && [[ ! -e none ]] &&
  says 'error: tiles = 2 does not divide the number of ranks, 3: each replica'
verdict $? 'ranks that are no replicas are an error'
run ranks 1 "${any[@]}" --tiles 2 --out none
((status == 2)) && says 'error: tiles = 2 on 1 rank: each tile needs a rank; at most 1'
verdict $? 'and so are more tiles than ranks'
run ranks 9 "${any[@]}" --tiles 9 --out none
((status == 2)) && [[ ! -e none ]] &&
  says 'error: tiles = 9: resnet20 has a map of 8 lines from images of 32 x 32, .* at most 8'
verdict $? 'and more than the smallest map has lines'
unfit=('--shards 2' '--sync.every 2' '--sync.gossip' '--model-options.norm-ranks 2'
  '--data.shuffle node' '--freeze layer1'
  '--backend clock --clock.row-ms 1')
refused_with 'tiles = 2' 4 "${any[@]}" --tiles 2
verdict $? 'what has no meaning with tiles is an error, in one line each'
run ranks 2 "$LOCKSTEP" bench train --model resnet20 --batch 8 --tiles 2 --steps 1
((status == 0)) && says 'resnet20 fp32 batch 8 on 2 x cpu.*images/s'
verdict $? 'a benchmark of steps has tiles'

# ---- over TCP ------------------------------------------------------------------------------------
over_tcp 3 "${any[@]}" "${usual[@]}" --tiles 3 --out tcp
((status == 0)) && same_run tiles-3 tcp
verdict $? 'three tiles over TCP give the same bits'
