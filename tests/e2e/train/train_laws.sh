#!/bin/bash
# The result of a training does not depend on how its batches are split: among ranks, among
# micro-batches, and with an uneven last batch. Also bf16, where the processor has it.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
pack_small

# train RUN RANKS OPTION... Direct convolutions, unless the options say otherwise: their rounding is
# what the bound of near() is for.
train() {
  run ranks "$2" "$LOCKSTEP" train --data.train small/train --data.val small/val --epochs 2 \
    --threads 1 --optim.lr 0.01 --data.flip --data.pad 1 --audit.every-steps 1 \
    --winograd "${winograd:-false}" \
    --out "$1" "${@:3}"
}

# losses RUN: the losses of its steps, one per line.
losses() { sed -n 's/^{"step":[0-9]*,.*"loss":\([0-9.e+-]*\),.*/\1/p' "$1/metrics.jsonl"; }

# near STEPS RUN RUN [BOUND]: both runs have at least STEPS steps, and the losses of the first STEPS
# agree to 1e-5 of their value (or BOUND), which is rounding in another order of summation.
near() {
  paste <(losses "$2") <(losses "$3") | head -n "$1" | awk -v steps="$1" -v bound="${4:-1e-5}" '
    { apart = $1 - $2; if (apart < 0) apart = -apart; if (!(apart <= bound * $1)) bad = 1 }
    END { exit bad || NR != steps }' && return
  said=$(paste <(losses "$2") <(losses "$3"))
  return 1
}

# Micro-batches hold the same rows if ranks x accumulate is the same. Batch norm uses the statistics
# of a micro-batch, so only then can the results be equal. 250 rows are three steps of 64 and one of
# 58, which 4 ranks split like one rank with 4 micro-batches: 15 15 14 14.
train one 1 --batch 64 --accumulate 4 --data.keep-last
train two 2 --batch 64 --accumulate 2 --data.keep-last
train four 4 --batch 64 --data.keep-last
near 8 one four
verdict $? '4 ranks with one micro-batch = one rank with 4, the uneven last batch included'
law="the same by Winograd's algorithm, whose larger rounding has a wider bound"
if grep -q avx512bw /proc/cpuinfo; then
  winograd=true train one-winograd 1 --batch 64 --accumulate 4 --data.keep-last
  winograd=true train four-winograd 4 --batch 64 --data.keep-last
  near 8 one-winograd four-winograd 1e-3 && near 8 one one-winograd 1e-3
  verdict $? "$law"
else
  echo "SKIP $law: this processor has no AVX-512"
fi
near 3 one two
verdict $? '2 ranks with 2 micro-batches each = one rank with 4'

train uneven 4 --batch 248 --data.keep-last
((status == 0)) && [[ $(losses uneven | wc -l) == 4 ]] &&
  says 'x 62 rows; 2 steps an epoch$' && says 'epoch 2/2: .*validation'
verdict $? '4 ranks train on a last batch of 2 rows; the ranks without rows keep equal weights'

# Ranks that cannot share a batch evenly split it as one rank splits it into micro-batches: 63 into
# 16 16 16 15.
train alone 1 --batch 63 --accumulate 4
train shared 4 --batch 63
((status == 0)) && near 6 alone shared &&
  says 'batch 63 = 4 ranks x 1 micro-batch x 16 or 15 rows; 3 steps an epoch'
verdict $? 'ranks that cannot share a batch evenly take shares that differ by a row, and train as one rank does'
# Another number of ranks trains on the rows that are left in the epoch.
train moved 1 --batch 63 --accumulate 4 --stop-after 2
train moved 4 --batch 63 --resume auto
((status == 0)) && says 'resuming from moved/checkpoints/step-00000002.h5' &&
  says 'ranks \(1, now 4\)' && near 6 alone moved
verdict $? \
  'another number of ranks can resume in the middle of an epoch, with the same global batches'

train dropped 2 --batch 248
((status == 0)) && [[ $(losses dropped | wc -l) == 2 ]] && says 'its last 2 rows are dropped'
verdict $? 'rows that are dropped by default are reported'

# ---- bf16 ----------------------------------------------------------------------------------------
# oneDNN believes this variable instead of the processor.
export ONEDNN_MAX_CPU_ISA=AVX512_CORE
train hidden 1 --batch 125 --precision bf16
((status == 2)) && says 'error: precision bf16 needs a processor with AVX512-BF16' &&
  [[ ! -e hidden ]]
verdict $? 'bf16 without AVX512-BF16 is an error that says what to do, and nothing is written'
unset ONEDNN_MAX_CPU_ISA
if grep -q avx512_bf16 /proc/cpuinfo; then
  train bf16 2 --batch 50 --precision bf16
  train fp32 2 --batch 50
  # The loss falls in both, and agrees to bf16's three digits.
  ((status == 0)) && paste <(losses bf16) <(losses fp32) | awk '
    NR == 1 { first = $1 } { last = $1; apart = ($1 - $2) / $2; if (apart * apart > 4e-4) bad = 1 }
    END { exit bad || NR != 10 || !(last < first) }'
  verdict $? 'bf16 trains: its loss falls like that of fp32'
else
  echo 'SKIP bf16 trains: this processor has no AVX512-BF16'
fi

# Ranks that were started with different options.
alone=("$LOCKSTEP" train --data.val small/val --threads 1 --out odd)
alike=("${alone[@]}" --data.train small/train --batch 50)
run unlike_ranks "${alike[@]}" : "${alike[@]}" --optim.lr 0.9
((status == 2)) && says 'started with different options: optim.lr is 0.1 on rank 0, but 0.9 on rank 1' &&
  [[ ! -e odd ]]
verdict $? 'ranks with different options are an error that names the key and both values'
cp -r small/train elsewhere
run unlike_ranks "${alike[@]}" --epochs 1 --data.stage here : "${alone[@]}" \
  --data.train elsewhere --batch 50 --epochs 1 \
  --data.workers 2
((status == 0))
verdict $? 'ranks may have their data in different places and read it differently'
rm -rf odd
run unlike_ranks "${alike[@]}" : "${alone[@]}" --data.train small/val --batch 50
((status == 2)) && says 'data.train: the ranks see different data: 250 rows .* on rank 0, but 53 rows' &&
  [[ ! -e odd ]]
verdict $? 'ranks with different data are an error that names the key and what each rank sees'

run "${alone[@]}" --data.train small/train --optim.lr 1e6 --batch 250 --epochs 1
((status == 1)) && says "the validation's loss is not a number after step 1" &&
  [[ ! -e odd/checkpoints/best.h5 ]]
verdict $? 'a validation whose loss is not a number ends the training and is never the best one'
