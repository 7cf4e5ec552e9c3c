#!/bin/bash
# Values between limits and on a curve: what numpy makes of them, the same on any ranks and after a
# resume, and the run's numbers wherever its network is used.
# ci
# computes
set -euo pipefail
root=$PWD
source "$(dirname "$0")/../../support/h5py.bash"
h5py_or_skip "values are brought between limits and through a curve"

cat >write.py <<'PYTHON'
import h5py, numpy as np

random = np.random.default_rng(1)
labels = random.integers(0, 2, 192)
faint = random.lognormal(2, 1.5, (192, 16, 16, 3)) * (1 + labels[:, None, None, None])
curves = {"linear": lambda v: v, "log1p": np.log1p, "asinh": np.arcsinh}


def write(path, images, labels=labels):
    with h5py.File(path, "w") as f:
        f["images"], f["labels"] = images, labels


def shaped(name, images, low, high, curve):
    limits = []
    for percent, number in zip((2, 98), (low, high)):
        limits.append(np.percentile(images.astype("f8"), percent, (0, 1, 2)).astype("f4")
                      if number is None else np.float32(number))  # fmt: skip
    within = np.clip(images.astype("f4"), *limits)
    write(name + "-shaped.h5", curves[curve](within.astype("f8")).astype("f4"))
    write(name + ".h5", images)
    np.save(name + ".npy", np.array([np.broadcast_to(one, 3) for one in limits]))


shaped("real", faint.astype("f4"), None, None, "asinh")
shaped("wide", (faint * 20).clip(0, 65535).astype("u2"), 5, 3000, "log1p")
shaped("bytes", faint.clip(0, 255).astype("u1"), 0, None, "log1p")
write("other.h5", (faint * 3).astype("f4"))
low = faint.astype("f4")
low[7, 3, 2, 1] = -2
write("low.h5", low)
write("flat.h5", np.where(np.arange(3) == 1, faint > 1e3, faint).astype("f4"))
PYTHON
"$python" write.py

train() {  # train DATA RUN OPTION...
  "$LOCKSTEP" train --model resnet20 --batch 32 --optim.lr 0.05 --data.train "$1" --out "$2" \
    --epochs 2 --precision fp32 "${@:3}"
}
losses() { grep -o '"loss":[^,]*' "$1/metrics.jsonl"; }
refused() {  # refused TEXT COMMAND...
  ! "${@:2}" >said.log 2>&1 && cat said.log && grep -F -- "$1" said.log
}
alike() {  # alike NAME CLIP CURVE
  train $1.h5 run-$1 --data.clip $2 --data.curve $3 --data.element "$("$python" -c \
    "print(dict(real='float32', wide='uint16', bytes='uint8')['$1'])")" &&
    train $1-shaped.h5 shaped-$1 --data.element float32 &&
    [[ -n $(losses run-$1) && $(losses run-$1) == "$(losses shaped-$1)" ]]
}
for set in 'real p2,p98 asinh' 'wide 5,3000 log1p' 'bytes 0,p98 log1p'; do
  law "training on $set has the losses of what numpy makes of it" alike $set
done

keeps() {
  mpirun --oversubscribe -n 2 "$LOCKSTEP" train --model resnet20 --batch 32 --data.train real.h5 \
    --optim.lr 0.05 --out two --epochs 2 --data.clip p2,p98 --data.curve asinh --precision fp32 &&
    "$python" - <<'PYTHON'
import glob
import h5py, numpy as np
kept = []
for run in "run-real", "two":
    with h5py.File(sorted(glob.glob(f"{run}/checkpoints/*.h5"))[-1]) as f:
        kept.append([f.attrs[name] for name in ("clip_low", "clip_high", "mean", "stddev")])
        assert f.attrs["curve"] in (b"asinh", "asinh"), f.attrs["curve"]
assert all(np.array_equal(a, b) for a, b in zip(*kept)), kept
wanted = np.load("real.npy")
assert np.array_equal(np.array(kept[0][:2]), wanted), (kept[0], wanted)
with h5py.File("real-shaped.h5") as f:
    wide = f["images"][()].astype("f8").reshape(-1, 3)
assert np.allclose(kept[0][2], wide.mean(0), rtol=1e-6) and np.allclose(kept[0][3], wide.std(0))
PYTHON
}
law 'a checkpoint has the limits of numpy.percentile, equal for 1 and 2 ranks' keeps
resumes() {
  train real.h5 parts --data.clip p2,p98 --data.curve asinh --stop-after 7
  [[ $? == 3 ]] && "$LOCKSTEP" resume parts --stop-after 0 &&
    [[ $(losses parts) == "$(losses run-real)" ]] && grep -F 'clip = "' parts/decisions.toml
}
law 'a resume continues with the same losses' resumes
other_rows() {
  train real.h5 moved --data.clip p2,p98 --data.curve asinh --stop-after 6
  [[ $? == 3 ]] && "$LOCKSTEP" resume moved --stop-after 0 --data.train other.h5 &&
    "$python" - <<'PYTHON'
import glob
import h5py, numpy as np
with h5py.File(sorted(glob.glob("moved/checkpoints/*.h5"))[-1]) as f:
    kept = np.array([f.attrs["clip_low"], f.attrs["clip_high"]])
assert np.array_equal(kept, np.load("real.npy"))
PYTHON
}
law 'percentiles stay those of the first start on other rows' other_rows
evaluates() {
  "$LOCKSTEP" eval run-real --data real.h5 --json a.json &&
    "$LOCKSTEP" eval shaped-real --data real-shaped.h5 --json b.json &&
    "$LOCKSTEP" eval run-real --data other.h5 --json c.json &&
    "$LOCKSTEP" export run-real --to kept.safetensors kept.npz &&
    "$LOCKSTEP" eval kept.safetensors --data other.h5 --json d.json &&
    "$LOCKSTEP" average run-real run-real --data real.h5 --out mean.h5 &&
    "$LOCKSTEP" eval mean.h5 --data other.h5 &&
    "$python" -c 'import json
import h5py, numpy as np
a, b, c, d = (json.load(open(name + ".json"))["loss"] for name in "abcd")
assert a == b and c == d and a != c, (a, b, c, d)
with h5py.File("mean.h5") as f:
    kept = np.array([f.attrs["clip_low"], f.attrs["clip_high"]])
assert np.array_equal(kept, np.load("real.npy"))'
}
law 'evaluation, exported weights and their mean use the run'"'"'s numbers' evaluates
packed() {
  "$LOCKSTEP" pack --repack wide.h5 --out packed --held-out 0 &&
    train packed/train of-shards --data.clip 5,3000 --data.curve log1p &&
    "$LOCKSTEP" eval run-wide --data packed/train --json a.json &&
    "$LOCKSTEP" eval run-wide --data wide.h5 --json b.json &&
    "$python" -c 'import json
a, b = (json.load(open(name + ".json"))["loss"] for name in "ab")
assert abs(a - b) < 1e-5 * a, (a, b)'
}
law 'shards are brought between limits, too' packed
described() {
  "$LOCKSTEP" info run-real/checkpoints/step-00000012.h5 >said.log &&
    "$LOCKSTEP" info kept.safetensors >>said.log &&
    "$LOCKSTEP" info real.h5 --data.clip p2,p98 --data.curve asinh >>said.log &&
    [[ $(grep -c 'before mean and deviation: clip .*curve asinh' said.log) == 3 ]]
}
law 'info shows limits and curve of data, checkpoints and weights' described
refuses() {
  refused 'low.h5: row 7 has -2 in channel 1, where data.curve = log1p has no value' \
    train low.h5 no --data.curve log1p &&
    train low.h5 limited --data.curve log1p --data.clip 0,p99 &&
    train real.h5 logged --data.curve log1p &&
    refused 'low.h5: row 7 has -2 in channel 1' "$LOCKSTEP" eval logged --data low.h5 &&
    refused 'would leave nothing of channel 1' train flat.h5 no --data.clip p2,p98 &&
    refused 'has limits of 2 channels' train real.h5 no --data.clip '0,1;0,2' &&
    refused 'is neither a number nor a percentile' train real.h5 no --data.clip low,high &&
    refused "colours are changed" train bytes.h5 no --data.clip 0,9 --data.brightness 0.2
}
law 'values without a log1p, empty limits and other mistakes are errors' refuses
