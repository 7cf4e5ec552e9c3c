#!/bin/bash
# The records of a run: each start and each end has its line, however it ends, and `info` and
# `scaling` read the files of this program and of older ones.
# waits for ranks to be missed
fixtures=$PWD/tests/fixtures
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
any=("$LOCKSTEP" train --data.train small/train --data.val small/val --threads 1)
train=("${any[@]}" --batch 50 --optim.lr 0.05)

# record RUN KIND EXPRESSION: true if the expression of Python holds for the list `all` of the run's
# records and the newest `r` of this kind.
record() {
  python3 - "$@" <<'PY'
import json, sys
run, kind, expression = sys.argv[1:]
all = [json.loads(line) for line in open(run + "/metrics.jsonl")]
r = [one for one in all if one["kind"] == kind][-1]
assert all == sorted(all, key=lambda one: one["time_ms"]), "times go back"
assert eval(f"({expression})"), r
PY
}
# ended RUN STATUS REASON: the run's last line is its only end after its newest start, as given.
ended() {
  record "$1" end "all[-1] is r and r['status'] == '$2' and __import__('re').search('''$3''', r['reason'])"
}

run "${train[@]}" --out finished --epochs 2
((status == 0)) && ended finished finished '^$' &&
  record finished start \
    'all[0] is r and r["ranks"] == 1 and r["rows"] == 250 and r["validation_rows"] == 53
    and len(r["run_id"]) == 16 and len(r["build"]) == 16
    and "--out finished" in r["command"] and len(r["hosts"]) == 1
    and r["devices"][0].startswith("cpu") and r["data"] == "small/train" and r["from_step"] == 0' &&
  record finished end 'r["steps"] == 10 and r["epochs"] == 2 and r["seconds"] > 0'
verdict $? 'a run begins with a line that says what it is, and ends with one that says how it ended'

record finished step \
  'r["samples"] == 500 and r["rows"] == 50 and 0 <= r["top1"] <= 1 and r["memory_bytes"] > 1e6
    and abs(r["images_per_s"]
            * sum(v for k, v in r.items() if k.endswith("_ms") and k != "time_ms") - 5e4) < 50' &&
  record finished step 'all[1]["step"] == 1 and all[1]["samples"] == 50'
verdict $? 'each step has its share of right answers, rows seen, speed by the clock, and memory'

# The steps of an epoch follow each other, so their times add up to the time between their ends,
# which are whole milliseconds; also where a step is recorded late.
run "${any[@]}" --out timed --epochs 1 --batch 10
record timed step 'abs(r["time_ms"] - [s for s in all if s.get("step") == 5][0]["time_ms"]
  - sum(s[k] for s in all if s.get("step", 0) > 5 for k in s
        if k.endswith("_ms") and k != "time_ms")) < 2'
verdict $? 'the parts of steps add up to the time by the clock'

run "${any[@]}" --batch 50 --out saved --epochs 2 --checkpoint.every-steps 2
((status == 0)) && record saved checkpoint \
  'r["of_step"] == 10 and r["bytes"] > 2e6 and r["blocked_ms"] > 0 and r["written_ms"] > 0
    and all[-3] is r and all[-2]["kind"] == "ledger"
    and [one["of_step"] for one in all if one["kind"] == "checkpoint"][0] == 2'
verdict $? 'each checkpoint that got to the disk has a line: how long the run waited for it, and how long it was written'

run "${train[@]}" --out stopped --epochs 2 --stop-after 3
((status == 3)) && ended stopped stopped '^stop-after$' && [[ ! -e stopped/summary.json ]] &&
  run "$LOCKSTEP" info stopped && says 'not finished, 3 steps' &&
  says '^the newest start was stopped after step 3: stop-after$' &&
  id=$(grep -o '"run_id":"[^"]*"' stopped/metrics.jsonl) &&
  run "${train[@]}" --out stopped --epochs 2 --resume auto &&
  ((status == 0)) && ended stopped finished '' &&
  [[ $(grep -o '"run_id":"[^"]*"' stopped/metrics.jsonl | sort -u) == "$id" ]] &&
  record stopped start 'r["from_step"] == 3 and r["resumed_from"].endswith("step-00000003.h5")
    and [one["kind"] for one in all].count("start") == 2
    and [one["kind"] for one in all].count("end") == 2' &&
  cmp <(without_times stopped) <(without_times finished)
verdict $? 'a resume keeps the lines of earlier starts and ends, and the id of the run'

mpirun --oversubscribe --bind-to none -np 2 "${train[@]}" --epochs 2000 \
  --out signal >signal.log 2>&1 &
mpirun=$!
first_step signal.log
kill -USR1 $mpirun
finish signal
((status == 3)) && ended signal stopped '^a signal$' &&
  record signal ranks 'len(r["data"]["ranks"]) == 2
    and r["forward"]["min_ms"] <= r["forward"]["median_ms"] <= r["forward"]["max_ms"]
    and r["forward"]["ranks"][r["forward"]["slowest"]] == r["forward"]["max_ms"] and r["steps"] > 0'
verdict $? 'a run that a signal stops says so, and has the times of every rank'

run "${any[@]}" --batch 50 --out diverged --epochs 20 --optim.lr 1e6 --checkpoint.every-epochs 0
((status == 1)) && ended diverged diverged 'loss is (not a number|infinite) (at|after) step' &&
  grep -q '"status": "diverged"' diverged/summary.json &&
  grep -q '"command": ' diverged/summary.json &&
  run "$LOCKSTEP" info diverged && says 'not finished' &&
  says '^the newest start diverged after step [0-9]+: .*loss is'
verdict $? 'a run that diverges leaves an end with the reason, and a summary'
run "${train[@]}" --out diverged --epochs 1 --resume auto
((status == 0)) && ended diverged finished '' &&
  grep -q '"status": "finished"' diverged/summary.json
verdict $? 'a summary of a run that diverged does not count as finished'

mkdir full
law='a run that fails leaves an end with the reason'
if mount -t tmpfs -o size=3m tmpfs full 2>/dev/null; then
  run "${any[@]}" --out full/run --epochs 9 --batch 20
  # The checkpoint's writer and the records take the last of it at the same time: either is first.
  ((status == 1)) && says 'full/run/(checkpoints/|metrics.jsonl).*No space left' &&
    (($(grep -c 'No space' <<<"$said") == 1)) &&
    { ! grep -q '"kind":"end"' full/run/metrics.jsonl || ended full/run failed 'No space left'; }
  verdict $? 'a full disk is named once, with or without room for the end'
  run "$LOCKSTEP" why full/run
  ((status == 0)) && says '^disk full: .*No space left'
  verdict $? 'a run of one rank leaves word of a full disk, which why reads'
  umount full
else
  echo "SKIP $law: no small file system can be mounted here"
fi
mkdir broken && cp -r small broken
python3 - <<'PY'
for name in __import__("glob").glob("broken/small/train/*.h5"):
    with open(name, "r+b") as f:  # the pixels are most of the file
        f.seek(0, 2)
        size = f.tell()
        for at in range(size // 4, size * 3 // 4, 97):
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 255]))
PY
run "$LOCKSTEP" train --data.train broken/small/train --batch 50 --threads 1 --epochs 1 --out failed
((status == 2)) && says 'row [0-9]+' && ended failed failed 'row [0-9]+' &&
  grep -q '"status": "failed"' failed/summary.json
verdict $? "$law"

mpirun --oversubscribe --bind-to none -np 2 "${train[@]}" --epochs 2000 --out lost >lost.log 2>&1 &
mpirun=$!
first_step lost.log
rank_pids $mpirun
kill -KILL "${pids[1]}"
finish lost
((status != 0)) && ended lost failed 'lost|rank 1' && record lost end 'r["steps"] > 0'
verdict $? 'a run that loses a rank leaves an end'

# ---- files of an older program -------------------------------------------------------------------
cp -r "$fixtures/old-run" old
run "$LOCKSTEP" info old
((status == 0)) && says '^run old: finished, 6 steps$' && says '^  epoch 2: loss 2.4343, top-1 20.08 %; validation loss 2.4204, top-1 3.77 %$' &&
  says '^resumed after step 4 with .*: optim.lr \(0.1, now 0.05\)$' && ! says 'warning|newest start'
verdict $? 'info describes a run of an older program'
run "$LOCKSTEP" scaling --json old finished
((status == 0)) && says 'was resumed with other keys .*optim.lr' && ! says 'have other' &&
  sed '/^warning/d' <<<"$said" | python3 -c '
import json, sys
old = [one for one in json.load(sys.stdin) if one["run"] == "old"][0]
assert old["steps"] == 5 and abs(old["step_ms"] - 59.878) < 0.01, old'
verdict $? 'scaling compares runs of an older program and of this one'
