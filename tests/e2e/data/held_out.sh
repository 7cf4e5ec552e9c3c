#!/bin/bash
# A held-out share of a file without a split, whose rows are sorted by class: validated on, never
# trained on, the same rows on any ranks, after a resume, in eval and in predict.
# ci
# computes
set -euo pipefail
root=$PWD
source "$(dirname "$0")/../../support/h5py.bash"
h5py_or_skip "a share of the rows is held out"

"$python" - <<'PYTHON'
import h5py, numpy as np
random = np.random.default_rng(1)
labels = np.repeat([0, 1, 2], [100, 60, 40])
images = (random.integers(0, 90, (200, 16, 16, 3)) + 60 * labels[:, None, None, None]).astype("u1")
with h5py.File("sorted.h5", "w") as f:
    f["images"], f["ans"] = images, labels
with h5py.File("values.h5", "w") as f:
    f["images"], f["redshift"] = images, labels + random.random(200)
PYTHON

train() {  # train RUN OPTION...
  "$LOCKSTEP" train --model resnet20 --batch 16 --optim.lr 0.05 --precision fp32 --epochs 2 \
    --data.train sorted.h5 --data.labels ans --out "$@"
}
refused() {  # refused TEXT COMMAND...
  ! "${@:2}" >said.log 2>&1 && cat said.log && grep -F -- "$1" said.log
}
figures() { grep -o '"\(loss\|val_loss\|val_top1\)":[^,]*' "$1/metrics.jsonl"; }

holds_out() {
  train run --data.held-out 0.1 2>&1 | tee train.log && "$LOCKSTEP" eval run --json own.json &&
    "$LOCKSTEP" eval run --data sorted.h5 --json all.json && "$python" - <<'PYTHON'
import json
own, whole = (json.load(open(name)) for name in ("own.json", "all.json"))
counts = lambda of: [one["rows"] for one in of["classes"]]  # noqa: E731
assert own["rows"] == 20 and counts(own) == [10, 6, 4], own
assert whole["rows"] == 200 and counts(whole) == [100, 60, 40], whole
PYTHON
}
law 'a tenth of each class is held out, and eval takes it, or all of a named file' holds_out
same_on_ranks() {
  mpirun --oversubscribe -n 2 "$LOCKSTEP" train --model resnet20 --batch 16 --optim.lr 0.05 \
    --precision fp32 --epochs 2 --data.train sorted.h5 --data.labels ans --out two \
    --data.held-out 0.1 &&
    "$LOCKSTEP" predict run sorted.h5 --held-out-rows --out one-says --csv &&
    "$LOCKSTEP" predict two sorted.h5 --held-out-rows --out two-says --csv &&
    rows() { cut -d, -f1,2 "$1"/*.csv; } && [[ $(rows one-says | wc -l) == 21 ]] &&
    [[ $(rows one-says) == "$(rows two-says)" ]]
}
law 'the same rows are held out on two ranks, and predict finds them' same_on_ranks
resumes() {
  train parts --data.held-out 0.1 --stop-after 7
  [[ $? == 3 ]] && "$LOCKSTEP" resume parts --stop-after 0 &&
    [[ -n $(figures run) && $(figures parts) == "$(figures run)" ]] &&
    refused 'would validate on rows that were trained on' "$LOCKSTEP" resume parts --epochs 3 \
      --seed 2 &&
    refused 'would validate on rows that were trained on' "$LOCKSTEP" resume parts --epochs 3 \
      --data.held-out 0.2
}
law 'a resume validates on the same rows, and refuses others' resumes
values() {
  "$LOCKSTEP" train --model resnet20 --batch 16 --optim.lr 0.01 --data.train values.h5 --epochs 1 \
    --data.labels redshift --data.task values --data.held-out 0.25 --out of-values &&
    "$LOCKSTEP" eval of-values --json values.json &&
    "$python" -c 'import json; assert json.load(open("values.json"))["rows"] == 50'
}
law 'a share of rows with values is held out' values
refuses() {
  refused 'is there to validate on' train no --data.held-out 0.1 --data.val sorted.h5 &&
    refused 'held out no rows' "$LOCKSTEP" predict plain sorted.h5 --held-out-rows --out no &&
    refused 'leaves no row to hold out' train no --data.held-out 0.001
}
train plain --stop-after 1 >plain.log 2>&1 || true
law 'two validation sets, too small a share and a training without one are errors' refuses
