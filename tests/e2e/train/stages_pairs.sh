#!/bin/bash
# --stages with any two of these together: 2, 3 or 4 stages; 1, 4 or 7 micro-batches; each schedule;
# three networks; both precisions; LARS, clipping, an average and mixup; values made again. Each has
# the bits of one rank that accumulates as many micro-batches. Every line's last batch is uneven.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
"$LOCKSTEP" pack --from shapes --out shapes --train-rows 39 --val-rows 20 >pack.log 2>&1 ||
  cat pack.log
any=("$LOCKSTEP" train --data.train shapes/train --data.val shapes/val --batch 24 --epochs 2
  --data.keep-last --data.pad 4 --data.flip --eval.batch 10 --winograd false
  --optim.lr 0.05 --audit.every-steps 1)
half=bf16
grep -q avx512_bf16 /proc/cpuinfo || half=fp32

equal=0 lines=0
while read -ru 3 n m schedule model precision others again; do
  ((++lines))
  options=(--threads 1 --model "$model" --precision "${precision/bf16/$half}" --accumulate "$m")
  [[ $others == all ]] && options+=(--optim.rule lars --optim.ema 0.9 --optim.clip-norm 0.5
    --data.mixup 0.2)
  one=one-$m-$model-$precision-$others
  [[ -e $one ]] || run ranks 1 "${any[@]}" "${options[@]}" --out "$one"
  run ranks "$n" "${any[@]}" "${options[@]}" --stages "$n" --pipeline "$schedule" \
    --recompute "$again" --out "stages-$lines"
  ((status == 0)) && same_run "$one" "stages-$lines" || break
  ((++equal))
done 3<<'END'
2 4 gpipe resnet18 fp32 all none
4 1 1f1b resnet20 bf16 plain 2
3 7 zb-h1 resnet20 bf16 all none
2 7 1f1b resnet50 fp32 plain 2
4 1 zb-h1 resnet50 fp32 all none
3 4 gpipe resnet50 bf16 plain 2
3 1 1f1b resnet18 fp32 plain none
4 7 gpipe resnet18 fp32 all 2
2 4 zb-h1 resnet18 bf16 plain none
4 4 1f1b resnet20 fp32 all none
2 1 gpipe resnet20 bf16 plain 2
END
((equal == lines && lines == 11))
verdict $? 'any two of what stages go with give the bits of one rank'

# ---- groups
options=(--threads 1 --model resnext50_32x4d --accumulate 4)
run ranks 1 "${any[@]}" "${options[@]}" --out one-groups
run ranks 3 "${any[@]}" "${options[@]}" --stages 3 --pipeline zb-h1 --out stages-groups
((status == 0)) && same_run one-groups stages-groups
verdict $? 'and so do convolutions in groups'

# ---- fewer rows than threads: bands of lines -----------------------------------------------------
options=(--threads 3 --accumulate 12)
run ranks 1 "${any[@]}" "${options[@]}" --out one-bands
run ranks 2 "${any[@]}" "${options[@]}" --stages 2 --pipeline zb-h1 --out stages-bands
((status == 0)) && same_run one-bands stages-bands
verdict $? 'and so do bands of lines'
