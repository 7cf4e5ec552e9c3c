#!/bin/bash
# A limit of a rank's memory holds for the whole process, also while it writes checkpoints.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
"$LOCKSTEP" pack --from shapes --out small --train-rows 32 --val-rows 16 --resize 64 >pack.log 2>&1

train() {
  run "$LOCKSTEP" train --data.train small/train --data.val small/val --model resnet18 --batch 16 \
    --epochs 1 --threads 1 --winograd false --checkpoint.every-steps 1 --out "$@"
}
train refused --recompute auto --memory-limit 1000
least=$(sed -n 's/.*memory-limit = 1000 is too small: .* at least \([0-9]*\) bytes.*/\1/p' <<<"$said")
((status == 2)) && [[ $least && ! -e refused ]]
verdict $? 'a limit that is too small is an error that names the smallest possible one'

# The smallest limit is rounded up to 4 MiB: what a process takes at its start differs a little.
train within --recompute auto --memory-limit $((least + 4194304))
peak=$(sed -n 's/.*"peak_resident_bytes": \([0-9]*\).*/\1/p' within/summary.json)
said+=$'\n'"$peak bytes at most, the limit is $least"
((status == 0)) && ((peak && peak <= least + 4194304 && peak >= 80 * least / 100)) &&
  says 'steps wait while a checkpoint is written: memory-limit = [0-9]* leaves no room for a copy of the state, which takes 89\.[0-9] MB more'
verdict $? 'a process keeps its limit, with validation and checkpoints'

# Frozen layers run in a separate program, and keep nothing for backward.
whole=$least
train refused --freeze layer2 --recompute auto --memory-limit 1000
least=$(sed -n 's/.*memory-limit = 1000 is too small: .* at least \([0-9]*\) bytes.*/\1/p' <<<"$said")
((status == 2)) && ((least)) &&
  train frozen --freeze layer2 --recompute auto --memory-limit $((least + 4194304))
peak=$(sed -n 's/.*"peak_resident_bytes": \([0-9]*\).*/\1/p' frozen/summary.json)
said+=$'\n'"$peak bytes at most, the limit is $least"
((status == 0)) && ((peak && peak <= least + 4194304))
verdict $? 'a process whose first layers are frozen keeps its limit'
least=$whole

# Two copies of the state take 180 MB more; what a step keeps comes first.
limit=$((least + 600000000))
train roomy --recompute auto --memory-limit $limit
peak=$(sed -n 's/.*"peak_resident_bytes": \([0-9]*\).*/\1/p' roomy/summary.json)
said+=$'\n'"$peak bytes at most, the limit is $limit"
((status == 0)) && ((peak && peak <= limit)) && ! says 'steps wait while'
verdict $? 'where the limit leaves room for copies of the state, steps continue within it'

train free
tensors within/checkpoints/step-00000002.h5 >within.txt
tensors free/checkpoints/step-00000002.h5 >free.txt
((status == 0)) && [[ -s free.txt ]] && cmp within.txt free.txt
verdict $? 'it trains the bits of a run without a limit, also after pages were given back'

# The law of the whole process for one shape; tests/bench/run recompute goes through all numbers.
bench() {
  run "$LOCKSTEP" bench train --model resnet18 --data.size 32 --data.classes 10 --batch 128 \
    --threads 2 --steps 1 --warm-up 1 --winograd false --json bench.json "$@"
  peak=$(sed -n 's/.*"peak_memory_bytes": \([0-9]*\).*/\1/p' bench.json)
}
bench --recompute 3
limit=$((102 * peak / 100))
bench --recompute auto --memory-limit $limit
said+=$'\n'"$peak bytes at most, the limit is $limit"
((status == 0)) && ((peak && peak <= limit))
verdict $? 'what 3 segments take, and 2 % more, is enough for --recompute auto, and is kept'
