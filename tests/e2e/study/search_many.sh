#!/bin/bash
# Many workers of one search, of which some are killed and some stopped for long, on a file system
# that loses replies, listings and claims; the trainings only write their curves.
# ci
# computes
# seconds: 900
source "$(dirname "$0")/../../support/e2e.bash"
workers=24 trials=400
nightly && workers=64 trials=2000
"${CXX:-g++}" -x c -O1 -shared -fPIC -o odd.so "$support/preloads/odd_file_system.c" -ldl
export trainer=$support/recorded_training.bash
printf '[optim.lr]\nlow = 0.001\nhigh = 1\nlog = true\n' >space.toml
plan() {
  run "$LOCKSTEP" search plan space.toml --trials "$trials" --data.train d --data.val d --epochs 9 \
    "$@" && ((status == 0)) || stop_here
}

# many FOLDER: workers start at once; every eighth is killed while they train, three are stopped for
# longer than a claim counts.
many() {
  local pids=() k
  for ((k = 0; k < workers; ++k)); do
    ODD=replies,listings,handles LD_PRELOAD=$PWD/odd.so "$LOCKSTEP" search run "$1" \
      --trainer "$trainer" --stale-s 2 >"$1.$k.log" 2>&1 &
    pids+=($!)
  done
  for ((k = 0; k < 8; ++k)); do
    until_it 3000 has_results "$1" $((trials * (k + 1) / 10))
    kill -KILL "${pids[k]}"
    wait "${pids[k]}"
    ((k % 3 == 0)) && kill -STOP "${pids[8 + k / 3]}"
  done
  sleep 3
  kill -CONT "${pids[8]}" "${pids[9]}" "${pids[10]}"
  worst=0
  for ((k = 8; k < workers; ++k)); do
    wait "${pids[k]}" || { worst=$?; echo "worker $k: $worst"; tail -n 3 "$1.$k.log"; }
  done
  return "$worst"
}
has_results() { (($(ls "$1/results" | wc -l) >= $2)); }

# sound FOLDER [LEFT]: each run has each epoch once, in order, and no two trained it at once; each
# leg that has a result has those below. At most LEFT legs have epochs and no result: their
# worker was killed, and then they were no more among the best.
sound() {
  run python3 - "$1" "${2:-0}" <<'PY'
import json, os, re, sys
folder = sys.argv[1]
results = {tuple(int(n) for n in re.findall(r"\d+", name))
           for name in os.listdir(folder + "/results") if name.endswith(".json")}
for trial, rung in results:
    leg = json.load(open(f"{folder}/results/{trial}.{rung}.json"))
    assert (leg["trial"], leg["rung"], leg["end"]) == (trial, rung, "done"), leg
    assert rung == 0 or (trial, rung - 1) in results, (trial, rung)
left = {}
for run in os.listdir(folder + "/runs"):
    epochs = [json.loads(line)["epoch"] for line in open(f"{folder}/runs/{run}/metrics.jsonl")]
    assert epochs == list(range(1, len(epochs) + 1)), (run, epochs)
    reached = max(rung for trial, rung in results if trial == int(run))
    assert len(epochs) >= [1, 3, 9][reached], (run, epochs, reached)
    if len(epochs) > [1, 3, 9][reached]:
        left[run] = epochs
assert len(left) <= int(sys.argv[2]), left
for log in os.listdir(folder + "/logs"):
    assert "two trainings" not in open(f"{folder}/logs/{log}").read(), log
counts = [sum(rung == k for _, rung in results) for k in range(3)]
print(counts)
assert counts[1] >= counts[0] // 3 and counts[2] >= counts[1] // 3, counts
PY
}

plan --out one --mode sync
run "$LOCKSTEP" search run one --trainer "$trainer" --slots 4
((status == 0)) && sound one && ((status == 0)) &&
  says "^\[$trials, $((trials / 3)), $((trials / 9))\]$"
verdict $? 'one worker trains all trials, and as many of each rung as the plan says'

plan --out many --mode sync
many many 2>/dev/null && sound many && ((status == 0)) &&
  [[ $("$LOCKSTEP" search show many) == "$("$LOCKSTEP" search show one)" ]]
verdict $? 'with many workers, kills, stops and lost replies the table is the same, byte for byte'
plan --out async
many async 2>/dev/null && sound async 8 && ((status == 0)) && run "$LOCKSTEP" search run async &&
  says '^0 trainings done by this worker' && says 'nothing is left'
verdict $? 'in async mode each leg has one result, and none is lost'
# One trial more, among all that have results; it may be among the best.
quick() {
  echo 'seed = 7' >async/trials/$((trials + ++more)).toml
  run "$LOCKSTEP" search run async --trainer "$trainer"
  ((status == 0)) && says '^[1-3] trainings? done by this worker' &&
    awk -v ms="$(sed -n 's/^choosing one took \([0-9.]*\) ms.*/\1/p' <<<"$said")" \
      'BEGIN { exit !(ms > 0 && ms <= 50) }'
}
more=0
thrice quick  # other programs may use the core just now
verdict $? 'a worker chooses its next training within 50 ms'
