#!/bin/bash
# Several data sets of images are one image, whose channels are chosen and ordered.
# ci
# computes
set -euo pipefail
root=$PWD
source "$(dirname "$0")/../../support/h5py.bash"
h5py_or_skip "several data sets of images are one image"
export PYTHONPATH=$root/data PYTHONDONTWRITEBYTECODE=1

cat >write.py <<'PYTHON'
import h5py, numpy as np

random = np.random.default_rng(1)
labels = random.integers(0, 17, 192)
sen1 = random.normal(-0.00004, 0.2, (192, 32, 32, 8)) + 0.05 * labels[:, None, None, None]
sen2 = random.normal(0.1, 0.04, (192, 32, 32, 10))
names = [f"S1-{i}" for i in range(8)] + [f"B{i}" for i in range(10)]
joined = np.concatenate([sen1, sen2], 3).astype("f4")
one_hot = np.eye(17)[labels]


def write(path, **sets):
    with h5py.File(path, "w") as f:
        for name, values in sets.items():
            f[name] = values


write("lcz.h5", sen1=sen1, sen2=sen2, label=one_hot, channels=names)
write("one.h5", images=joined, label=one_hot, channels=names)
write("planes.h5", sen1=sen1, sen2=sen2.transpose(0, 3, 1, 2), label=one_hot)
picked = joined[..., [10, 0, 17]]
write("picked.h5", images=picked, label=one_hot)
write("wide.h5", a=(sen1 * 100).astype("i2"), b=random.integers(0, 255, (192, 32, 32, 2), "u1"),
      label=labels)
write("uneven.h5", sen1=sen1, sen2=sen2[:, :16, :16], label=labels)
with h5py.File("chunked.h5", "w") as f:
    f.create_dataset("sen1", data=sen1, chunks=(5, 32, 32, 8), compression="gzip", shuffle=True)
    f.create_dataset("sen2", data=sen2.astype(">f8"))
    f["label"] = one_hot
PYTHON
"$python" write.py

train() {  # train DATA RUN OPTION...
  "$LOCKSTEP" train --model resnet20 --batch 32 --optim.lr 0.05 --data.train "$1" --out "$2" \
    --epochs 1 "${@:3}"
}
losses() { grep -o '"loss":[^,]*' "$1/metrics.jsonl"; }
refused() {  # refused TEXT COMMAND...
  ! "${@:2}" >said.log 2>&1 && cat said.log && grep -F -- "$1" said.log
}
both=(--data.images sen1,sen2 --data.labels label)

like_one() {
  train one.h5 one && train lcz.h5 lcz "${both[@]}" --data.val lcz.h5 | tee said.log &&
    grep -F 'images /sen1 [192, 32, 32, 8] and /sen2 [192, 32, 32, 10]' said.log &&
    grep -F 'float64, rounded to float32' said.log && [[ $(losses lcz) == "$(losses one)" ]]
}
law 'a file of the shape of So2Sat is trained in place, as its channels in one data set' like_one
published() (  # the commands of data/README.md about such files
  mkdir published && cd published && "$python" - <<'PYTHON' && mkdir build &&
import h5py
with h5py.File("../lcz.h5") as all:
    for name, rows in ("training", slice(96)), ("validation", slice(96, None)):
        with h5py.File(name + ".h5", "w") as f:
            for one in "sen1", "sen2", "label":
                f[one] = all[one][rows]
PYTHON
    ln -s "$LOCKSTEP" build/lockstep && python3 "$root/tests/support/pages.py" commands \
    "$root/data/README.md" | grep -E 'training.h5|runs/lcz' >commands.sh &&
    [[ $(wc -l <commands.sh) == [3-6] ]] && sed -i 's/--epochs 10/--epochs 2/' commands.sh &&
    OMPI_MCA_rmaps_base_oversubscribe=1 bash -ex commands.sh | tee said.log &&
    grep -E 'top-1 [0-9.]+ %' said.log
)
law 'the commands of the page train on So2Sat as it is' published
of_one() {
  train "$1" "of-${1%.h5}" "${both[@]}" && [[ $(losses "of-${1%.h5}") == "$(losses one)" ]]
}
law 'channels that come first are turned' of_one planes.h5
law 'chunks and big-endian numbers give the same' of_one chunked.h5
moved() {  # as mapped pages, and as a copy on the node
  train "$1" "mapped-${1%.h5}" "${both[@]}" --data.read mmap &&
    [[ $(losses "mapped-${1%.h5}") == "$(losses one)" ]] &&
    train "$1" "staged-${1%.h5}" "${both[@]}" --data.stage stage | tee said.log &&
    grep -F 'each node copies' said.log && [[ $(losses "staged-${1%.h5}") == "$(losses one)" ]] &&
    rm -r stage
}
law 'mapped and staged they give the same' moved lcz.h5
law 'so do channels that come first' moved planes.h5
picks_moved() {
  train lcz.h5 mapped-picks "${both[@]}" --data.channels 10,0,17 --data.read mmap \
    --data.stage stage && [[ $(losses mapped-picks) == "$(losses want)" ]]
}
unmoved() {
  refused 'chunked.h5: is not contiguous, and only contiguous data can be copied to nodes' \
    train chunked.h5 no "${both[@]}" --data.stage stage
}
law 'where one of them is in chunks, staging is an error in one line' unmoved
picks() {
  train picked.h5 want && train lcz.h5 by-number "${both[@]}" --data.channels 10,0,17 &&
    train lcz.h5 by-name "${both[@]}" --data.channels B2,S1-0,B9 &&
    train one.h5 of-one --data.channels 10,0,17 &&
    for run in by-number by-name of-one; do
      [[ $(losses $run) == "$(losses want)" ]] || return 1
    done
}
law 'chosen channels, by name or number, are those in another file, with mean and deviation' picks
law 'chosen channels are mapped and staged, too' picks_moved
again() {
  "$LOCKSTEP" eval by-name --data lcz.h5 --json result.json &&
    "$LOCKSTEP" eval want --data picked.h5 --json want.json &&
    "$python" -c 'import json
a, b = (json.load(open(name))["loss"] for name in ("result.json", "want.json"))
assert a == b, (a, b)'
}
law 'an evaluation takes the channels of the run' again
packed() {
  "$LOCKSTEP" pack --repack lcz.h5 "${both[@]}" --data.channels B2,S1-0,B9 --out packed \
    --held-out 0 && "$python" - <<'PYTHON'
import h5py, lockstep
shards = lockstep.Shards("packed/train", check=True)
assert shards.channels == ["B2", "S1-0", "B9"], shards.channels
with h5py.File("picked.h5") as f:
    assert all(shards[row][0].tobytes() == f["images"][row].tobytes() for row in range(192))
PYTHON
}
law 'pack writes the chosen channels with their names' packed
widened() {
  train wide.h5 wide --data.images a,b | tee said.log && grep -F '10 channels of int16' said.log
}
law 'the wider element holds both' widened
described() {
  "$LOCKSTEP" info lcz.h5 --data.images sen1,sen2 | tee said.log &&
    grep -F 'float64, rounded to float32' said.log && grep -F 'channels S1-0' said.log &&
    grep -F '18 channels of float32' said.log
}
law 'info names both, the channels and float64' described
refuses() {
  refused 'have images of' train uneven.h5 no "${both[@]}" ||
    refused 'has images of 16 x 16 pixels' train uneven.h5 no "${both[@]}" || return 1
  refused 'there is no such channel; there are 0 to 17' train lcz.h5 no "${both[@]}" \
    --data.channels 3,18 &&
    refused 'names one twice' train lcz.h5 no "${both[@]}" --data.channels 3,B2,10 &&
    refused '/sen3' train lcz.h5 no --data.images sen1,sen3 &&
    refused 'name several' train lcz.h5 no
}
law 'what does not fit is an error in one line' refuses
