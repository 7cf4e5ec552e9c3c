#!/bin/bash
# Values that stand for no data are left out of mean and deviation, and enter the network as 0: in
# files of other programs, in shards, in training and evaluation.
# ci
# computes
set -euo pipefail
root=$PWD
source "$(dirname "$0")/../../support/h5py.bash"
h5py_or_skip "values that stand for no data enter as 0"
export PYTHONPATH=$root/data PYTHONDONTWRITEBYTECODE=1

cat >write.py <<'PYTHON'
import h5py, numpy as np

random = np.random.default_rng(1)
labels = random.integers(0, 2, 192)
images = (random.normal(250, 20, (192, 16, 16, 3)) + 25 * labels[:, None, None, None]).astype("f4")
holes = random.random(images.shape) < 0.1
holes[7] = True  # a row of nothing else
holes[100:110, :, :4] = True
numbers = np.where(holes, -9999, images.astype("i2"))


def write(path, images, **attributes):
    with h5py.File(path, "w") as f:
        f["images"], f["labels"] = images, labels
        f["images"].attrs.update(attributes)


write("nan.h5", np.where(holes, np.nan, images).astype("f4"))
write("filled.h5", numbers.astype("i2"), _FillValue=np.int16(-9999), scale_factor=0.01,
      add_offset=273.15)
write("both.h5", numbers.astype("i2"), _FillValue=np.int16(-9999), missing_value=np.int16(251))
write("bytes.h5", np.where(holes, 0, images / 2).astype("u1"))
PYTHON
"$python" write.py

train() {  # train DATA RUN OPTION...
  "$LOCKSTEP" train --model resnet20 --batch 32 --optim.lr 0.05 --data.train "$1" --out "$2" \
    --epochs ${epochs:-2} "${@:3}"
}
losses() { grep -o '"loss":[^,]*' "$1/metrics.jsonl"; }
refused() {  # refused TEXT COMMAND...
  ! "${@:2}" >said.log 2>&1 && cat said.log && grep -F -- "$1" said.log
}
says() {  # says TEXT COMMAND...
  "${@:2}" | tee said.log && grep -F -- "$1" said.log
}

law 'NaN is an error that names the key' \
  refused 'or say --data.no-data nan' train nan.h5 no
law 'a fill value is an error that names the key and its value' \
  refused 'say --data.no-data -9999, or none if it is data' train filled.h5 no
law 'another one than data.no-data is still an error' \
  refused 'has 251 in channel' train both.h5 no --data.no-data -9999
law 'a word that is no number is an error' \
  refused 'is neither a number, nan nor none' train nan.h5 no --data.no-data yes
law 'a number that the file cannot hold is an error' \
  refused 'which cannot be data.no-data = 1000000000' train filled.h5 no --data.no-data 1e9
law 'none makes a fill value data' train filled.h5 none --data.no-data none

learns() {  # learns DATA NO_DATA
  epochs=6 train "$1" "run-${1%.h5}" --data.no-data "$2" --data.val "$1" &&
    "$LOCKSTEP" eval "run-${1%.h5}" --json result.json &&
    "$python" -c 'import json; assert json.load(open("result.json"))["top1"] > 0.97'
}
law 'rows with NaN are learned' learns nan.h5 nan
law 'rows of int16 with -9999 are learned' learns filled.h5 -9999
law 'rows of uint8 with 0 are learned' learns bytes.h5 0

# The same rows as shards, and with what enters as 0 in place of NaN: the channel's mean.
exact() {
  "$python" - <<'PYTHON'
import glob
import h5py, lockstep, numpy as np
with h5py.File("nan.h5") as f:
    images, labels = f["images"][()], f["labels"][()]
lockstep.write_shards("sparse", images, labels, ["0", "1"], no_data=float("nan"))
shards = lockstep.Shards("sparse", check=True, normalised=True)
wide = images.astype("f8").reshape(-1, 3)
assert np.allclose(shards.mean, np.nanmean(wide, 0), rtol=1e-6), shards.mean
assert np.allclose(shards.stddev, np.nanstd(wide, 0), rtol=1e-6)
assert np.isnan(shards.no_data) and not np.any(shards[7][0])
plain = np.where(np.isnan(images), shards.mean, images).astype("f4")
lockstep.write_shards("plain", plain, labels, ["0", "1"])
for path in glob.glob("plain/*.h5"):
    with h5py.File(path, "a") as f:
        f.attrs["mean"], f.attrs["stddev"] = shards.mean, shards.stddev
PYTHON
  train sparse sparse-run --data.val sparse && train plain plain-run --data.val plain &&
    [[ $(losses sparse-run) == "$(losses plain-run)" ]]
}
law 'no data has the losses of values that are exactly the mean' exact
resumes() {
  train sparse parts --data.flip true --data.pad 2 --stop-after 7
  [[ $? == 3 ]] && "$LOCKSTEP" resume parts --stop-after 0 &&
    train sparse one --data.flip true --data.pad 2 && [[ $(losses parts) == "$(losses one)" ]]
}
law 'a resume continues with the same losses' resumes
packed() {
  "$LOCKSTEP" pack --repack nan.h5 --data.no-data nan --out packed --held-out 0 &&
    train packed/train of-packed && train nan.h5 of-file --data.no-data nan &&
    "$LOCKSTEP" eval of-file --data packed/train && "$python" - <<'PYTHON'
import lockstep, numpy as np
one, other = lockstep.Shards("packed/train", check=True), lockstep.Shards("sparse")
assert np.allclose(one.mean, other.mean, rtol=1e-6) and np.isnan(one.no_data)
for row in range(192):
    assert one[row][0].tobytes() == other[row][0].tobytes(), row
PYTHON
}
law 'pack keeps NaN, and says so in the shards' packed
other_data() {
  refused 'no data nan' "$LOCKSTEP" eval of-file --data plain
}
law 'rows in which other values are no data are an error' other_data
described() {
  says '1 of these is nothing else' "$LOCKSTEP" info sparse &&
    says 'scale_factor 0.01, add_offset 273.15 (not applied' "$LOCKSTEP" info filled.h5 \
      --data.no-data -9999
}
law 'info says the share of no data, rows without any, and scale and offset' described
refuses() {
  refused 'data.cutmix takes these' train bytes.h5 no --data.no-data 0 --data.mixup 0.2 &&
    train nan.h5 resized --data.no-data nan --data.resize 20 --data.size 16 &&
    "$LOCKSTEP" export run-bytes --to kept.safetensors &&
    "$LOCKSTEP" eval kept.safetensors --data bytes.h5 --json kept.json &&
    "$LOCKSTEP" eval run-bytes --data bytes.h5 --json result.json &&
    "$python" -c 'import json
a, b = (json.load(open(name))["loss"] for name in ("kept.json", "result.json"))
assert a == b, (a, b)'
}
law 'what would mix them is an error, and weights keep them' refuses
