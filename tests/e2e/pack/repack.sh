#!/bin/bash
# `lockstep pack --repack` writes a data set of shards again: the same images and labels, in the
# form that was asked for.
# seconds: 200
# computes
source "$(dirname "$0")/../../support/e2e.bash"

digest() { (cd "$1" && find . -type f | sort | xargs sha256sum | sha256sum); }
repack() { run "$LOCKSTEP" pack --repack "$@"; }

cat >rows.py <<'PYTHON'
# Every row of a data set: its label and a hash of its image, in order.
import glob, hashlib, sys, h5py
for path in sorted(glob.glob(sys.argv[1] + "/*.h5")):
    with h5py.File(path) as f:
        for i, label in enumerate(f["labels"][()]):
            if "images" in f:
                image = f["images"][i].tobytes()
            else:
                image = f["jpegs"][f["offsets"][i]:f["offsets"][i + 1]].tobytes()
            print(label, hashlib.sha256(image).hexdigest())
PYTHON
if ! /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
  echo 'SKIP shards are written again: no h5py'
  exit
fi
rows() { /usr/bin/python3 rows.py "$1"; }

shapes=(pack --from shapes --train-rows 230 --val-rows 60 --rows-per-shard 100)
"$LOCKSTEP" "${shapes[@]}" --out raw >/dev/null
"$LOCKSTEP" "${shapes[@]}" --jpeg --out jpeg >/dev/null

for form in raw jpeg; do
  options=(--rows-per-shard 40)
  [[ $form == raw ]] || options+=(--jpeg)
  repack $form "${options[@]}" --out $form-again
  ((status == 0)) && says 'again/train: 230 rows in 6 shards' &&
    says 'again/val: 60 rows in 2 shards' &&
    [[ $(rows $form/train) == "$(rows $form-again/train)" &&
    $(rows $form/val) == "$(rows $form-again/val)" ]]
  verdict $? "repacking $form to $form in smaller shards keeps the rows and their order"
  run ranks 3 "$LOCKSTEP" pack --repack $form "${options[@]}" --out of3
  ((status == 0)) && [[ $(digest of3) == "$(digest $form-again)" ]]
  verdict $? "3 ranks write the same $form shards as one"
  rm -rf of3
done

said=$(diff <("$LOCKSTEP" info raw/val | grep mean) <("$LOCKSTEP" info raw-again/val | grep mean))
verdict $? 'the mean and deviation of the training rows do not change'
repack jpeg --resize 16 --out small
((status == 0)) && says 'as 16 x 16 x 3' && "$LOCKSTEP" info small/train | grep -q '16 x 16' &&
  [[ $(rows small/train | cut -d' ' -f1) == "$(rows jpeg/train | cut -d' ' -f1)" ]]
verdict $? 'JPEGs become pixels of one size'
repack jpeg --jpeg --short-side 20 --out shorter
((status == 0)) && "$LOCKSTEP" info shorter/train | grep -q '20 to 20 x 20 to 20 pixels'
verdict $? 'JPEGs become smaller JPEGs'
repack raw --jpeg --out encoded
((status == 0)) && "$LOCKSTEP" info encoded/train | grep -q '230 rows of JPEG'
verdict $? 'pixels become JPEGs'
repack raw/train --val raw/val --shuffle --seed 9 --out mixed
((status == 0)) && [[ $(rows raw/train | sort) == "$(rows mixed/train | sort)" ]] &&
  [[ $(rows raw/train) != "$(rows mixed/train)" ]]
verdict $? '--shuffle changes only the order; --val names the validation set'
repack raw/train/train-00000-of-00003.h5 --out one
((status == 0)) && says 'packed 76 images' && [[ ! -e one/val ]]
verdict $? 'one shard is a data set, and nothing is held out by default'

run "$LOCKSTEP" pack raw --out out
((status == 2)) && says 'use --repack'
verdict $? 'shards are not packed without --repack'
mkdir empty
repack empty --out out
((status == 2)) && says 'empty.*holds no'
verdict $? 'a folder without shards is an error'
repack raw --val small/val --channels 1 --out grey
((status == 2)) && says 'is 16 x 16, but the first image is 32 x 32'
verdict $? 'sets of two sizes are an error unless they are resized'
printf '\1' | dd of=raw/train/train-00001-of-00003.h5 bs=1 seek=30000 conv=notrunc 2>/dev/null
repack raw --rows-per-shard 40 --out out
((status == 2)) && says 'raw/train/train-00001-of-00003.h5: row [0-9]+ is damaged'
verdict $? 'a damaged row is an error that names its file'
