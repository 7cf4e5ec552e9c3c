#!/bin/bash
# A training that begins with weights for other channels (--init-channels), or without a last layer.
# ci
# computes
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/h5py.bash"
h5py_or_skip 'a training begins with weights for other channels'

run "$python" - <<'END'
import h5py
import numpy as np

draw = np.random.default_rng(3)
labels = draw.integers(0, 4, 96)
images = draw.integers(0, 200, (96, 16, 16, 3))
images[..., 0] += labels[:, None, None] * 15
for name, channels in ("three", [0, 1, 2]), ("twice", [0, 1, 2] * 2), ("five", [2, 1, 0, 0, 1]):
    with h5py.File(name + ".h5", "w") as file:
        file["images"] = images[..., channels].astype("uint8")
        file["labels"] = labels
END
run "$LOCKSTEP" train --data.train three.h5 --model resnet20 --batch 32 --threads 1 --epochs 1 \
  --optim.lr 0.01 --out base
run "$LOCKSTEP" export base --to base.npz
((status == 0)) || verdict 1 'the weights to begin with'

# begun DATA OUT OPTION...: the weights that a training begins with, in OUT.npz.
begun() {
  run "$LOCKSTEP" train --data.train "$1.h5" --model resnet20 --batch 32 --threads 1 --optim.lr 0 \
    --stop-after 1 --out "$2" "${@:3}"
  ((status == 3)) && "$LOCKSTEP" export "$2" --to "$2.npz" >/dev/null
}
# filters FILE EXPRESSION: numpy's expression of w, base.npz's first filters, gives FILE's.
filters() {
  "$python" -c "import sys, numpy as np
w = np.load('base.npz')['conv1.weight'].astype('float64')
sys.exit(not np.array_equal(np.load('$1')['conv1.weight'], ($2).astype('float32')))"
}

begun twice repeat --init base.npz --init-channels repeat --freeze backbone &&
  says 'first convolution takes channels 0,1,2,0,1,2 of 3, times 3/6' &&
  filters repeat.npz 'np.concatenate([w, w], 1) * (3 / 6)'
verdict $? 'repeat gives each channel filters of the file, in turn'
run "$LOCKSTEP" predict base three.h5 --logits --out of_three --threads 1
run "$LOCKSTEP" predict repeat twice.h5 --logits --out of_twice --threads 1
run "$python" -c 'import h5py, numpy as np
three, twice = (h5py.File(f"of_{one}/predictions.h5")["logits"][:] for one in ("three", "twice"))
assert abs(three - twice).max() < 1e-4 * abs(three).max(), abs(three - twice).max()'
verdict $status 'on channels that are repeated the network says what it said'

begun five list --init base.npz --init-channels 2,1,0,-,- &&
  filters list.npz 'np.stack([w[:, 2], w[:, 1], w[:, 0], *[w.sum(1) / 3] * 2], 1) * (3 / 5)'
verdict $? 'a list says which filters each channel gets, or the mean of all'
begun three order --init base.npz --init-channels 2,1,0 && filters order.npz 'w[:, [2, 1, 0]]'
verdict $? 'as many channels in another order have the bits of their filters'
begun twice fresh --init base.npz --init-channels new && says 'with a new first convolution' &&
  begun twice seed --seed 1 && run "$python" -c 'import numpy as np
fresh, seed, base = (np.load(one + ".npz") for one in ("fresh", "seed", "base"))
assert np.array_equal(fresh["conv1.weight"], seed["conv1.weight"])
assert np.array_equal(fresh["layer1.0.conv1.weight"], base["layer1.0.conv1.weight"])'
verdict $status 'new keeps the first convolution that the seed gives, and the rest is the file'\''s'

# refused WORDS DATA OPTION...: a training with these options is an error with these words.
refused() {
  run "$LOCKSTEP" train --data.train "$2.h5" --model resnet20 --batch 32 --out refused "${@:3}"
  ((status == 2)) && says "^error: .*$1" && [[ ! -e refused ]]
}
refused 'base.npz: was trained on images of 3 channels, and the data set.s have 5: --init-chan' \
  five --init base.npz &&
  refused 'init-channels = 0,1 is for 2 channels, and the images have 5' \
    five --init base.npz --init-channels 0,1 &&
  refused 'init-channels: a channel of base.npz' five --init base.npz --init-channels 0,1,2,3,- &&
  refused 'init-channels: a channel of base.npz' five --init base.npz --init-channels 0,1,2,x,- &&
  refused 'init-channels.*init' five --init-channels repeat
verdict $? 'other channels without the key, and a list that does not fit, are errors that name it'

run "$python" -c 'import numpy as np
np.savez("backbone.npz", **{"backbone." + name: numbers for name, numbers in
                            np.load("base.npz").items() if not name.startswith("fc.")})'
begun three headless --init backbone.npz && says 'and a new last layer for 4 classes;' &&
  filters headless.npz w
verdict $? 'a file without a last layer is a backbone, and gets a new one'
refused 'backbone.npz: has no last layer that could be kept' three --init backbone.npz \
  --head keep && run "$LOCKSTEP" eval backbone.npz --data three.h5 && ((status == 2)) &&
  says 'no tensor .fc.weight.'
verdict $? 'a last layer that is not there cannot be kept, nor evaluated'
