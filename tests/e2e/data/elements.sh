#!/bin/bash
# Images of 16 bits, floats and many channels are trained on as they are, from file to network.
# ci
# computes
set -euo pipefail
source "$(dirname "$0")/../../support/h5py.bash"
h5py_or_skip "files of other numbers than uint8 are trained on"

cat >write.py <<'PYTHON'
import h5py, numpy as np

random = np.random.default_rng(1)
labels = random.integers(0, 2, 192)


def write(path, images, **how):
    with h5py.File(path, "w") as f:
        f.create_dataset("images", data=images, **how)
        f["labels"] = labels


# Twelve bands whose means differ by a factor of 100; the class is in one of them.
bands = random.normal(1, 0.02, (192, 16, 16, 12)) * np.geomspace(150, 15000, 12)
bands[..., 3] *= (1 + 0.05 * labels)[:, None, None]
bands = bands.astype("u2")
planes = bands.transpose(0, 3, 1, 2)
write("bands.h5", bands)
write("planes.h5", planes)
write("packed.h5", planes, chunks=(7, 12, 16, 16), compression="gzip", shuffle=True)
write("big.h5", bands.astype(">u2"))
# Reflectance around 0.1, and a corner of 1.6: 256 levels of 0 to 255 make all images the same.
faint = (0.12 + 0.01 * random.random((192, 16, 16, 3))).astype("f4")
faint[labels == 1] += 0.02
faint[:, :2, :2] = 1.6
write("faint.h5", faint)
write("wide.h5", faint.astype("f8"))
write("halves.h5", faint.astype("f2"))
levels = random.integers(0, 256, (192, 16, 16, 3), np.uint8)
write("levels.h5", levels)
write("floats.h5", (levels / 255).astype("f4"))
broken = faint.copy()
broken[70, 2, 3, 1] = np.nan
write("nan.h5", broken)
PYTHON
"$python" write.py

train() {  # train DATA RUN OPTION...
  "$LOCKSTEP" train --model resnet20 --batch 32 --optim.lr 0.05 --data.train "$1" --out "$2" \
    "${@:3}"
}
losses() { grep -o '"loss":[^,]*' "$1/metrics.jsonl"; }
refused() {  # refused TEXT COMMAND...
  ! "${@:2}" >said.log 2>&1 && cat said.log && grep -F -- "$1" said.log
}

trains() {
  train bands.h5 bands --epochs 2 | tee said.log &&
    grep -F 'the images are uint16' said.log && grep -F 'element = "uint16"' bands/decisions.toml
}
law 'twelve bands of uint16 are trained on' trains
like_bands() {
  train "$1" "of-${1%.h5}" --epochs 2 && [[ $(losses "of-${1%.h5}") == "$(losses bands)" ]]
}
for data in planes.h5 packed.h5 big.h5; do
  law "$data gives the same losses" like_bands $data
done
mapped() {
  train planes.h5 mapped --epochs 2 --data.read mmap && [[ $(losses mapped) == "$(losses bands)" ]]
}
law 'mapped pages give the same losses' mapped
learns() {  # learns DATA
  train "$1" "run-${1%.h5}" --data.val "$1" --epochs 6 &&
    "$LOCKSTEP" eval "run-${1%.h5}" --json result.json && cat result.json &&
    "$python" -c 'import json; assert json.load(open("result.json"))["top1"] > 0.99'
}
for data in faint.h5 wide.h5 halves.h5; do
  law "$data, which 256 levels would ruin, is learned" learns $data
done
law 'what 256 levels would ruin is still an error with data.element uint8' \
  refused 'become 256 levels' train faint.h5 ruined --epochs 1 --data.element uint8
described() {
  "$LOCKSTEP" info wide.h5 | tee said.log && grep -F 'float64, rounded to float32' said.log &&
    grep -F '3 channels of float32' said.log && "$LOCKSTEP" bench data bands.h5 --seconds 0.5
}
law 'info says the element, and that float64 is rounded' described
levels() {
  train levels.h5 levels --epochs 1 && train floats.h5 floats --epochs 1 &&
    [[ $(losses levels) == "$(losses floats)" ]] &&
    grep -F 'element = "uint8"' floats/decisions.toml
}
law 'floats that are 256 levels are uint8, with the same losses' levels
resumes() {
  local how=(--epochs 2 --data.flip true --data.pad 2 --data.cutout 4)
  train bands.h5 parts "${how[@]}" --stop-after 7
  [[ $? == 3 ]] && "$LOCKSTEP" resume parts --stop-after 0 && train bands.h5 whole "${how[@]}" &&
    [[ $(losses parts) == "$(losses whole)" ]]
}
law 'a resume continues with the same losses' resumes
other_element() {
  train faint.h5 element --epochs 1 &&
    refused 'of float32' train levels.h5 element --epochs 2 --resume auto --data.element uint8
}
law 'a run does not resume on images of another element' other_element
predicted() {
  "$LOCKSTEP" predict run-faint faint.h5 --out of-faint && "$python" - <<'PYTHON'
import h5py
with h5py.File("of-faint/predictions.h5") as f, h5py.File("faint.h5") as d:
    assert (f["top_class"][:, 0] == d["labels"][()]).mean() > 0.99
PYTHON
}
law 'predict takes the rows of such a file' predicted
bad_rows() {
  refused 'nan.h5: row 70 has NaN (not a number) in channel 1' train nan.h5 nan --epochs 1 &&
    train nan.h5 others --epochs 1 --data.keep-last true --data.on-bad-row skip
}
law 'NaN makes a bad row, which another may replace' bad_rows
refuses() {
  train faint.h5 boxes --data.crop random-resized --data.size 12 &&
    refused 'where they are uint8' train faint.h5 no --data.brightness 0.3 &&
    refused 'data.cutmix takes these, too' train bands.h5 no --data.mixup 0.2 --epochs 1 &&
    mkdir -p pictures/a && "$python" -c 'import pathlib
pathlib.Path("pictures/a/one.png").write_bytes(b"")' &&
    refused 'files have 1 or 3 of uint8 or uint16' \
      "$LOCKSTEP" predict bands pictures --out no
}
law 'what only makes sense for bytes is an error that says so' refuses
cuts() { train bands.h5 cuts --epochs 1 --data.cutmix 1 --data.flip true; }
law 'CutMix takes them' cuts
