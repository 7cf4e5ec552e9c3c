#!/bin/bash
# What lockstep doctor says of trainings with one known fault, and that it leaves runs alone. The
# clock backend's steps take a time that is known.
# ci
# waits for the clock backend
# seconds: 900
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
clock=("$LOCKSTEP" doctor --data.train small/train --threads 1 --data.workers 1 --backend clock)

# figure FILE EXPRESSION: of the findings f.
figure() {
  python3 -c "import json, sys; f = json.load(open(sys.argv[1]))['findings']; print($2)" "$1"
}
# between LOW VALUE HIGH
between() { awk -v l="$1" -v v="$2" -v h="$3" 'BEGIN { exit !(v >= l && v <= h) }'; }

# A row takes 3 ms and a step nothing: a double batch saves nothing. That other programs use the
# cores may be true here.
accused="[one['reason'] for one in f if one['worth_changing'] and 'other' not in one['what']]"
healthy() {
  run "${clock[@]}" --clock.row-ms 3 --batch 16 --seconds 20 --json healthy.json
  ((status == 0)) && [[ $(figure healthy.json "$accused") == '[]' ]]
}
# The clock is real: another program may take the loader's core for a moment.
thrice healthy
verdict $? 'of a training that only computes, the doctor says that nothing is worth changing'

# t(b) = 20 ms + 1 ms a row: for as many rows, twice the batch of 4 saves 24 - 28 / 2 ms.
small_batch() {
  run "${clock[@]}" --clock.step-ms 20 --clock.row-ms 1 --batch 4 --seconds 20 --json batch.json
  ((status == 0)) && says '^first: parallel work: .*--batch 8' &&
    between 8.5 "$(figure batch.json "f[0]['cost']['ms']")" 11.5 &&
    between 8.5 "$(figure batch.json "f[0]['effect']['ms']")" 11.5
}
thrice small_batch
verdict $? 'the fixed costs of a small batch come first, and cost what is known'

run "${clock[@]}" --clock.row-ms 1 --batch 16 --seconds 12
says 'communication .*not measured .*there is one rank' &&
  says 'validation, checkpoints .*not measured' && ! says '^[a-z, ]* not measured *[^- ]'
verdict $? 'what was not measured says why'

if may_trace; then
  # 16 rows of 10 ms and more each; a step of 32 ms.
  run on_disk small/train delay_enter=10000 "${clock[@]}" --clock.row-ms 2 --batch 16 --seconds 60 \
    --json disk.json
  ((status == 0)) && says '^first: input pipeline: .* ms wait for rows' &&
    between 110 "$(figure disk.json "f[0]['cost']['ms']")" 200
  verdict $? 'a slow disk is the input pipeline, and costs what its delays cost'
  says "a row's reading takes 1[0-9]{4} us"
  verdict $? 'the doctor says that of a row, reading takes long'
else
  echo 'SKIP a slow disk is the input pipeline: strace is not here, or may not trace'
fi

train=("$LOCKSTEP" train --data.train small/train --data.val small/val --threads 1 --batch 16
  --optim.lr 0.01 --epochs 12 --data.workers 1)
run "${train[@]}" --out apart
"${train[@]}" --out visited >visited.log 2>&1 &
training=$!
first_step visited.log
run "$LOCKSTEP" doctor "${train[@]:2}" --out visited --seconds 10
((status == 0)) && says 'measured on 1 ranks'
verdict $? 'the doctor examines a training while that runs'
wait "$training"
newest() { ls "$1"/checkpoints/step-*.h5 | tail -n 1; }
[[ $(without_times visited) == "$(without_times apart)" ]] &&
  [[ $(tensors "$(newest visited)") == "$(tensors "$(newest apart)")" ]]
verdict $? 'a training that a doctor visits has the same records and weights, bit for bit'

files_of() { find "$1" -type f -exec md5sum {} + | sort; }
before=$(files_of apart)
run "$LOCKSTEP" doctor apart --json apart.json
((status == 0)) && says '^by the records of apart: a step takes' &&
  says 'validation, checkpoints' && says 'parallel work .*not measured' &&
  [[ $(files_of apart) == "$before" ]]
verdict $? 'a run is judged by its records, which stay as they are'

run "$LOCKSTEP" doctor small
((status == 2)) && says "error: small is not a run's folder"
verdict $? 'a folder that is no run is an error'
run "${clock[@]}" --clock.row-ms 3 --batch 16 --optim.lrr 3
((status == 2)) && says 'optim.lr'
verdict $? 'an unknown key is an error that names the nearest'
worst=0
for option in '--trace 5:8' '--notify true' '--resume auto' '--stop-after 3' \
  '--metrics.textfile m' '--metrics.listen 9400' '--metrics.tensorboard'; do
  run "${clock[@]}" --clock.row-ms 3 --batch 16 $option
  ((status == 2)) && says "error: ${option%% *} has no effect here" || worst=1
done
verdict $worst 'an option that asks for files or for the state of a run is an error that names it'

"${clock[@]}" --clock.row-ms 3 --batch 16 --seconds 60 >stopped.log 2>&1 &
doctor=$!
sleep 4
kill -TERM $doctor
wait $doctor
status=$?
said=$(tr -d '\0' <stopped.log)
((status == 3)) && says 'stopped before all was measured'
verdict $? 'a stop ends the doctor with what it has measured'
