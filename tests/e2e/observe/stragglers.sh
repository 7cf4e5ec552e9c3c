#!/bin/bash
# A slow rank keeps all others waiting: it is named, with its host and phase, and the waiting ranks
# are not.
# computes
# alone, so that no other part slows its ranks
# apart: crowd (its own training must be the busiest)
source "$(dirname "$0")/../../support/e2e.bash"
pack_small

mpirun --oversubscribe --bind-to none -np 2 "$LOCKSTEP" train --data.train small/train --batch 16 \
  --threads 1 --optim.lr 0.01 --epochs 100000 --checkpoint.every-epochs 0 --audit.every-steps 0 \
  --out slow >slow.log 2>&1 &
mpirun=$!
first_step slow.log
sleep 1
rank_pids $mpirun
lines() { tail -n +$((before + 1)) slow.log | tr -d '\0'; }
late() { lines | grep 'rank 1 on .* is late' >/dev/null; }

# For three quarters of the time the second rank does not run, as on a core that others use.
slow_down() {
  exec python3 - "${pids[1]}" <<'PY'
import os, signal, sys, time
rank = int(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: (os.kill(rank, signal.SIGCONT), sys.exit()))
while True:
    os.kill(rank, signal.SIGSTOP)
    time.sleep(0.03)
    os.kill(rank, signal.SIGCONT)
    time.sleep(0.01)
PY
}
steps_done() { grep -ac '^{"step"' slow/metrics.jsonl; }
goes_on_to() { (($(steps_done) >= $1)); }
# By chance a rank may be late anyway: if the second was just before, it is not named again, so
# there are three tries; what was said of the first before the second was slowed does not count.
for tries in 1 2 3; do
  before=$(wc -l <slow.log)
  slow_down &
  slowed=$!
  # 4 windows in which it stays late
  try_for 100 late && try_for 600 goes_on_to $(($(steps_done) + 200))
  said=$(lines | sed -n '/rank 1 on .* is late/,$p')
  kill $slowed
  wait $slowed
  [[ $said ]] && break
  ((tries == 3)) || echo 'RETRIED a slow rank'
  sleep 3
done
told=$said
says "rank 1 on $(hostname) is late: over 50 steps it kept the others waiting for [0-9.]+ ms a step \([0-9]+ % of it\), most of all in (data|forward|backward|update) \([0-9.]+ ms, usual are [0-9.]+\)" &&
  ! says 'rank 0 on .* is late'
verdict $? 'a slowed rank is named with its host and phase, and no other rank is'

kill -USR1 $mpirun
wait $mpirun
status=$?
said=$(tr -d '\0' <slow.log)
((status == 3)) && [[ $told ]] && (($(grep -c 'rank 1 on .* is late' <<<"$told") < 3))
verdict $? 'a rank that stays late is named once'
