#!/bin/bash
# A rehearsal on the clock backend: real ranks, data, checkpoints, stops and resumes, no arithmetic;
# and what it writes is never taken for a model.
# waits
source "$(dirname "$0")/../../support/e2e.bash"
pack_small

clock=(--backend clock --clock.row-ms 0.5 --clock.step-ms 10)
train=("$LOCKSTEP" train --data.train small/train --data.val small/val --batch 25
  --checkpoint.every-steps 4)

run ranks 2 "${train[@]}" "${clock[@]}" --epochs 2 --out r --stop-after 7
((status == 3)) && says 'nothing is trained, and checkpoints hold zeros' &&
  says 'on clock: a rehearsal that waits instead of computing, 0.5 ms a row and 10 ms a step' &&
  [[ -s r/checkpoints/step-00000004.h5 ]]
verdict $? 'a rehearsal says what it is, writes checkpoints and stops as a training does'

run ranks 2 "${train[@]}" "${clock[@]}" --epochs 2 --out r --resume auto
((status == 0)) && says 'resuming from .*step-00000007.h5' && says 'done: 2 epoch' &&
  python3 - <<'END'
import json
steps = [json.loads(line) for line in open("r/metrics.jsonl")]
steps = [s for s in steps if s["kind"] == "step"]
assert len(steps) == 20 and all(s["loss"] == 0 and s["rows"] == 25 for s in steps)
for s in steps:  # 13 rows of the larger rank, or 12
    assert 16 - 2e-3 <= s["forward_ms"] + s["backward_ms"] <= 16.5 + 2e-3, s
END
verdict $? 'it resumes, and each step takes the time of its pace'

run "$LOCKSTEP" eval r/checkpoints/best.h5 --data small/val
((status == 2)) && says 'best.h5: a rehearsal wrote it \(--backend clock\): it holds no trained weights'
verdict $? 'its checkpoint is not a model'

run "$LOCKSTEP" info r/checkpoints/best.h5
((status == 0)) && says 'on clock: a rehearsal that waits'
verdict $? 'info shows what it is'

run "${train[@]}" --epochs 3 --out other --resume r/checkpoints/best.h5
((status == 2)) && says 'best.h5: a rehearsal wrote it .*only a run of the same kind can resume'
verdict $? 'no training resumes from a rehearsal'

run "$LOCKSTEP" bench train --batch 8 --data.size 8 --data.classes 8 --steps 1 --warm-up 1 \
  --threads 1 \
  --layers \
  --json tape.json
((status == 0)) && python3 - <<'END' &&
import json
tape = json.load(open("tape.json"))
tape["update_ms"] = 100
json.dump(tape, open("tape.json", "w"))
END
  run "$LOCKSTEP" bench train --batch 8 --data.size 8 --data.classes 8 --steps 3 --warm-up 1 \
    --backend clock --clock.profile tape.json --json again.json && ((status == 0)) &&
    python3 - <<'END'
import json
tape, again = json.load(open("tape.json")), json.load(open("again.json"))
sum_ms = sum(step["ms"] for step in tape["tape"])
assert abs(again["forward_ms"] + again["backward_ms"] - sum_ms) < 1e-3 * sum_ms
assert abs(again["update_ms"] - 100) < 1e-3, again["update_ms"]
END
verdict $? 'a tape that was measured is played back: each step takes what it took'

# refused PATTERN LAW OPTION...: the training does not begin, and says why.
refused() {
  run "${train[@]}" --out never "${@:3}"
  ((status == 2)) && says "$1" && [[ ! -e never ]]
  verdict $? "$2"
}
refused 'backend = clock: say how long a step takes' 'a rehearsal needs a pace' --backend clock
refused 'either by clock.row-ms and clock.step-ms or by clock.profile' 'a rehearsal has one pace' \
  "${clock[@]}" --clock.profile tape.json
refused 'clock.row-ms = 1 would have no effect: backend is' 'a training has no pace' \
  --backend cpu --clock.row-ms 1
refused 'tape.json: its tape is of resnet20 and does not fit resnet32' \
  'a tape fits its network only' \
  --backend clock --clock.profile tape.json --model resnet32
refused 'nothing.json: ' 'a missing profile is named' --backend clock --clock.profile nothing.json
