#!/bin/bash
# Two runs in one directory: one trains, the other ends with an error and writes nothing.
# waits for steps
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
train=("$LOCKSTEP" train --data.train small/train --batch 25 --threads 1 --checkpoint.every-epochs 0
  --out run --resume auto)
long=(--epochs 5000)  # would take minutes; never finishes

declare -A log
for name in a b; do
  "${train[@]}" "${long[@]}" >$name.log 2>&1 &
  log[$!]=$name.log
done
wait -n -p refused
status=$?
said=$(cat "${log[$refused]}")
unset "log[$refused]"
((status == 2)) && says 'error: run: another run is writing here'
verdict $? 'when two runs begin at once in one directory with --resume auto, one ends with an error'

running=${!log[*]}
first_step "${log[$running]}"
run "${train[@]}" "${long[@]}"
((status == 2)) && says 'error: run: another run is writing here' && kill -0 "$running"
verdict $? 'a run that is at work cannot be resumed by another'

kill -USR1 "$running"
wait "$running"
status=$?
said=$(cat "${log[$running]}")
steps=$(sed -n 's/^stopped after step \([0-9]*\) .*/\1/p' "${log[$running]}")
((status == 3)) && [[ $(wc -l <run/metrics.jsonl) -ge $steps ]] &&
  run "${train[@]}" "${long[@]}" --stop-after $((steps + 1)) && ((status == 3)) &&
  says "resuming from run/checkpoints/step-0*$steps.h5"
verdict $? 'the other run loses nothing, and when it has ended it can be resumed'
