#!/bin/bash
# What a run used, in its records, its last line, its summary and its report; and the command that
# is told of its end.
# waits for commands that hang
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
any=("$LOCKSTEP" train --data.train small/train --data.val small/val --threads 1)
train=("${any[@]}" --batch 50 --optim.lr 0.05)
# A machine may show its counters to this user, or not.
energy='([0-9.]+ [kM]?J \((RAPL|pm_counters): |not measured \((RAPL|pm_counters): [a-z ]+\): .*[a-z])'

# ledger RUN EXPRESSION: true if the expression of Python holds for the run's lists `used` of such
# records and `all` of all records, and its `summary`.
ledger() {
  python3 - "$@" <<'PY'
import json, os, sys
run, expression = sys.argv[1:]
all = [json.loads(line) for line in open(run + "/metrics.jsonl")]
used = [one for one in all if one["kind"] == "ledger"]
path = run + "/summary.json"
summary = json.load(open(path)) if os.path.exists(path) else None
for one in used:
    for figure in one["energy"]:
        assert (figure["joules"] is None) == (figure["machines"] == 0), figure
        assert figure["joules"] is not None or figure["why"], figure
assert eval(f"({expression})"), (used, summary)
PY
}

run "${train[@]}" --out done --epochs 2 --cost.per-core-hour 3600
((status == 0)) && (($(grep -c '^used ' <<<"$said") == 1)) &&
  says "^used [0-9.]+ s, [0-9.e-]+ core-hours, cost [0-9.]+; energy $energy" &&
  ledger done '[one["epoch"] for one in used] == [1, 2, 2] and used[0]["until_step"] == 5
    and all[0]["cores"] == used[0]["cores"] > 0 and all[0]["gpus"] == 0 and used[0]["machines"] == 1
    and abs(sum(one["seconds"] for one in used) - summary["seconds"]) < 0.5
    and abs(used[0]["cost"] - used[0]["seconds"] * used[0]["cores"]) < 0.01
    and len(used[0]["energy"]) == 1'
verdict $? 'each epoch has its time, cost and energy, or why that was not measured; one line sums up'
ledger done 'abs(summary["ledger"]["core_hours"] * 3600
    - summary["ledger"]["seconds"] * used[0]["cores"]) < 0.01
  and 0 < summary["ledger_to_best"]["seconds"] <= summary["ledger"]["seconds"]
  and abs(summary["ledger"]["cost"] - sum(one["cost"] for one in used)) < 1e-6' &&
  run "$LOCKSTEP" report done --text -o page.html && ((status == 0)) && says '^What it used' &&
  says '^energy, (processor packages|whole nodes) +(not measured|[0-9.]+ [kM]?J)' &&
  says "energy of all starts: $energy" &&
  says '^cost +[0-9.]+ +[0-9.]+ +[0-9]' &&
  says "Total Energy Consumed +$energy" && says '^Core-hours, all starts +[0-9]' &&
  grep -q 'to the best validation, epoch [12]' page.html
verdict $? 'the summary and the report have the same, to the best validation, too'

run ranks 3 "${any[@]}" --batch 4 --epochs 1 --out spare && run "$LOCKSTEP" report spare --text &&
  says '2 ranks would have been as fast as 3: the largest share of 4 rows is 2 either way' &&
  run ranks 3 "${any[@]}" --batch 6 --epochs 1 --out full && run "$LOCKSTEP" report full --text &&
  says '^What it used' && ! says 'as fast as'
verdict $? 'ranks that a step would not have missed are named'

run "${any[@]}" --batch 50 --out again --epochs 1 &&
  grep -q '"cost":null' again/metrics.jsonl && ! says 'cost'
verdict $? 'without a price there is no cost'
run "${train[@]}" --cost.per-gpu-hour -1
((status == 2)) && says 'cost.per-gpu-hour = -1: must be at least 0'
verdict $? 'a price below 0 is an error'

"${train[@]}" --out killed --epochs 1000 --checkpoint.every-steps 5 >killed.log 2>&1 &
process=$!
until_it 600 compgen -G 'killed/checkpoints/step-*.h5' >/dev/null
kill -KILL "$process"
wait "$process" 2>/dev/null
before=$(grep -c '"kind":"ledger"' killed/metrics.jsonl)
run "$LOCKSTEP" resume killed --stop-after $(($(grep -c '"kind":"step"' killed/metrics.jsonl) + 2))
((status == 3)) && says '^used .*core-hours' &&
  (($(grep -c '"kind":"ledger"' killed/metrics.jsonl) > before)) &&
  run "$LOCKSTEP" report killed --text && says 'Core-hours, all starts' &&
  says 'not in its records|[0-9] k?J|not measured'
verdict $? 'what a killed start used stays in the records of the run, and its rest is named'

# ---- the command at the end ----------------------------------------------------------------------
# What it is told goes to the file `told`, a line each time.
tells='printf "%s|%s|%s|%s|%s|%s\n" "$1" "$2" "$3" "$LOCKSTEP_STATUS" "$LOCKSTEP_RUN" "$LOCKSTEP_REASON" >>told'
told() { [[ $(cat told) == "$1|$PWD/$2|$3|$1|$PWD/$2|$3" ]] || { said=$(cat told); false; }; }

rm -f told; run ranks 2 "${train[@]}" --out told-2 --epochs 1 --notify "$tells"
((status == 0)) && told finished told-2 '' && ! says notify:
verdict $? 'the end of a training is told once, by one of its ranks'
rm -f told; run "${train[@]}" --out told-3 --stop-after 3 --notify "$tells"
((status == 3)) && told stopped told-3 stop-after
verdict $? 'a run that stops tells so'
rm -f told; run "${any[@]}" --batch 50 --out told-4 --epochs 20 --optim.lr 1e6 \
  --checkpoint.every-epochs 0 --notify "$tells"
((status == 1)) && grep -q "^diverged|$PWD/told-4|the .*loss .*diverged" told
verdict $? 'a run that diverges tells so'
rm -f told; run "$LOCKSTEP" train --data.train absent --out told-5 --notify "$tells"
((status == 2)) && grep -q '^failed||.*absent' told && [[ ! -e told-5 ]]
verdict $? 'a training that cannot begin tells so, and has no folder'
rm -f told; run "${train[@]}" --dry-run --notify "$tells"
((status == 0)) && [[ ! -e told ]]
verdict $? 'a dry run tells nothing'

run "${train[@]}" --out fails --epochs 1 --notify 'exit 7'
((status == 0)) && says "^warning: notify: 'exit 7': it ended with status 7$" &&
  [[ -e fails/summary.json ]]
verdict $? 'a command that fails is one line, and the run is done'
run "${train[@]}" --out floods --epochs 1 --notify 'yes | head -n 500000; exit 7'
((status == 0)) && says 'it ended with status 7$' && ((${#said} > 60000 && ${#said} < 100000))
verdict $? 'of what a command prints 64 kB are passed on'
began=$SECONDS
run ranks 2 "${train[@]}" --out hangs --stop-after 2 --notify 'trap "" TERM; sleep 987 & sleep 987'
((status == 3)) && says 'warning: notify: .*: it was ended after 10 s$' &&
  ((SECONDS - began < 60)) && ! pgrep -f '^sleep 987' >/dev/null
verdict $? 'a command that hangs is ended after 10 s with its children, and the status is the run'"'"'s'

rm -f told; mpirun --oversubscribe --bind-to none -np 2 "${train[@]}" --epochs 2000 \
  --out lost --notify "$tells" >lost.log 2>&1 &
mpirun=$!
first_step lost.log
rank_pids $mpirun
kill -KILL "${pids[1]}"
finish lost
((status != 0)) && happens 100 test -s told && grep -q "^failed|$PWD/lost|.*rank" told &&
  (($(wc -l <told) == 1))
verdict $? 'a run that loses a rank tells so'
