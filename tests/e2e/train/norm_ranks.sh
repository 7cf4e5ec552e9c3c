#!/bin/bash
# Batch norm over the rows of several ranks (`model-options.norm-ranks`): it trains as one rank with
# all of their rows, resumes with the same bits, and loses no rank in silence.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
# 250 rows are four steps of 62 and one of 2, in which two of four ranks have no rows.
any=("$LOCKSTEP" train --data.train small/train --data.val small/val --batch 62 --data.keep-last
  --threads 1 --optim.lr 0.01 --audit.every-steps 1 --winograd false
  --comm.bucket-mb 0.1 --checkpoint.keep 20)
train=("${any[@]}" --epochs 2)
last=checkpoints/step-00000010.h5

losses() { sed -n 's/^{"step":[0-9]*,.*"loss":\([0-9.e+-]*\),.*/\1/p' "$1/metrics.jsonl"; }

# near BOUND RUN RUN: the losses of both runs' first epoch agree to this share of their values.
# Later ones do not: this training makes any rounding about ten times as large in each step. A rate
# larger by 1e-7 moves one rank's loss by 4e-6 of it in the fifth step, and by 4e-3 in the tenth.
near() {
  said=$(paste <(losses "$2") <(losses "$3") | head -n 5)
  awk -v bound="$1" '
    { apart = $1 - $2; if (apart < 0) apart = -apart; if (!(apart <= bound * $1)) bad = 1 }
    END { exit bad || NR != 5 }' <<<"$said"
}

run ranks 1 "${train[@]}" --out one
for n in 2 4; do
  run ranks $n "${train[@]}" --model-options.norm-ranks $n --out shared$n
  ((status == 0)) && near 1e-4 shared$n one
  verdict $? "$n ranks that share batch norm's statistics train as one rank does"
done
run ranks 4 "${train[@]}" --out apart
((status == 0)) && ! near 1e-3 apart one
verdict $? 'without the key their losses are others'
run ranks 4 "${train[@]}" --model-options.norm-ranks 2 --recompute 3 --out pairs
((status == 0)) && ! near 1e-3 pairs one && ! near 1e-3 pairs apart
verdict $? 'pairs of ranks, which make values again, are neither one nor the other'

run ranks 4 "${train[@]}" --model-options.norm-ranks 4 --out cut --stop-after 7
((status == 3)) || echo "$said"
run ranks 4 "${train[@]}" --model-options.norm-ranks 4 --out cut --resume auto
((status == 0)) && cmp <(tensors cut/$last) <(tensors shared4/$last)
verdict $? 'a run that was stopped after step 7 resumes with the same bits'
run ranks 4 "${train[@]}" --model-options.norm-ranks 2 --out other --stop-after 7
run ranks 4 "${train[@]}" --out other --resume auto
((status == 0)) && says 'model-options.norm-ranks \(2, now 1\)'
verdict $? 'a resume with other groups says so and continues'

# ---- lost ranks ----------------------------------------------------------------------------------
for signal in KILL STOP; do
  mpirun --oversubscribe --bind-to none -np 4 "${any[@]}" --epochs 2000 \
    --model-options.norm-ranks 2 --checkpoint.every-epochs 0 --eval.every-epochs 20 \
    --comm.deadline-s 4 --out lost$signal >lost$signal.log 2>&1 &
  mpirun=$!
  first_step lost$signal.log
  rank_pids $mpirun
  kill -$signal "${pids[3]}"
  finish lost$signal
  ((status != 0 && seconds < 30)) &&
    says 'process rank 3 with PID|rank 3 did not arrive within 4 s'
  verdict $? "a rank whose group waits for its statistics gets $signal: the job ends and names it"
done

# ---- bad input -----------------------------------------------------------------------------------
refused() {  # refused NAME PATTERN RANKS OPTION...
  run ranks "$3" "${train[@]}" --out none "${@:4}"
  ((status == 2)) && says "$2" && [[ ! -e none ]]
  verdict $? "$1"
}
refused 'groups that do not divide the ranks are an error that names the key and the ranks' \
  'model-options.norm-ranks = 2 does not divide the number of ranks, 3' 3 \
  --model-options.norm-ranks 2
refused 'a group of more ranks than there are is the same error' \
  'model-options.norm-ranks = 4 does not divide the number of ranks, 2' 2 \
  --model-options.norm-ranks 4
for other in 'sync.every = 4' 'sync.gossip = true'; do
  refused "groups with $other are an error that names both keys" \
    "model-options.norm-ranks = 2 and $other do not fit together" 2 --model-options.norm-ranks 2 \
    "--${other% = *}" "${other#* = }"
done
refused 'groups without a batch norm that trains are an error that names both keys' \
  "model-options.norm-ranks = 2 .* freeze is 'backbone'; no batch norm trains" 2 \
  --model-options.norm-ranks 2 --freeze backbone
refused 'a rehearsal does not share statistics: the error names the key and the backend' \
  'model-options.norm-ranks = 2: the clock backend' 2 --model-options.norm-ranks 2 \
  --backend clock --clock.row-ms 0.01
refused 'groups of no ranks are an error that names the range' \
  'norm-ranks = 0: must lie between 1' 2 --model-options.norm-ranks 0
