#!/bin/bash
# `lockstep preflight` says what an absent GPU would do, from its description. A description that
# lacks something is an error that names it.
# waits
profiles=$PWD/jobs/gpus
source "$(dirname "$0")/../../support/e2e.bash"

run "$LOCKSTEP" preflight --gpu-profile "$profiles/h200.json" --model resnet20 --batch 128 \
  --precision fp16 --json report.json
if says 'built without CUDA'; then
  ((status == 2))
  verdict $? 'preflight without CUDA says what it needs'
else
  ((status == 0)) && says '([0-9]+) of \1 passes have an engine' && says 'it fits' &&
    says 'no step is shorter than [0-9.]+ ms' && grep -q '"largest_batch": [1-9]' report.json
  verdict $? 'preflight reports engines, memory and the shortest step'
fi

grep -v '"multiProcessorCount"' "$profiles/h200.json" >lacking.json
run "$LOCKSTEP" preflight --gpu-profile lacking.json --model resnet20
((status == 2)) && says "lacking.json.*'multiProcessorCount'"
verdict $? 'a profile that lacks a key is an error that names both'

run "$LOCKSTEP" preflight --gpu-profile missing.json
((status == 2)) && says 'missing.json'
verdict $? 'a missing profile is an error that names it'
