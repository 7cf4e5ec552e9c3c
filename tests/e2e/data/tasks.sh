#!/bin/bash
# Rows of several labels, and rows of numbers, are trained on, validated, resumed and evaluated.
# ci
# computes
set -euo pipefail
source "$(dirname "$0")/../../support/h5py.bash"
h5py_or_skip "labels and values in other programs' files are trained on"

cat >write.py <<'PYTHON'
import h5py, numpy as np

random = np.random.default_rng(1)
rows = 256
images = random.integers(0, 80, (rows, 16, 16, 3), np.uint8)
labels = (random.random((rows, 3)) < [0.5, 0.3, 0.1]).astype("u1")
for k in range(3):  # each label is in one channel
    images[labels[:, k] == 1, :, :, k] += 120
strength = random.random((rows, 2))
glow = (images * 0.3 + 100 * strength[:, None, None, [0, 1, 1]]).astype("u1")
numbers = np.stack([101325 + 500 * strength[:, 0], 0.01 * strength[:, 1]], 1)


def write(path, images, **sets):
    with h5py.File(path, "w") as f:
        f["images"] = images
        for name, values in sets.items():
            f[name] = values


write("labels.h5", images, labels=labels, classes=["red", "green", "blue"])
write("values.h5", glow, targets=numbers)
write("column.h5", glow, pressure=numbers[:, 0].astype("f4"))
known = labels.astype("f4")
known[random.random(known.shape) < 0.2] = np.nan
write("unknown.h5", images, labels=known)
known[3] = [-1, 1, 0]
write("minus.h5", images, labels=known)
write("other.h5", images, labels=labels, classes=["red", "blue", "green"])
hot = np.eye(3, dtype="u1")[random.integers(0, 3, rows)]
write("hot.h5", images, labels=hot)
hot[77] = [1, 1, 0]
write("slip.h5", images, labels=hot)
write("constant.h5", images, targets=np.c_[numbers, np.full(rows, 0.5)])
write("never.h5", images, labels=labels * 0)
PYTHON
"$python" write.py

train() {  # train DATA RUN OPTION...
  "$LOCKSTEP" train --model resnet20 --batch 32 --optim.lr "${lr:-0.05}" --threads 1 \
    --data.train "$1" --out "$2" "${@:3}"
}
losses() { grep -o '"loss":[^,]*' "$1/metrics.jsonl"; }
refused() {  # refused TEXT COMMAND...
  ! "${@:2}" >said.log 2>&1 && cat said.log && grep -F -- "$1" said.log
}
score() {  # score RUN CONDITION: on scores s of the newest epoch
  "$python" - "$1" "$2" <<'PYTHON'
import json, sys
epochs = [e for e in map(json.loads, open(sys.argv[1] + "/metrics.jsonl")) if e["kind"] == "epoch"]
s = epochs[-1]["val_scores"]
print(s)
assert eval(sys.argv[2])
PYTHON
}

labels() {
  train labels.h5 labels --data.val labels.h5 --epochs 5 | tee said.log &&
    grep -F 'not one-hot: each of a row' said.log && grep -F '3 labels a row' said.log &&
    grep -F 'task = "labels"' labels/decisions.toml && score labels 's["mAP"] > 0.95' &&
    [[ -f labels/checkpoints/best.h5 ]]
}
law 'rows of several labels are learned' labels
values() {
  local lr=0.005
  train values.h5 values --data.val values.h5 --epochs 5 --data.task values | tee said.log &&
    grep -F '2 values a row' said.log && score values 's["R2"] > 0.7 and 1 < s["RMSE"] < 100'
}
law 'numbers are learned where the task says so, and judged in their units' values
column() {
  local lr=0.005
  refused 'labels are whole numbers' train column.h5 none --data.labels pressure --epochs 1 &&
    train column.h5 column --data.task values --data.labels pressure --epochs 1 \
      --optim.huber-delta 1 --data.mixup 0.2
}
law 'one column of numbers is an error without the task, and trained on with it' column

evaluated() {  # evaluated RUN: the same bits on any number of ranks, with any batch
  "$LOCKSTEP" eval "$1" --threads 1 --json one.json &&
    "$LOCKSTEP" eval "$1" --threads 1 --batch 7 --json seven.json &&
    mpirun -n 3 "$LOCKSTEP" eval "$1" --threads 1 --batch 10 --json three.json &&
    "$python" - <<'PYTHON'
import json
one, seven, three = (json.load(open(f + ".json")) for f in ("one", "seven", "three"))
task = "labels" if "labels" in one else "values"
for other in seven, three:
    assert one["scores"] == other["scores"] and one[task] == other[task], (one, other)
assert len(one[task]) > 1
PYTHON
}
law 'the scores of labels have the same bits on any ranks, with any batch' evaluated labels
law 'the scores of values have the same bits on any ranks, with any batch' evaluated values
named() { "$LOCKSTEP" eval labels | tee said.log && grep -E 'green +[0-9]+ of 256: AP' said.log; }
law 'eval names each label' named

predicted() {
  "$LOCKSTEP" predict values values.h5 --out of-values --csv --threads 1 &&
    "$LOCKSTEP" predict labels labels.h5 --out of-labels --csv --threads 1 &&
    "$LOCKSTEP" eval values --threads 1 --json values.json &&
    "$LOCKSTEP" eval labels --threads 1 --json labels.json && "$python" - <<'PYTHON'
import csv, json
import h5py, numpy as np

table = list(csv.DictReader(open("of-values/predictions.csv")))
said = np.array([[float(row["value_0"]), float(row["value_1"])] for row in table])
with h5py.File("values.h5") as f, h5py.File("of-values/predictions.h5") as p:
    error = said - f["targets"][()].astype("f4")
    assert np.array_equal(p["value"][()], said.astype("f4"))
scores = json.load(open("values.json"))["values"]
for k in range(2):
    assert np.isclose((error[:, k] ** 2).mean() ** 0.5, scores[k]["RMSE"], rtol=1e-3), scores
    assert np.isclose(np.abs(error[:, k]).mean(), scores[k]["MAE"], rtol=1e-3)
table = list(csv.DictReader(open("of-labels/predictions.csv")))
names = ["red", "green", "blue"]
said = np.array([[float(row["probability_" + name]) > 0.5 for name in names] for row in table])
for row, one in zip(table, said):
    assert row["labels"] == ";".join(n for n, yes in zip(names, one) if yes)
with h5py.File("labels.h5") as f, h5py.File("of-labels/predictions.h5") as p:
    truth = f["labels"][()] == 1
    assert p["probability"].shape == (256, 3)
for k, of in enumerate(json.load(open("labels.json"))["labels"]):
    assert of["right"] == (truth & said)[:, k].sum() and of["wrong"] == (~truth & said)[:, k].sum()
PYTHON
}
law "predict's probabilities and values are what eval judges" predicted

micro() {  # micro DATA OPTION...
  train "$1" whole-batch --epochs 1 --stop-after 1 "${@:2}"
  train "$1" micro-batches --epochs 1 --stop-after 1 --accumulate 4 "${@:2}"
  mpirun -n 2 "$LOCKSTEP" train --model resnet20 --batch 32 --optim.lr 0.05 --threads 1 \
    --data.train "$1" --out two-ranks --epochs 1 --stop-after 1 --model-options.norm-ranks 2 \
    "${@:2}"
  "$python" - <<'PYTHON'
import h5py, numpy as np
def head(run):
    with h5py.File(run + "/checkpoints/step-00000001.h5") as f:
        return f["momentum/fc.bias"][()]
whole, micro, two = map(head, ("whole-batch", "micro-batches", "two-ranks"))
assert np.abs(whole).max() > 0
assert np.allclose(whole, two, rtol=1e-4, atol=1e-6), (whole, two)
assert np.allclose(whole, micro, rtol=0.3, atol=0.02), (whole, micro)  # norms see fewer rows
PYTHON
  local status=$?
  rm -rf whole-batch micro-batches two-ranks
  return $status
}
law 'ranks change the gradient of labels by rounding alone, unknown ones or not' \
  micro unknown.h5 --data.unknown nan

resumes() {  # resumes DATA OPTION...
  local lr=0.005 name=${1%.h5}
  local how=(--epochs 2 --data.flip true --data.cutmix 1 --data.val "$1" "${@:2}")
  train "$1" "parts-$name" "${how[@]}" --stop-after 11
  [[ $? == 3 ]] && "$LOCKSTEP" resume "parts-$name" --stop-after 0 &&
    train "$1" "whole-$name" "${how[@]}" &&
    [[ $(losses "parts-$name") == "$(losses "whole-$name")" ]] &&
    diff <(grep -o '"[a-z]*_\?scores":{[^}]*}' "parts-$name/metrics.jsonl") \
      <(grep -o '"[a-z]*_\?scores":{[^}]*}' "whole-$name/metrics.jsonl") &&
    "$python" - "$name" <<'PYTHON'
import h5py, sys
a, b = (h5py.File(f"{r}-{sys.argv[1]}/checkpoints/step-00000016.h5") for r in ("parts", "whole"))
for group in "weights", "momentum":
    for name in a[group]:
        assert a[group][name][()].tobytes() == b[group][name][()].tobytes(), name
PYTHON
}
law 'a resumed run of labels has the bits of an uninterrupted one' resumes labels.h5
law 'a resumed run of values has the bits of an uninterrupted one' \
  resumes values.h5 --data.task values --eval.best R2

unknown() {
  refused 'say --data.unknown' train unknown.h5 none --epochs 1 &&
    train unknown.h5 unknown --epochs 1 --data.unknown nan &&
    refused 'row 3 of /labels [256, 3] has -1' train minus.h5 none --epochs 1 --data.unknown nan &&
    train minus.h5 minus --epochs 1 --data.unknown=-1,nan
}
law 'labels that are not known are an error until they are named' unknown
judged() {  # a row without a known label, and a label without a known row, are in no score
  "$python" - <<'PYTHON'
import h5py, numpy as np
with h5py.File("unknown.h5") as f, h5py.File("gaps.h5", "w") as g:
    labels = f["labels"][()]
    labels[:, 2] = labels[5:60] = np.nan
    g["images"], g["labels"] = f["images"][()], labels
PYTHON
  "$LOCKSTEP" eval unknown --data gaps.h5 --data.unknown nan --threads 1 --json gaps.json &&
    "$LOCKSTEP" predict unknown gaps.h5 --data.unknown nan --logits --out of-gaps --threads 1 &&
    "$python" - <<'PYTHON'
import json
import h5py, numpy as np
with h5py.File("gaps.h5") as f, h5py.File("of-gaps/predictions.h5") as p:
    wanted, said = f["labels"][()], p["logits"][()] > 0
known, applies = ~np.isnan(wanted), wanted == 1
right, off = said & applies, known & (said != applies)
def f1(axis, kept):
    whole = 2 * right.sum(axis) + off.sum(axis)
    return (2 * right.sum(axis) / np.maximum(whole, 1))[kept].mean()
said = json.load(open("gaps.json"))
print(said)
rows = known.any(1)
assert 50 < (~rows).sum() and said["labels"][2]["F1"] is None and said["labels"][2]["known"] == 0
assert np.isclose(said["scores"]["exact-match"], 1 - off.any(1)[rows].mean())
assert np.isclose(said["scores"]["samples-F1"], f1(1, rows))
assert np.isclose(said["scores"]["macro-F1"], f1(0, known.any(0)))
PYTHON
}
law 'what is not known is in no score' judged
nothing_known() {
  "$python" - <<'PYTHON'
import h5py, numpy as np
with h5py.File("labels.h5") as f, h5py.File("void.h5", "w") as g:
    g["images"], g["labels"] = f["images"][()], np.full(f["labels"].shape, np.nan)
PYTHON
  refused 'void.h5: none of its labels is known' "$LOCKSTEP" eval unknown --data void.h5 \
    --data.unknown nan &&
    refused 'void.h5: none of its labels is known' train labels.h5 unjudged --epochs 1 \
      --data.val void.h5 --data.unknown nan &&
    "$LOCKSTEP" predict unknown void.h5 --data.unknown nan --out of-void --threads 1
}
law 'rows of which nothing is known cannot be judged, and can be predicted' nothing_known
begun() {  # the last layer's values stay what they were where others' deviations are learned
  "$python" - <<'PYTHON'
import h5py
with h5py.File("values.h5") as f, h5py.File("stretched.h5", "w") as g:
    g["images"], g["targets"] = f["images"][()], f["targets"][()] * 2 + 7
PYTHON
  lr=0 train stretched.h5 begun --data.val values.h5 --data.task values --epochs 1 --init values \
    --freeze backbone && "$LOCKSTEP" eval values --threads 1 --json values.json &&
    "$python" - <<'PYTHON'
import json
then = json.load(open("values.json"))["scores"]
now = [json.loads(line) for line in open("begun/metrics.jsonl")]
now = [epoch for epoch in now if epoch["kind"] == "epoch"][-1]["val_scores"]
print(then, now)
assert all(abs(now[name] - then[name]) < 0.01 * then["RMSE"] for name in ("RMSE", "MAE", "bias"))
PYTHON
}
law 'a last layer that is kept says the same values in another data set' begun
one_hot() {
  train hot.h5 hot --epochs 1 && grep -F 'task = "classes"' hot/decisions.toml &&
    refused 'is not one-hot in row 77' train slip.h5 none --epochs 1 &&
    train slip.h5 slip --epochs 1 --data.task labels
}
law 'a one-hot matrix is classes, and one slip in it is no other task' one_hot
doubts() {
  train constant.h5 constant --epochs 1 --data.task values --stop-after 1 >said.log 2>&1
  grep -F 'the same in all rows: 2 (0.5)' said.log &&
    train never.h5 never --epochs 1 --data.task labels --data.val never.h5 2>&1 | tee said.log &&
    grep -F 'no validation has a mAP (eval.best): there is no best.h5' said.log &&
    [[ ! -e never/checkpoints/best.h5 ]]
}
law 'constant values, and a best checkpoint that cannot be chosen, are said' doubts
described() {
  "$LOCKSTEP" info labels.h5 | tee said.log && grep -F '3 labels:' said.log &&
    "$LOCKSTEP" info values/checkpoints/best.h5 | tee said.log &&
    grep -F 'best validation RMSE' said.log && grep -F '2 values' said.log &&
    "$LOCKSTEP" report labels -o page.html && grep -E 'mAP [01]' page.html &&
    ! grep -i 'nan %' page.html
}
law 'info and report say the task, and scores by their names' described
averaged() {  # averaged NAME FIRST SECOND: of equal checkpoints the weights are theirs
  "$LOCKSTEP" average $1/checkpoints/$2 $1/checkpoints/$3 --data $1.h5 --threads 1 \
    --out mean-$1.h5 | tee said.log && grep -E "in training: loss .*, (F1|R2) " said.log &&
    "$LOCKSTEP" average $1/checkpoints/$3 $1/checkpoints/$3 --data $1.h5 --threads 1 \
      --out same-$1.h5 && "$LOCKSTEP" eval mean-$1.h5 --data $1.h5 --threads 1 &&
    "$python" - same-$1.h5 $1/checkpoints/$3 <<'PYTHON'
import h5py, sys
with h5py.File(sys.argv[1]) as a, h5py.File(sys.argv[2]) as b:
    assert all((a["weights"][n][()] == b["weights"][n][()]).all()
               for n in a["weights"] if "running" not in n)
    for key in "task", "target_mean":
        assert str(a.attrs.get(key)) == str(b.attrs.get(key)), key
PYTHON
}
law 'average takes checkpoints of labels' averaged labels best.h5 step-00000040.h5
law 'average takes checkpoints of values' averaged values best.h5 step-00000040.h5
units() {
  lr=0 train stretched.h5 stretched --data.task values --epochs 1 &&
    refused 'of its values, and the first file has' "$LOCKSTEP" average values stretched \
      --data values.h5 --out no.h5
}
law 'values of other units have no mean' units
refuses() {
  refused 'only by a class can one model hand a row on' "$LOCKSTEP" eval \
      labels/checkpoints/best.h5 above 0.9 else labels/checkpoints/step-00000040.h5 &&
    refused 'eval.best = top-1 is no score of labels' train labels.h5 no --epochs 1 \
      --data.val labels.h5 --eval.best top-1 &&
    refused 'would have no effect' train labels.h5 no --epochs 1 --optim.huber-delta 1 &&
    refused 'data.task = classes, but the training is of labels' \
      "$LOCKSTEP" eval labels --data.task classes &&
    refused 'top 2 would have no effect: labels was trained on labels' \
      "$LOCKSTEP" predict labels labels.h5 --top 2 --out no &&
    refused 'have different classes' train labels.h5 no --epochs 1 --data.val other.h5 &&
    refused 'a label is 0 or 1' "$LOCKSTEP" eval labels --data values.h5 --data.labels targets
}
law 'what cannot be done with labels yet is an error that says so' refuses
