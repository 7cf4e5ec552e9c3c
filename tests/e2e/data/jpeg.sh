#!/bin/bash
# JPEG shards from the command line: packed by any number of ranks, described, trained on, resumed.
# seconds: 400
# computes
source "$(dirname "$0")/../../support/e2e.bash"

digest() { (cd "$1" && find . -type f | sort | xargs sha256sum | sha256sum); }

shapes=(pack --from shapes --jpeg --train-rows 240 --val-rows 60 --rows-per-shard 50)
run "$LOCKSTEP" "${shapes[@]}" --out jpegs
((status == 0)) && says 'packed 300 images of 10 classes as JPEGs'
verdict $? 'pack --jpeg says what it wrote'
run ranks 3 "$LOCKSTEP" "${shapes[@]}" --out of3
((status == 0)) && [[ $(digest jpegs) == $(digest of3) ]]
verdict $? '3 ranks pack the same JPEG shards as one'
run "$LOCKSTEP" info jpegs/train
says '240 rows of JPEG, 32 to 32 x 32 to 32 pixels, .* each on average, 3 channels, in 5 file'
verdict $? 'info describes JPEG shards'

train=(train --model resnet18 --data.train jpegs/train --data.val jpegs/val --data.size 40
  --epochs 2 --batch 24 --threads 1 --data.saturation 0.4 --data.hue 0.1 --data.randaugment 2
  --data.erase 0.3)
run "$LOCKSTEP" "${train[@]}" --data.flip true --out whole
((status == 0)) && says 'training on 240 rows of 40 x 40 pixels' && says 'validation top-1'
verdict $? 'ResNet-18 is trained on random crops of JPEGs'
run "$LOCKSTEP" "${train[@]}" --data.flip true --data.workers 3 --out parts --stop-after 13
((status == 3)) && run "$LOCKSTEP" "${train[@]}" --data.flip true --data.workers 2 --out parts \
  --resume auto && ((status == 0)) &&
  [[ $(without_times whole) == "$(without_times parts)" ]] &&
  [[ $(tensors whole/checkpoints/best.h5) == "$(tensors parts/checkpoints/best.h5)" ]]
verdict $? 'a training that is stopped mid-epoch and resumed with other workers ends with the same bits'
run "$LOCKSTEP" eval whole/checkpoints/best.h5 --data jpegs/val
((status == 0)) && says '60 rows: loss'
verdict $? 'eval crops JPEGs to the size of the trained network'

run "$LOCKSTEP" train --model resnet20 --data.train jpegs/train --data.size 32 --data.pad 4
((status == 2)) && says 'data.pad = 4'
verdict $? 'padding JPEGs is an error that names the key'
run "$LOCKSTEP" train --model resnet20 --data.train jpegs/train --data.size 48 --data.resize 40 \
  --data.crop random
((status == 2)) && says 'data.resize = 40 is smaller than crops of 48 x 48'
verdict $? 'a crop larger than the resized image is an error that names the key'
run "$LOCKSTEP" train --model resnet18 --data.train jpegs/train --data.hue 0.6
((status == 2)) && says 'data.hue = 0.6.*: must lie between 0 and 0.5'
verdict $? 'a hue shift of more than half the circle is an error that names the key'
run "$LOCKSTEP" pack --from shapes --jpeg --resize 8 --out out
((status == 2)) && says 'give one of the two'
verdict $? 'pack refuses --resize with --jpeg'

run "$LOCKSTEP" bench data jpegs/train --data.size 32 --seconds 0.3 --data.workers 2 \
  --json bench.json
((status == 0)) && says 'is the limit' && grep -q '"images_per_s"' bench.json
verdict $? 'bench data times the stages and the loader'

if /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
  cat >read.py <<'PYTHON'
import glob, io, h5py, numpy as np
with h5py.File(sorted(glob.glob("jpegs/train/*.h5"))[0]) as f:
    assert f.attrs["format"].decode() == "lockstep-jpeg-shard" and f.attrs["format_version"] == 1
    at, data = f["offsets"][()], f["jpegs"][()]
    assert at.dtype == np.uint64 and len(at) == len(f["labels"]) + 1 and at[0] == 0
    for begin, end in zip(at[:-1].astype(int), at[1:].astype(int)):
        assert data[begin] == 0xFF and data[begin + 1] == 0xD8 and data[end - 1] == 0xD9
    assert (f["sizes"][()] == 32).all() and f["sizes"].dtype == np.uint16
PYTHON
  run /usr/bin/python3 read.py
  ((status == 0))
  verdict $? 'h5py reads a JPEG shard as specified'
else
  echo 'SKIP h5py reads a JPEG shard as specified: no h5py'
fi
