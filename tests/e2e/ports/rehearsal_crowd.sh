#!/bin/bash
# A rehearsal of 64 ranks on this machine, as on a login node: it starts, reads data, sums, and
# makes 100 steps within a minute, in little memory.
# nightly
# computes
# apart: crowd
source "$(dirname "$0")/../../support/e2e.bash"
"$LOCKSTEP" pack --from shapes --out small --train-rows 12800 --val-rows 64 \
  --resize 8 >pack.log 2>&1

# 64 ranks share this machine with whatever runs next to them, and the minute is measured: three
# tries.
rehearse() {
  local began=$SECONDS
  rm -rf r
  run ranks 64 "$LOCKSTEP" train --backend clock --clock.row-ms 5 --clock.step-ms 40 \
    --data.train small/train --batch 128 --epochs 1 --data.workers 1 --out r
  ((status == 0)) && says 'done: 1 epoch.*, 100 steps' && ((SECONDS - began <= 60))
}
thrice rehearse
verdict $? '64 ranks of a rehearsal make 100 steps within 60 s of their start'

megabytes=$(sed -n 's/.*peak memory \([0-9.]*\) MB a rank.*/\1/p' <<<"$said")
awk -v mb="$megabytes" 'BEGIN { exit !(mb != "" && mb <= 60) }'
verdict $? 'each of them takes at most 60 MB'
