#!/bin/bash
# Several networks of labels, or of values, answer as one by their mean, in eval, predict and serve.
# Predictions that were begun and killed are completed, and are what eval judges.
# ci
# computes
root=$PWD
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/h5py.bash"
source "$support/clients/serving.bash"
h5py_or_skip 'several networks of labels, or of values, answer as one'
members=$support/members_tasks.py
"$python" "$members" write

learn() {  # learn NAME DATA TASK SEED OPTION...: NAME.h5
  run "$LOCKSTEP" train --model "${model:-resnet20}" --data.train "$2.h5" --data.task "$3" \
    --data.flip true --batch 32 --optim.lr 0.005 --epochs 2 --threads 1 --seed "$4" \
    --out "run-$1" "${@:5}"
  ((status == 0)) || echo "$said"
  cp "$(ls run-"$1"/checkpoints/step-*.h5 | tail -n 1)" "$1.h5"
}
learn a labels labels 1
model=resnet32 learn b labels labels 2
learn c labels labels 3 --optim.label-smoothing 0.1
learn v values values 1
learn w half values 2  # other rows, whose values have another mean and deviation
learn k classes classes 1
learn small small values 1

guess() {  # guess OUT DATA WORD...
  run "$LOCKSTEP" predict "${@:3}" "$2.h5" --batch 16 --threads 1 --csv --logits --out "$1"
}
judge() {  # judge OUT DATA WORD...: predict and eval
  guess "$@" && run "$LOCKSTEP" eval "${@:3}" --data "$2.h5" --threads 1 --json "$1.json" &&
    ((status == 0))
}
for one in a b c; do guess $one labels $one.h5; done
for one in v w; do guess $one values $one.h5; done
judge abc labels a.h5 + b.h5 + c.h5 && says '^  b.h5: 288 rows in ' &&
  run "$python" "$members" mean labels abc a b c && ((status == 0))
verdict $? 'labels of several networks have the mean of their probabilities, in eval and predict'
judge vw values v.h5 + w.h5 && run "$python" "$members" mean values vw v w && ((status == 0))
verdict $? 'values of networks that were standardised differently have their mean, in their units'
cp a.h5 copy.h5
guess twice labels a.h5 + copy.h5 && run "$python" "$members" same twice a && ((status == 0)) &&
  run mpirun --oversubscribe --bind-to none -np 3 "$LOCKSTEP" eval a.h5 + b.h5 + c.h5 \
    --data labels.h5 --threads 1 --batch 7 --json three.json && ((status == 0)) &&
  run "$python" "$members" scores abc three && ((status == 0))
verdict $? 'a network and its copy have its bits, and an ensemble has its scores on any ranks'

refused() {  # refused TEXT WORD...: by one line
  run "$LOCKSTEP" eval "${@:2}" --data labels.h5 --threads 1
  ((status == 2)) && says "$1" && [[ $(grep -c '^error' <<<"$said") == 1 ]]
}
only='and only by a class can one model hand a row on to another: FILE . FILE are the mean of both$'
refused "^error: a.h5: its network says labels .*, $only" a.h5 above 0.5 else b.h5 &&
  refused "^error: v.h5: its network says values .*, $only" v.h5 above auto else w.h5 &&
  refused "^error: a.h5: its network says labels .*, $only" k.h5 c0: a.h5 else b.h5 &&
  refused "^error: a.h5: its network says labels .*, $only" a.h5 red: k.h5 else k.h5 &&
  refused '^error: a.h5 says labels .* and v.h5 values: they do not belong together$' a.h5 + v.h5 &&
  refused '^error: a.h5 says labels .* and k.h5 classes: they do not ' a.h5 + k.h5 &&
  refused '^error: v.h5 and small.h5 have different classes' v.h5 + small.h5
verdict $? 'cascades and chains of labels or values, and members that differ, are one line'

# ---- the service ---------------------------------------------------------------------------------
served=(abc=a.h5 + b.h5 + c.h5 vw=v.h5 + w.h5)
start server --batch 16
run "$python" "$members" served "$at" abc labels && ((status == 0)) &&
  run "$python" "$members" served "$at" vw values && ((status == 0))
verdict $? 'the service answers for several networks with what predict says of them'
end server
verdict $status 'the server of several networks ends well'

# ---- a restart in the middle ---------------------------------------------------------------------
job() {  # job NAME WORD...: it replaces its shell; small pieces, so that there is a middle
  exec "$LOCKSTEP" predict "${@:2}" --batch 16 --piece-rows 16 --threads 1 --csv --out "$1"
}
has_parts() { (($(find "$1/parts" -name 'part-*.h5' 2>/dev/null | wc -l) >= $2)); }
interrupted() {  # interrupted DATA WORD...: killed twice, then run to its end, next to whole ones
  (job "whole-$1" "${@:2}" "$1-many.h5") >"whole-$1.log" 2>&1 || return 1
  local parts
  for parts in 3 9; do
    job "parts-$1" "${@:2}" "$1-many.h5" --stale-s 2 >"parts-$1.log" 2>&1 &
    until_it 300 has_parts "parts-$1" $parts
    kill -KILL $!
    wait $! 2>/dev/null
    [[ ! -e parts-$1/predictions.h5 && ! -e parts-$1/predictions.csv ]] || return 1
  done
  local left=$((180 - $(find "parts-$1/parts" -name 'part-*.h5' | wc -l)))
  run job "parts-$1" "${@:2}" "$1-many.h5" --stale-s 2
  ((status == 0 && left > 0)) && says "this worker predicted $left pieces of " &&
    cmp "whole-$1/predictions.csv" "parts-$1/predictions.csv" &&
    cmp "whole-$1/predictions.h5" "parts-$1/predictions.h5" &&
    run "$LOCKSTEP" eval "${@:2}" --data "$1-many.h5" --threads 1 --json "$1-many.json" &&
    ((status == 0)) && run "$python" "$members" scored "$1" "parts-$1" "$1-many.json" &&
    ((status == 0))
}
(interrupted labels a.h5 + b.h5)
verdict $? 'predictions of labels that were killed twice are completed, and have the scores of eval'
(interrupted values v.h5)
verdict $? 'predictions of values that were killed twice are completed, and have the scores of eval'
