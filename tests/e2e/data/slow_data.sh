#!/bin/bash
# A disk that is slow, or fails: strace delays the reads of the shards, or makes them fail. Training
# says that data is the limit and by how much, or ends with an error that names the file.
# seconds: 600
# ci
# waits for a slow disk
source "$(dirname "$0")/../../support/e2e.bash"
pack_small

if ! may_trace; then
  echo 'SKIP training reports a slow disk: strace is not here, or may not trace'
  exit
fi
train=("$LOCKSTEP" train --data.train small/train --batch 16 --threads 1 --data.workers 1
  --checkpoint.every-epochs 0)
data_ms() { sed -n 's/.*"data_ms": \([0-9.]*\).*/\1/p' "$1/summary.json"; }

# Whether a disk is quick is measured: a loader that gets no core for a moment is late. Three tries.
quick() {
  rm -rf quick
  run "${train[@]}" --epochs 4 --out quick
  ((status == 0)) && ! says 'waiting for data'
}
thrice quick
verdict $? 'training says nothing about a quick disk'

run on_disk small/train delay_enter=10000 "${train[@]}" --epochs 4 --out slow
((status == 0)) && [[ $(grep -o '"loss":[^,]*' quick/metrics.jsonl) == \
  "$(grep -o '"loss":[^,]*' slow/metrics.jsonl)" ]]
verdict $? 'a slow disk gives the same losses as a quick one'

# The clock backend waits instead of computing, so its steps are as long on a machine that is busy.
# 16 rows of 10 ms each: a step waits for most of 160 ms.
clock=("${train[@]}" --backend clock --clock.step-ms 20 --epochs 4)
run on_disk small/train delay_enter=10000 "${clock[@]}" --out limited
((status == 0)) &&
  says "data is the limit: over 50 steps rank 0 on $(hostname) waited for it for [0-9.]+ of a step's [0-9.]+ ms \([3-9][0-9] %\); without that, steps would be [0-9.]+ times as fast" &&
  says 'epoch 4/4: .* images/s, .*, ([3-9][0-9]|100) % of the steps waiting for data'
verdict $? 'on a slow disk training says that data is the limit, and by how much'
awk -v ms="$(data_ms limited)" 'BEGIN { exit !(ms > 50 && ms < 5000) }' &&
  grep -Eq '"epoch":4,.*"data_ms":([5-9][0-9]|[1-9][0-9]{2,})' limited/metrics.jsonl
verdict $? 'the records of a training on a slow disk have the waiting time'

# 8 rows of 20 ms each.
run on_disk small/train delay_enter=20000 mpirun --oversubscribe --bind-to none -np 2 \
  "${clock[@]}" --out two
((status == 0)) && says 'data is the limit: over 50 steps rank [01] on'
verdict $? 'two ranks on a slow disk say that data is the limit, too'

began=$SECONDS
run on_disk small/train error=EIO:when=200+ timeout 60 mpirun --oversubscribe --bind-to none -np 2 \
  "${train[@]}" \
  --epochs 100 --out failing
((status == 2 && SECONDS - began < 55)) &&
  says 'error: small/train/train-0000[0-2]-of-00003.h5: row [0-9]+ cannot be read: Input/output error'
verdict $? 'a disk that fails ends 2 ranks, and file and row are named'
