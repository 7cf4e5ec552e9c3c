#!/bin/bash
# Training reads the HDF5 files of h5py users like shards, with any compression and layout.
# ci
# computes
set -euo pipefail
source "$(dirname "$0")/../../support/h5py.bash"
h5py_or_skip "other people's HDF5 files are read"

cat >write.py <<'PYTHON'
import os

import h5py, numpy as np

random = np.random.default_rng(1)
smooth = random.integers(0, 256, (96, 8, 8, 3), np.uint8).repeat(2, 1).repeat(2, 2)
labels = random.integers(0, 3, 96)
planes = smooth.transpose(0, 3, 1, 2)


def write(path, images=smooth, names=("images", "labels"), **how):
    with h5py.File(path, "w", libver=how.pop("libver", "earliest")) as f:
        f.create_dataset(names[0], data=images, **how)
        f.create_dataset(names[1], data=labels)


write("plain.h5")
write("gzip.h5", compression="gzip", shuffle=True)  # chunks as h5py guesses them
write("rows.h5", chunks=(1, 16, 16, 3), compression="gzip", fletcher32=True, libver="latest")
write("lzf.h5", compression="lzf", chunks=(10, 16, 16, 3))
write("planes.h5", planes, ("x", "y"), chunks=(16, 3, 16, 16), compression="lzf", shuffle=True)
write("floats.h5", (planes / 255).astype("f4"), compression="gzip", shuffle=True)
write("doubles.h5", smooth.astype(">f8"))
write("halves.h5", smooth.astype("f2"), chunks=(7, 16, 16, 3))
for part in range(3):
    with h5py.File(f"part{part}.hdf5", "w") as f:
        rows = slice(part * 32, part * 32 + 32)
        f["images"], f["labels"] = smooth[rows], labels[rows]
with h5py.File("virtual.h5", "w") as f:
    layout = h5py.VirtualLayout(smooth.shape, np.uint8)
    for part in range(3):
        layout[part * 32 : part * 32 + 32] = h5py.VirtualSource(
            f"part{part}.hdf5", "images", (32,) + smooth.shape[1:])
    f.create_virtual_dataset("images", layout)
    f["labels"] = labels
names = np.array(["cat", "dog", "fox"])[labels]
for path, texts in ("texts.h5", names.astype(object)), ("bytes.h5", names.astype("S")):
    with h5py.File(path, "w") as f:
        f["images"], f["labels"] = smooth, texts
with h5py.File("split.h5", "w") as f:
    f["x_train"], f["y_train"] = smooth, labels
    f["x_test"], f["y_test"] = smooth[:40], labels[:40]
for part, rows in ("train", slice(96)), ("valid", slice(40)):  # as PatchCamelyon's files
    write(part + "_x.h5", smooth[rows], ("x", "unused"))
    with h5py.File(part + "_x.h5", "a") as f:
        del f["unused"]
    with h5py.File(part + "_y.h5", "w") as f:
        f["y"] = labels[rows, None, None, None].astype("u1")
for name in "Blosc", "Zstd":
    try:
        import hdf5plugin
        how = getattr(hdf5plugin, name)()
        write("part", chunks=(10, 16, 16, 3), **how)
        os.rename("part", name.lower() + ".h5")
    except Exception as error:
        print(name, error)
PYTHON
"$python" write.py >write.log 2>&1 || cat write.log

train() {  # train DATA RUN OPTION...
  "$LOCKSTEP" train --model resnet20 --data.train "$1" --epochs 1 --batch 32 --out "$2" "${@:3}"
}
losses() { grep -o '"loss":[^,]*' "$1/metrics.jsonl"; }
like_plain() {  # like_plain DATA
  train "$1" "run-${1//[*.]/}" && [[ $(losses "run-${1//[*.]/}") == "$(losses run-plainh5)" ]]
}

law 'a file of uint8 images and labels is trained on' train plain.h5 run-plainh5
for data in gzip.h5 rows.h5 lzf.h5 planes.h5 floats.h5 doubles.h5 halves.h5 virtual.h5 \
    'part*.hdf5'; do
  law "$data gives the same losses" like_plain "$data"
done
predicts_named() {  # the same pixels and labels under other names
  "$LOCKSTEP" predict run-plainh5 plain.h5 --logits --out of-plain &&
    "$LOCKSTEP" predict run-plainh5 planes.h5 --data.images x --data.labels y --logits \
      --out of-planes && "$python" - <<'PYTHON'
import h5py, numpy as np
got = [h5py.File(f"of-{name}/predictions.h5")["logits"][()] for name in ("plain", "planes")]
assert (got[0] == got[1]).all()
PYTHON
}
law 'predict takes the names of data sets, and gives the same logits' predicts_named
named_classes() {
  like_plain texts.h5 && like_plain bytes.h5 && train texts.h5 again-texts | tee said.log &&
    grep -F 'the labels are texts; classes in the order of their names: 0 cat, 1 dog, 2 fox' \
      said.log && "$LOCKSTEP" eval again-texts --data bytes.h5 | tee said.log &&
    grep -E '^  fox +[0-9.]+ % of' said.log
}
law 'labels that are texts give the same losses, and their classes are named' named_classes
for data in blosc.h5 zstd.h5; do
  if [[ -e $data ]]; then
    law "$data gives the same losses" like_plain $data
  else
    echo "SKIP $data gives the same losses: hdf5plugin, which would write it, is not here"
  fi
done
repacked() {  # repacked DATA OPTION...: the shards have the rows of plain.h5
  rm -rf packed && "$LOCKSTEP" pack --repack "$1" --out packed "${@:2}" && "$python" - <<'PYTHON'
import glob, h5py, numpy as np
images, labels = [], []
for path in sorted(glob.glob("packed/train/*.h5")):
    with h5py.File(path) as f:
        images.append(f["images"][()]), labels.append(f["labels"][()])
with h5py.File("plain.h5") as f:
    assert np.array_equal(np.concatenate(images), f["images"][()])
    assert np.array_equal(np.concatenate(labels), f["labels"][()])
PYTHON
}
for data in gzip.h5 planes.h5 floats.h5 doubles.h5 virtual.h5 'part*.hdf5'; do
  law "--repack makes shards of $data" repacked "$data"
done
repacked_names() {
  rm -rf packed
  ! "$LOCKSTEP" pack --repack split.h5 --out packed >said.log 2>&1 && cat said.log &&
    grep -F -- '--data.images' said.log &&
    repacked split.h5 --val split.h5 --data.images x_train --data.labels y_train \
      --data.val-images x_test --data.val-labels y_test &&
    "$LOCKSTEP" info packed/val | grep '40 rows'
}
law '--repack takes the names of the data sets, for both splits' repacked_names
named() {
  ! train split.h5 run-split >said.log 2>&1 && grep -F -- '--data.images' said.log &&
    train split.h5 run-split --data.val split.h5 --data.images x_train --data.labels y_train \
      --data.val-images x_test --data.val-labels y_test | tee said.log &&
    grep 'validating on 40' said.log &&
    [[ $(losses run-split | head -3) == "$(losses run-plainh5)" ]]
}
law 'training and validation rows in one file are distinguished by name' named
evaluated() {
  "$LOCKSTEP" eval run-split/checkpoints/best.h5 --data split.h5 --json result.json &&
    grep '"rows": 40' result.json
}
law 'eval reads the same names from the checkpoint' evaluated
two_files() {
  local how=(--data.labels train_y.h5:y --data.val valid_x.h5)
  train train_x.h5 two "${how[@]}" --data.val-labels valid_y.h5:y | tee said.log &&
    grep -F 'images /x [96, 16, 16, 3], labels /y [96, 1, 1, 1] in train_y.h5' said.log &&
    grep -F 'images /x [40, 16, 16, 3], labels /y [40, 1, 1, 1] in valid_y.h5' said.log &&
    [[ $(losses two | head -3) == "$(losses run-plainh5)" ]] &&
    "$LOCKSTEP" eval two | grep '^40 rows' &&
    "$LOCKSTEP" eval two --data train_x.h5 --data.labels train_y.h5:y | grep '^96 rows' &&
    "$LOCKSTEP" resume two --epochs 2 && repacked train_x.h5 --data.labels train_y.h5:y
}
law 'labels in another file are read by training, eval, resume and --repack' two_files
labels_of_others() {
  ! train train_x.h5 others --data.labels train_y.h5:y --data.val train_x.h5 >said.log 2>&1 &&
    cat said.log && grep -F 'are the labels of other images' said.log &&
    ! "$LOCKSTEP" eval two --data train_x.h5 >said.log 2>&1 && cat said.log &&
    grep -F 'are the labels of other images' said.log &&
    ! "$LOCKSTEP" predict two train_x.h5 --out others >said.log 2>&1 && cat said.log &&
    grep -F 'are the labels of other images' said.log &&
    mkdir elsewhere && cd elsewhere && ! "$LOCKSTEP" resume ../two --epochs 3 >../said.log 2>&1 &&
    cd .. && cat said.log && grep -F 'is not there, seen from this folder' said.log
}
law 'labels in another file are never taken for those of other images' labels_of_others
described() {
  "$LOCKSTEP" info gzip.h5 | tee said.log && grep -E 'stored chunks of .*shuffle, gzip' said.log &&
    grep 'rows/s in order' said.log
  "$LOCKSTEP" info --data.images x_test --data.labels y_test split.h5 | grep '40 rows of 16 x 16'
}
law 'info says how a file is stored and how fast it can be read' described
damaged() {
  "$python" - <<'PYTHON'
import h5py
with h5py.File("lzf.h5", "r+") as f:
    f["images"].id.write_direct_chunk((90, 0, 0, 0), b"\xff" * 50)
PYTHON
  ! train lzf.h5 run-damaged >said.log 2>&1 && cat said.log &&
    grep -F 'lzf.h5: rows 90 to 95 cannot be decoded' said.log
}
law 'a damaged chunk is an error that names file and rows' damaged
