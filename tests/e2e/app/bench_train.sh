#!/bin/bash
# What `lockstep bench train` and `bench inference` write: figures that agree with each other, and a
# trace of one step.
# computes
source "$(dirname "$0")/../../support/e2e.bash"

run ranks 2 "$LOCKSTEP" bench train --batch 16 --steps 3 --warm-up 1 --threads 1 \
  --layers --reduction \
  --json figures.json --layers-trace trace.json
((status == 0)) && says 'resnet20 fp32 batch 16 on 2 x .* images/s' && python3 - <<'END'
import json
figures, trace = json.load(open("figures.json")), json.load(open("trace.json"))
tape, events = figures["tape"], trace["traceEvents"]
assert [e["name"] for e in events] == [s["name"] for s in tape] and len(tape) > 30
at = 0
for event in events:
    # Times are rounded to nanoseconds.
    assert event["ph"] == "X" and event["dur"] >= 0 and abs(event["ts"] - at) < 0.2
    at += event["dur"]
assert at > 0 and "floor_ms" not in figures
assert abs(figures["images_per_s"] * figures["step_ms"] / 1e3 - 16) < 1e-6
assert figures["steps"] == 3 and figures["step_without_reduction_ms"] > 0
assert 1 < figures["loss"] < 10 and "energy_joules" not in figures
END
verdict $? 'a training step and each step of its tape are measured, and a trace of them is written'

run ranks 2 "$LOCKSTEP" bench train --batch 16 --steps 3 --warm-up 1 --threads 1 --rules \
  --json rules.json
((status == 0)) && says "by muon a step takes .* times SGD's" && python3 - <<'END'
import json
figures = json.load(open("rules.json"))
assert list(figures["rules"]) == ["lars", "lamb", "muon"]
for one in figures["rules"].values():
    assert 0 < one["update_ms"] < one["step_ms"] and one["ratio"] > 0
END
verdict $? 'steps by each update rule are measured in turn with those by SGD'

run ranks 2 "$LOCKSTEP" bench inference --batch 16 --steps 3 --warm-up 1 --threads 1 \
  --json inference.json
((status == 0)) && says 'inference: resnet20 fp32 batch 16 on 2 x .* images/s' && python3 - <<'END'
import json
figures = json.load(open("inference.json"))
assert figures["ranks"] == 2 and figures["steps"] == 3 and figures["peak_memory_bytes"] > 0
assert 0 < figures["best_step_ms"] <= figures["step_ms"]
assert abs(figures["images_per_s"] * figures["step_ms"] / 1e3 - 16) < 1e-6
END
verdict $? 'inference is measured without a training step'

run ranks 2 "$LOCKSTEP" bench train --batch 16 --steps 3 --threads 1 --json energy.json
((status == 0)) && python3 - <<'END'
import json
figures = json.load(open("energy.json"))
joules, sources = figures["energy_joules"], figures["energy"]
assert figures["energy_s"] >= 3 * figures["best_step_ms"] / 1e3 and sources
# A machine may show its counters to this user, or not.
if joules is None:
    assert figures["energy_of"] == "" and all(one["why"] or not one["joules"] for one in sources)
else:
    assert joules > 0 and figures["energy_of"] in [one["source"] for one in sources]
END
verdict $? 'the energy of the measured steps is measured, or it is said why it was not'

mpicxx -x c -O1 -shared -fPIC -o broken.so "$support/preloads/broken_sums.c" -ldl &&
  run ranks 2 -x LD_PRELOAD="$PWD/broken.so" "$LOCKSTEP" bench train --batch 16 --steps 3 \
    --threads 1 --json broken.json
((status == 1)) && says 'the loss of the benchmark.s rows is -?nan' && [[ ! -e broken.json ]]
verdict $? 'steps that compute no number have no speed'
