#!/bin/bash
# PNGs of 16 bits a value: packed as uint16 to the bit, whatever of the 16 bits they use; a network
# that was trained on them predicts for files what it predicts for their shards.
# ci
# computes
set -euo pipefail
source "$(dirname "$0")/../../support/h5py.bash"
h5py_or_skip "PNGs of 16 bits are packed as uint16"

"$python" - <<'PYTHON'
import pathlib, struct, zlib
import numpy as np

def png(path, image):
    bits, colours = 8 * image.itemsize, 2 if image.ndim == 3 else 0
    lines = b"".join(b"\0" + line.astype(line.dtype.newbyteorder(">")).tobytes() for line in image)
    parts = [(b"IHDR", struct.pack(">IIBBBBB", *image.shape[1::-1], bits, colours, 0, 0, 0)),
             (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts))  # fmt: skip

random = np.random.default_rng(1)
for row in range(60):  # 12 bits in 16, as of cameras: the high bytes have 16 levels
    image = (random.integers(0, 1500, (16, 16)) + 2500 * (row % 2)).astype("u2")
    png(pathlib.Path(f"cells/{'even' if row % 2 == 0 else 'odd'}/{row}.png"), image)
    np.save(f"{row}.npy", image)
png(pathlib.Path("mixed/a/0.png"), image)
png(pathlib.Path("mixed/b/1.png"), image.astype("u1"))
png(pathlib.Path("shallow/a/0.png"), image.astype("u1"))
png(pathlib.Path("colour/a/0.png"), np.stack([image, image * 3, 65535 - image], -1))
png(pathlib.Path("colour/b/1.png"), np.stack([image] * 3, -1))
PYTHON

refused() {  # refused TEXT COMMAND...
  ! "${@:2}" >said.log 2>&1 && cat said.log && grep -F -- "$1" said.log
}
exact() {
  "$LOCKSTEP" pack cells --out packed --held-out 0.2 | tee said.log &&
    grep -F '.png: is a PNG of 16 bits, so images are packed as uint16' said.log &&
    grep -F '16 x 16 x 1 of uint16' said.log && "$python" - <<'PYTHON'
import glob
import h5py, numpy as np
seen = 0
for path in glob.glob("packed/*/*.h5"):
    with h5py.File(path) as f:
        assert f["images"].dtype == np.uint16
        for row, name in enumerate(f["file_names"].asstr()[()]):
            wanted = np.load(name.split("/")[-1].replace(".png", ".npy"))
            assert (f["images"][row, :, :, 0] == wanted).all(), name
            seen += 1
assert seen == 60
PYTHON
}
resized() {  # by value, within what the image has; repacked shards give the same
  "$LOCKSTEP" pack cells --out small --held-out 0.2 --resize 8 &&
    "$LOCKSTEP" pack --repack packed --out again --resize 8 && "$python" - <<'PYTHON'
import glob
import h5py, numpy as np
def rows(folder):
    found = {}
    for path in glob.glob(folder + "/*/*.h5"):
        with h5py.File(path) as f:
            found |= dict(zip(f["file_names"].asstr()[()], f["images"][()]))
    return found
small, again = rows("small"), rows("again")
assert len(small) == 60 and all((small[name] == again[name]).all() for name in small)
for name, image in small.items():
    whole = np.load(name.split("/")[-1].replace(".png", ".npy"))
    assert image.shape == (8, 8, 1) and whole.min() <= image.min() <= image.max() <= whole.max()
    assert abs(float(image.mean()) - whole.mean()) < 40
PYTHON
}
same_words() {  # of files as of shards
  "$LOCKSTEP" train --data.train packed/train --data.val packed/val --epochs 2 --batch 16 \
    --threads 1 --model resnet20 --optim.lr 0.02 --out run &&
    "$LOCKSTEP" predict run packed/val --csv --out of-shards &&
    "$LOCKSTEP" predict run cells --csv --out of-files && "$python" - <<'PYTHON'
import csv
def rows(folder):
    with open(folder + "/predictions.csv") as f:
        return {row["file"]: list(row.values())[-2:] for row in csv.DictReader(f)}
shards, files = rows("of-shards"), rows("of-files")
assert len(shards) == 12 and len(files) == 60
assert all(files[name] == words for name, words in shards.items()), (shards, files)
PYTHON
}
told() {
  refused 'has 8 bits a value or fewer, and images of uint16 are wanted' \
    "$LOCKSTEP" pack mixed --out no &&
    refused '--element uint16 is for' "$LOCKSTEP" pack shallow --element uint16 --out no &&
    refused 'stretch the values to 0 to 65535' "$LOCKSTEP" pack cells --element uint8 --out no &&
    refused 'stretch the values to 0 to 65535' "$LOCKSTEP" pack cells --jpeg --out no &&
    "$LOCKSTEP" pack colour --out colour3 | grep -F '16 x 16 x 3 of uint16' &&
    "$LOCKSTEP" pack colour --out colour1 --channels 1 | grep -F '16 x 16 x 1 of uint16'
}

law 'PNGs of 16 bits are packed as uint16, to the bit' exact
law 'they are resized by value, and their shards are, too' resized
law 'files of 16 bits are predicted as the shards of them' same_words
law 'what has fewer bits is an error, and bytes are made where they are asked for' told
