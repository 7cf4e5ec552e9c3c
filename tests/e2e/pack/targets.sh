#!/bin/bash
# Images in folders with labels or values in a CSV file: shards of them have its numbers, whichever
# ranks pack them, and what does not fit is an error with the file and the line.
# ci
# computes
set -euo pipefail
root=$PWD
source "$(dirname "$0")/../../support/h5py.bash"
h5py_or_skip "pack --targets packs labels and values"

"$python" - <<'PYTHON'
import pathlib, struct, zlib
import numpy as np

def png(path, image):
    lines = b"".join(b"\0" + line.tobytes() for line in image)
    parts = [(b"IHDR", struct.pack(">IIBBBBB", *image.shape[1::-1], 8, 2, 0, 0, 0)),
             (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]  # fmt: skip
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts))  # fmt: skip

random = np.random.default_rng(1)
labels, values = ["path,wet,warm"], ["file,height,mass"]
for row in range(60):
    wet, warm = random.integers(0, 2, 2)
    folder = pathlib.Path("images") / f"day{row % 3}"
    folder.mkdir(parents=True, exist_ok=True)
    image = random.integers(0, 60, (16, 16, 3)) + [120 * wet, 120 * warm, row]
    png(folder / f"{row}.png", image.astype("u1"))
    unknown = row == 7
    labels.append(f"day{row % 3}/{row}.png,{'' if unknown else wet},{warm}")
    values.append(f"{row}.png,{'' if unknown else 100 + row / 4},{-row * 1e-3:.6f}")
pathlib.Path("labels.csv").write_text("\n".join(labels) + "\n")
pathlib.Path("values.csv").write_text("\n".join(values) + "\n")
def broken(name, lines):
    pathlib.Path(name).write_text("\n".join(lines) + "\n")
broken("short.csv", values[:-1])
broken("more.csv", values + ["99.png,1,2"])
broken("twice.csv", values + ["5.png,1,2"])
broken("word.csv", values[:9] + ["8.png,tall,2"] + values[10:])
broken("fields.csv", values[:9] + ["8.png,2"] + values[10:])
broken("semicolon.csv", [line.replace(",", ";") for line in values])
PYTHON

refused() {  # refused TEXT COMMAND...
  ! "${@:2}" >said.log 2>&1 && cat said.log && grep -F -- "$1" said.log
}
packs() {  # packs TARGETS OUT RANKS
  mpirun --oversubscribe -n $3 "$LOCKSTEP" pack images --targets $1 --out $2 --held-out 0.2
}
holds() {
  packs labels.csv of-labels 1 && packs values.csv of-values 1 && packs values.csv of-two 2 &&
    "$python" - <<'PYTHON'
import csv, glob
import h5py, numpy as np
def rows(folder):
    found = {}
    for path in sorted(glob.glob(folder + "/*/*.h5")):
        with h5py.File(path) as f:
            names = [one.decode() for one in f["classes"][()]]
            assert f.attrs["format_version"] == 3 and not f["labels"][()].any()
            for file, numbers in zip(f["file_names"][()], f["targets"][()]):
                found[file.decode().rstrip("\0")] = numbers
            task = str(np.asarray(f.attrs["task"]).astype(str))
    return task, names, found
for task in "labels", "values":
    said, names, found = rows(f"of-{task}")
    lines = list(csv.reader(open(f"{task}.csv")))
    assert said == task and names == lines[0][1:] and len(found) == 60, (said, names, len(found))
    for name, *numbers in lines[1:]:
        got = next(v for k, v in found.items() if k == name or k.endswith("/" + name))
        want = np.array([float(n) if n else np.nan for n in numbers], "f4")
        assert np.array_equal(got, want, equal_nan=True), (name, got, want)
PYTHON
  for part in train val; do
    for file in of-values/$part/*.h5; do
      cmp $file of-two/$part/"$(basename $file)" || return 1
    done
  done
}
law 'the shards have the names and numbers of the file, the same bytes by 1 and 2 ranks' holds
trains() {
  "$LOCKSTEP" train --model resnet20 --batch 16 --optim.lr 0.02 --data.train of-labels --epochs 8 \
    --out labels-run && "$LOCKSTEP" eval labels-run --json labels.json &&
    "$LOCKSTEP" train --model resnet20 --batch 16 --optim.lr 0.01 --data.train of-values \
      --epochs 2 --out values-run && "$LOCKSTEP" eval values-run --json values.json &&
    "$LOCKSTEP" info of-values/train && "$python" - <<'PYTHON'
import json
labels, values = (json.load(open(name + ".json")) for name in ("labels", "values"))
assert labels["rows"] == values["rows"] == 12
assert [one["name"] for one in labels["labels"]] == ["wet", "warm"]
assert [one["name"] for one in values["values"]] == ["height", "mass"]
assert labels["scores"]["mAP"] > 0.9, labels["scores"]
PYTHON
}
law 'shards of labels and of values are trained on and evaluated' trains
repacked() {
  "$LOCKSTEP" pack --repack of-values/train --out again --rows-per-shard 10 &&
    "$LOCKSTEP" eval values-run --data again/train --json a.json &&
    "$LOCKSTEP" eval values-run --data of-values/train --json b.json &&
    "$python" -c 'import json
a, b = (json.load(open(name))["loss"] for name in ("a.json", "b.json")); assert a == b, (a, b)'
}
law 'shards of values are packed again with their numbers' repacked
in_python() {  # data/lockstep.py reads them, and what it writes is trained on to the same bits
  PYTHONPATH=$root/data PYTHONDONTWRITEBYTECODE=1 "$python" -W error - <<'PYTHON' &&
import numpy as np
import lockstep
for task in "labels", "values":
    for part in "train", "val":
        rows = lockstep.Shards(f"of-{task}/{part}", check=True)
        assert rows.task == task and len(rows.targets) == len(rows) and not rows.labels.any()
        images, targets = (np.stack(both) for both in zip(*rows))
        assert np.array_equal(targets, rows.targets, equal_nan=True)
        lockstep.write_shards(f"own-{task}/{part}", images, targets, rows.classes, task=task,
                              like=rows)
    assert lockstep.about(f"{task}-run")["classes"] == rows.classes
    assert "fc.weight" in lockstep.state_dict(f"{task}-run")
    for bad, text in (targets + [[2, 0]], "or NaN where"), (targets[:, :1], "numbers, "):
        try:
            lockstep.write_shards("no", images, bad * np.inf if task == "values" else bad,
                                  rows.classes, task=task)
            assert False, text
        except lockstep.BadFile as error:
            assert text in str(error), error
PYTHON
    for task in labels values; do
      "$LOCKSTEP" eval $task-run --data own-$task/val --json own.json &&
        cmp <(grep -v of-$task $task.json) <(grep -v own-$task own.json) || return 1
    done
}
law 'data/lockstep.py reads and writes shards of labels and values' in_python
damaged() {
  cp -r of-values/train hurt && "$python" - <<'PYTHON'
import glob
import h5py
with h5py.File(sorted(glob.glob("hurt/*.h5"))[0], "a") as f:
    f["targets"][3, 1] += 1
PYTHON
  refused 'row 3 is damaged' "$LOCKSTEP" eval values-run --data hurt
}
law 'a number that has changed is found by the checksum of its row' damaged
refuses() {
  pack() { "$LOCKSTEP" pack images --out no --targets "$@"; }
  refused '59.png: short.csv has no line for it' pack short.csv &&
    refused 'more.csv, line 62: there is no image "99.png"' pack more.csv &&
    refused 'twice.csv, line 62: "5.png" has line 7, too' pack twice.csv &&
    refused "word.csv, line 10: 'tall' in the column 'height' is not a number" pack word.csv &&
    refused 'fields.csv, line 10: has 2 fields, but the header 3' pack fields.csv &&
    refused "semicolon.csv, line 1: expected a header" pack semicolon.csv &&
    refused 'is not a label, which is 0 or 1' pack values.csv --data.task labels &&
    refused 'not with --jpeg' pack values.csv --jpeg && [[ ! -e no/train ]]
}
law 'each line that does not fit is an error with its number' refuses
