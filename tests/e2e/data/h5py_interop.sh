#!/bin/bash
# data/FORMAT.md is enough to write shards that lockstep reads; h5py and h5dump read lockstep's
# shards.
# computes
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
source "$root/tests/support/h5py.bash"
h5py_or_skip "shards are exchanged with h5py"

# The program in the specification, as a module; the checks below use its functions.
awk '/<!-- interop: end/ { on = 0 } on && !/^```/; /<!-- interop: begin/ { on = 1 }' \
  "$root/data/FORMAT.md" >shard_by_h5py.py
mkdir plain && cat >inspect_shards.py <<'PYTHON'
import json, pathlib, sys
import h5py, numpy as np

sys.argv[1:1] = ["plain/a.h5"]  # the program writes it when it is imported
from shard_by_h5py import crc32c, images, labels, mean, row_bytes, write_shard

command, arguments = sys.argv[2], sys.argv[3:]


def copy(to, **change):
    """The specification's shard with some items stored differently."""
    pathlib.Path(to).parent.mkdir()
    with h5py.File("plain/a.h5") as f, h5py.File(to, "w", **change.pop("file", {})) as g:
        for name, value in f.attrs.items():
            g.attrs[name] = change.get(name, value)
        for name in f:
            g.create_dataset(name, **{"data": f[name][()], **change.get(name, {})})


def described():
    info = json.loads(sys.stdin.read())
    assert (info["rows"], info["height"], info["width"], info["channels"]) == (96, 32, 32, 3), info
    assert [c["name"] for c in info["classes"]] == ["cat", "dog", "grüner Vogel"], info
    assert [c["rows"] for c in info["classes"]] == np.bincount(labels).tolist(), info
    assert np.allclose(info["mean"], mean, atol=1e-6), info


def losses(run):
    steps = [json.loads(line) for line in open(run + "/metrics.jsonl")]
    return [s["loss"] for s in steps if "loss" in s]


def same_losses(run, other):
    assert len(losses(run)) == 3 and losses(run) == losses(other), (losses(run), losses(other))


def read_ours(path):
    with h5py.File(path) as f:
        assert f.attrs["format"].decode() == "lockstep-shard" and f.attrs["format_version"] == 2
        pixels = f["images"][()]
        assert f["images"].chunks is None
        assert pixels.dtype == np.uint8 and pixels.shape[1:] == (32, 32, 3)
        assert f["labels"].dtype == np.int32 and f["crc32c"].dtype == np.uint32
        assert (f["crc32c"][()] == crc32c(row_bytes(pixels, f["labels"][()]))).all()
        assert len(f["classes"]) == 10 and f["classes"][f["labels"][0]].decode()
        assert 0 <= f["labels"][()].min() and f["labels"][()].max() < 10
        assert f.attrs["mean"].shape == f.attrs["stddev"].shape == (3,)
        shared = pixels.reshape(-1, 3) / 255
        assert np.abs(shared.mean(0) - f.attrs["mean"]).max() < 1e-4
        assert np.abs(shared.std(0) - f.attrs["stddev"]).max() < 1e-4


def change_pixel(path):
    with h5py.File(path, "r+") as f:
        f["images"][41, 7, 7, 0] ^= 4


def change_label(path):
    with h5py.File(path, "r+") as f:
        f["labels"][17] = (f["labels"][17] + 1) % 3


def with_channels(to, count):
    """The specification's shard with `count` channels."""
    repeated = np.concatenate([images] * 22, axis=-1)[..., : int(count)]
    pathlib.Path(to).parent.mkdir()
    write_shard(to, repeated, labels, ["cat", "dog", "bird"],
                repeated.mean((0, 1, 2)) / 255, repeated.std((0, 1, 2)) / 255)


if command == "variants":
    copy("compressed/a.h5", images={"chunks": (1, 32, 32, 3), "compression": "gzip"})
    copy("foreign/a.h5", file={"userblock_size": 512, "libver": "latest"},
         labels={"dtype": ">i4"}, crc32c={"dtype": ">u4"}, mean=np.asarray(mean, ">f8"),
         classes={"data": np.array([b"cat", b"dog", "grüner Vogel".encode()])})
else:
    globals()[command](*arguments)
PYTHON

check() { "$python" inspect_shards.py "$@"; }
train() {  # train DATA RUN
  "$LOCKSTEP" train --model resnet20 --data.train "$1" --epochs 1 --batch 32 --out "$2"
}
describe() { "$LOCKSTEP" info --json plain/a.h5 | check described; }
trains_on() {  # trains_on CHANNELS
  check with_channels "of-$1/a.h5" "$1" && train "of-$1" "run-of-$1"
}
refuses_channels() {  # refuses_channels CHANNELS
  check with_channels "of-$1/a.h5" "$1"
  ! train "of-$1" "run-of-$1" >said.log 2>&1 && cat said.log && [[ ! -e run-of-$1 ]] &&
    grep "error: of-$1 has images of $1 channels; networks take 1 to 64" said.log
}
like_plain() { train "$1" "run-$1" && check same_losses run-plain "run-$1"; }
refuses_change() {  # refuses_change OF ROW
  cp -r plain "$1"
  check "change_$1" "$1/a.h5"
  ! train "$1" "run-$1" >said.log 2>&1 && grep -F "$1/a.h5: row $2 is damaged" said.log
}

law 'the program in data/FORMAT.md runs' check variants
law 'info describes a shard that h5py wrote' describe
law 'a shard that h5py wrote is trained on, with the CRCs of the specification' train plain run-plain
law 'a shard compressed by h5py gives the same losses' like_plain compressed
law 'a shard in other byte orders and after a user block gives the same losses' like_plain foreign
law 'a row that h5py changed is an error that names file and row' refuses_change pixel 41
law 'a label that h5py changed to another class is an error that names file and row' refuses_change label 17
for channels in 1 2 4 5 13 64; do
  law "images of $channels channel(s) are trained on" trains_on $channels
done
for channels in 65; do
  law "images of $channels channels are an error that names the data" refuses_channels $channels
done
law 'lockstep packs the default data set' \
  "$LOCKSTEP" pack --from shapes --train-rows 300 --val-rows 60 --out shapes
ours=$(echo shapes/train/*.h5)
law 'h5py reads our shard as specified' check read_ours "$ours"
law 'h5dump reads our shard' h5dump -d /labels "$ours"
