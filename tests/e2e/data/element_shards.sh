#!/bin/bash
# Shards of version 3: images of 16 bits and floats are packed as they are, by the program and by
# data/lockstep.py, and give the bits of a training on the file that they were made from.
# ci
# computes
set -euo pipefail
root=$PWD
source "$(dirname "$0")/../../support/h5py.bash"
h5py_or_skip "images of 16 bits and floats are packed as they are"
export PYTHONPATH=$root/data PYTHONDONTWRITEBYTECODE=1

cat >write.py <<'PYTHON'
import h5py, numpy as np

random = np.random.default_rng(1)
labels = random.integers(0, 2, 192)
for name, kind in ("u16", "u2"), ("i16", "i2"), ("f16", "f2"), ("f32", "f4"):
    images = random.normal(2000, 300, (192, 16, 16, 5)) + 400 * labels[:, None, None, None]
    with h5py.File(f"{name}.h5", "w") as f:
        f.create_dataset("images", data=images.astype(kind), chunks=(5, 16, 16, 5), shuffle=True,
                         compression="gzip")
        f["labels"] = labels
        if name == "u16":
            f["channels"] = ["B2", "B3", "B4", "B8", "B8A"]
with h5py.File("virtual.h5", "w") as f:
    layout = h5py.VirtualLayout((192, 16, 16, 5), "f4")
    layout[:] = h5py.VirtualSource("f32.h5", "images", (192, 16, 16, 5))
    f.create_virtual_dataset("images", layout)
    f["labels"] = labels
PYTHON
"$python" write.py

train() {  # train DATA RUN OPTION...
  "$LOCKSTEP" train --model resnet20 --batch 32 --optim.lr 0.05 --data.train "$1" --out "$2" \
    --epochs 1 --data.shuffle block "${@:3}"
}
losses() { grep -o '"loss":[^,]*' "$1/metrics.jsonl"; }
refused() {  # refused TEXT COMMAND...
  ! "${@:2}" >said.log 2>&1 && cat said.log && grep -F -- "$1" said.log
}
pack() { "$LOCKSTEP" pack --repack "$1" --out "$2" --rows-per-shard 50 "${@:3}"; }

packed() {  # packed NAME: numpy reads the same numbers
  pack "$1.h5" "$1" --held-out 0 && "$python" - "$1" <<'PYTHON'
import glob, sys
import h5py, lockstep, numpy as np
name = sys.argv[1]
with h5py.File(f"{name}.h5") as f:
    images, labels = f["images"][()], f["labels"][()]
shards = lockstep.Shards(f"{name}/train", check=True)
assert shards.dtype == images.dtype and len(shards) == len(images) == 192
for row, (image, label) in enumerate(shards[row] for row in range(192)):
    assert image.tobytes() == images[row].tobytes() and label == labels[row], row
wide = images.astype("f8").reshape(-1, 5)
assert np.allclose(shards.mean, wide.mean(0), rtol=1e-6), (shards.mean, wide.mean(0))
assert np.allclose(shards.stddev, wide.std(0), rtol=1e-6)
assert shards.channels == (["B2", "B3", "B4", "B8", "B8A"] if name == "u16" else [])
with h5py.File(glob.glob(f"{name}/train/*.h5")[0]) as f:
    assert f.attrs["format_version"] == 3 and f["images"].dtype == images.dtype
PYTHON
}
for name in u16 i16 f16 f32 virtual; do
  law "a shard of $name has the numbers, mean and deviation of numpy" packed $name
done
trained() {
  train u16.h5 of-file && train u16/train of-shards && train u16/train mapped --data.read mmap &&
    train u16/train staged --data.stage "$PWD/node" &&
    [[ $(losses of-shards) == "$(losses mapped)" && $(losses mapped) == "$(losses staged)" ]] &&
    "$LOCKSTEP" eval of-shards --data u16/train && "$LOCKSTEP" eval of-file --data u16/train
}
law 'networks are trained on such shards and on the file, and evaluated on either' trained
python_writes() {
  "$python" - <<'PYTHON'
import h5py, lockstep
with h5py.File("u16.h5") as f:
    images, labels = f["images"][()], f["labels"][()]
lockstep.write_shards("py", images, labels, ["0", "1"], rows_per_shard=50,
                      channels=["B2", "B3", "B4", "B8", "B8A"])
lockstep.write_shards("py8", images.astype("u1"), labels, ["0", "1"])
assert lockstep.Shards("py8")._shards[0].facts[2] == "uint8"
PYTHON
  train py of-py && [[ $(losses of-py) == "$(losses of-shards)" ]] && "$LOCKSTEP" info py |
    tee said.log && grep -F '5 channels of uint16' said.log && grep -F 'channels B2, B3' said.log
}
law 'shards of write_shards() give the same losses, and info names the channels' python_writes
swapped() {  # the same shard with big-endian numbers, chunked
  "$python" - <<'PYTHON'
import glob, os, shutil
import h5py
os.makedirs("swapped")
for path in sorted(glob.glob("u16/train/*.h5")):
    to = f"swapped/{os.path.basename(path)}"
    shutil.copy(path, to)
    with h5py.File(to, "a") as f:
        images = f["images"][()]
        del f["images"]
        f.create_dataset("images", data=images.astype(">u2"), chunks=(7, 16, 16, 5))
PYTHON
  train swapped of-swapped --data.block 4 && train u16/train of-u16 --data.block 4 &&
    [[ $(losses of-swapped) == "$(losses of-u16)" ]]
}
law 'big-endian chunks have the same checksums and losses' swapped
killed() {  # a pack that is killed resumes, and has the bytes of another
  local how=(f32.h5 --rows-per-shard 2 --held-out 0.2 --seed 5) left
  "$LOCKSTEP" pack --repack "${how[@]}" --out whole || return 1
  for left in 0.05 0.1 0.15 0.2 0.3 0.4 100; do  # the last one is not killed
    timeout -s KILL $left "$LOCKSTEP" pack --repack "${how[@]}" --out parts && break
    sleep 0.1
  done
  diff -r whole parts
}
law 'a pack that is killed again and again ends with the bytes of one that is not' killed
resized() {  # by value: never outside what a channel has
  "$LOCKSTEP" pack --repack f32.h5 --out small --resize 8 && "$python" - <<'PYTHON' &&
import glob
import h5py, numpy as np
with h5py.File("f32.h5") as f:
    whole = f["images"][()]
for path in glob.glob("small/train/*.h5"):
    with h5py.File(path) as f:
        small = f["images"][()]
        assert small.dtype == np.float32 and small.shape[1:3] == (8, 8), small.shape
        assert whole.min() <= small.min() and small.max() <= whole.max()
PYTHON
    refused 'which can be packed as they are' pack f32.h5 no --channels 1 &&
    refused 'but not as JPEGs' pack f32.h5 no --jpeg
}
law 'floats are resized by value, and never become grey or JPEGs' resized
