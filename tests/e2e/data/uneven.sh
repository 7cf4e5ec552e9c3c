#!/bin/bash
# Classes and labels of which some are rare: weights in the loss, and epochs in which they come as
# often as others.
# ci
# computes
set -euo pipefail
source "$(dirname "$0")/../../support/h5py.bash"
h5py_or_skip "sets of rare classes and labels are trained on"

cat >write.py <<'PYTHON'
import h5py, numpy as np

random = np.random.default_rng(1)
rows = 404
images = random.integers(0, 120, (rows, 16, 16, 3), np.uint8)
rare = np.zeros(rows, "i4")
rare[random.choice(rows, 4, replace=False)] = 1  # 1 : 100
images[rare == 1, :8] += 100
labels = (random.random((rows, 3)) < [0.5, 0.2, 0.02]).astype("f4")
labels[random.random(labels.shape) < 0.1] = np.nan
for name, wanted in ("rare", rare), ("labels", labels):
    with h5py.File(name + ".h5", "w") as f:
        f["images"], f["labels"] = images, wanted
PYTHON
"$python" write.py

on() {  # on RANKS DATA RUN OPTION...
  mpirun --oversubscribe -n "$1" "$LOCKSTEP" train --model resnet20 --batch 40 --optim.lr 0.01 \
    --optim.warmup-epochs 0 --threads 1 --data.train "$2" --out "$3" "${@:4}"
}
losses() { grep -o '"loss":[^,]*' "$1/metrics.jsonl"; }
refused() {  # refused TEXT OPTION...
  ! on 1 rare.h5 none --epochs 1 "${@:2}" >said.log 2>&1 && cat said.log &&
    grep -F -- "$1" said.log
}

ranks() {
  local n
  for n in 1 2 5; do
    on $n rare.h5 "ranks-$n" --epochs 1 --stop-after 2 --data.balance 1 --data.flip true \
      --model-options.norm-ranks $n >said.log 2>&1
    [[ $? == 3 ]] && grep -F 'an epoch takes 202 to 202 rows of each class, and a row up to 51' \
      said.log || return 1
  done
  on 1 rare.h5 plain --epochs 1 --stop-after 2 --data.flip true
  "$python" - <<'PYTHON'
import json
def losses(run):
    steps = map(json.loads, open(run + "/metrics.jsonl"))
    return [step["loss"] for step in steps if step["kind"] == "step"]
one, two, five, plain = map(losses, ("ranks-1", "ranks-2", "ranks-5", "plain"))
print(one, two, five, plain)
for other in two, five:
    assert all(abs(a - b) < 1e-5 * a for a, b in zip(one, other))
assert abs(one[0] - plain[0]) > 1e-3 * one[0]
PYTHON
}
law 'a balanced epoch of a 1 : 100 set has the same rows on 1, 2 and 5 ranks' ranks

resumes() {
  local how=(--epochs 2 --data.balance 0.9 --data.flip true --data.pad 2 --optim.class-weights auto)
  on 1 rare.h5 parts "${how[@]}" --stop-after 13
  [[ $? == 3 ]] && "$LOCKSTEP" resume parts --stop-after 0 && on 1 rare.h5 whole "${how[@]}" &&
    [[ $(losses parts) == "$(losses whole)" ]] && "$python" - <<'PYTHON'
import h5py
a, b = (h5py.File(run + "/checkpoints/step-00000020.h5") for run in ("parts", "whole"))
for group in "weights", "momentum":
    for name in a[group]:
        assert a[group][name][()].tobytes() == b[group][name][()].tobytes(), name
PYTHON
}
law 'a balanced run with weights, resumed in the middle of an epoch, has the same bits' resumes

# Frozen batch norms see no other rows, so that only the order of sums differs.
undivided() {  # undivided DATA OPTION...
  local how=(--epochs 1 --data.keep-last true --freeze backbone --optim.weight-decay 0 "${@:2}")
  on 1 "$1" whole-batch "${how[@]}" && on 1 "$1" micro-batches "${how[@]}" --accumulate 3 &&
    on 3 "$1" three-ranks "${how[@]}" --accumulate 2 && "$python" - <<'PYTHON'
import h5py, numpy as np
def head(run):
    with h5py.File(run + "/checkpoints/step-00000011.h5") as f:  # the last batch has 4 rows
        return np.concatenate([f["momentum/fc." + t][()].ravel() for t in ("weight", "bias")])
whole, micro, three = map(head, ("whole-batch", "micro-batches", "three-ranks"))
for other in micro, three:
    off = np.linalg.norm(whole - other) / np.linalg.norm(whole)
    print(off)
    assert off < 1e-6
PYTHON
  local status=$?
  rm -rf whole-batch micro-batches three-ranks
  return $status
}
law 'micro-batches and ranks do not change the gradient of weighted classes' \
  undivided rare.h5 --optim.class-weights 1,100 --optim.label-smoothing 0.1
law 'micro-batches and ranks do not change the gradient of weighted labels' \
  undivided labels.h5 --optim.positive-weights auto --data.unknown nan

capped() {
  on 1 labels.h5 capped --epochs 1 --stop-after 1 --data.unknown nan \
    --optim.positive-weights auto,10 >said.log 2>&1
  cat said.log && grep -E 'labels that apply is multiplied by (0\.9|1)[0-9.]* to 10' said.log
}
law 'weights that are found go up to the largest that is allowed' capped

refuses() {
  refused "optim.class-weights = 1,2,3 has 3 numbers, and the training set has 2 classes" \
    --optim.class-weights 1,2,3 &&
    refused "optim.class-weights = 1,x: 'x' is not a weight" --optim.class-weights 1,x &&
    ! on 1 labels.h5 none --epochs 1 --data.unknown nan --optim.positive-weights auto,0.5 \
      >said.log 2>&1 && grep -F "auto,0.5: 'auto' is not a weight" said.log &&
    refused 'optim.positive-weights = auto would have no effect' --optim.positive-weights auto &&
    refused 'optim.class-weights' --optim.class-weights auto --data.balance 1 &&
    grep -F 'makes all classes come equally often' said.log &&
    refused 'data.balance' --data.balance 0.5 --data.shuffle block &&
    ! on 1 labels.h5 none --epochs 1 --data.unknown nan --data.balance 1 >said.log 2>&1 &&
    grep -F 'data.balance = 1 would have no effect: labels.h5 is trained on labels' said.log
}
law 'weights and a balance that cannot be are errors that name the key' refuses
