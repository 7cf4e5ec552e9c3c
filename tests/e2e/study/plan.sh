#!/bin/bash
# lockstep plan: its first line runs, its memory is that of the run, and a byte less changes it.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
machine=$(realpath "$support/../../jobs/machines/cpu-100gbe.toml")
any=(--model resnet20 --batch 16 --threads 1)

# best LIMIT OPTION...: "MEMORY STEP LINE-1" of the answer.
best() {
  "$LOCKSTEP" plan --memory-limit "$1" --json-file plan.json "${any[@]}" "${@:2}" >plan.txt &&
    python3 - <<'END'
import json
best = json.load(open("plan.json"))["ways"][0]
print(*(best[key] for key in ("memory_bytes", "step_ms", "stages", "accumulate")),
      *best["made_again"])
END
}

run "$LOCKSTEP" plan --memory-limit 1GB --ranks 2 "${any[@]}"
((status == 0)) && (($(wc -l <<<"$said") <= 10)) && says '^mpirun -np 2 .*bench train' &&
  again=$("$LOCKSTEP" plan --memory-limit 1GB --ranks 2 "${any[@]}") && [[ $again == "$said" ]]
verdict $? 'an answer has at most 10 lines, is the same each time, and begins with a command'

first=$(head -n 1 <<<"$again")
run ${first/mpirun/mpirun --oversubscribe --bind-to none} --steps 1 --warm-up 0
((status == 0)) && says 'images/s'
verdict $? 'the first line runs'

roomy=$(best 1GB --ranks 2) && read -r bytes rest <<<"$roomy" && same=$(best "$bytes" --ranks 2) &&
  less=$(best $((bytes - 1)) --ranks 2) && [[ $same == "$roomy" && $less != "$roomy" ]]
verdict $? 'a byte less than the answer takes changes the answer'

run "$LOCKSTEP" plan --memory-limit 10MB --ranks 2 "${any[@]}"
least=$(grep -oE 'the least is [0-9]+ bytes' <<<"$said" | grep -oE '[0-9]+')
((status == 2)) && [[ $least ]] && best "$least" --ranks 2 >enough.txt &&
  run "$LOCKSTEP" plan --memory-limit $((least - 1)) --ranks 2 "${any[@]}"
((status == 2)) && says 'nothing fits'
verdict $? 'where nothing fits it says the least that would, which does'

# parts_run OPTION...: the command of a plan with these parts runs.
parts_run() {
  best 1GB --ranks 2 "$@" >/dev/null && first=$(head -n 1 plan.txt) &&
    run ${first/mpirun/mpirun --oversubscribe --bind-to none} --steps 1 --warm-up 0
  ((status == 0))
}
parts_run --stages 2 --accumulate 4 --recompute 2 &&
  parts_run --stages 2 --accumulate 4 --pipeline zb-h1 && parts_run --tiles 2 --accumulate 2
verdict $? 'what is given is kept: plans with stages, tiles and values made again run'

# ResNet-20 has 19 batch norms, whose numbers are gathered forward and backward, and 18 convolutions
# that read other tiles' lines, which only forward hides.
tiles=(--ranks 2 --tiles 2 --accumulate 1)
near=$(best 1GB "${tiles[@]}" --machine "$machine") && read -r _ one _ <<<"$near" &&
  sed 's/^latency-us.*/latency-us = 10000/; s/^devices-per-node.*/devices-per-node = 1/' \
    "$machine" >far.toml &&
  far=$(best 1GB "${tiles[@]}" --machine far.toml) && read -r _ other _ <<<"$far" &&
  awk -v a="$one" -v b="$other" 'BEGIN { exit !(b > a + 540 && b < a + 590) }'
verdict $? '38 gathers of tiles, and their lines in backward, are waited for at a latency of 10 ms'

run "$LOCKSTEP" plan --ranks 2 "${any[@]}"
((status == 2)) && says '--memory-limit' || status=1
verdict $((status == 2 ? 0 : 1)) 'without a limit there is no question'
