#!/bin/bash
# Data that cannot be trained on: all ranks end with status 2, and the message names the file, and
# the row if there is one.
# seconds: 600
# waits for ranks to start
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
shard=train-00001-of-00003.h5

# refused NAME PATTERN OPTION...: status 2, this message, and no run's folder.
refused() {
  run "${start[@]}" "$LOCKSTEP" train --out run --threads 1 "${@:3}"
  ((status == 2)) && says "$2" && [[ ! -e run ]]
  verdict $? "$1"
  rm -rf run
}
copy_set() { cp -r small/train "$1"; }

copy_set cut && truncate -s 15000 "cut/$shard"
start=(ranks 2)
refused 'a truncated shard is an error that names it, on 2 ranks' "cut/$shard: .*truncated" \
  --data.train cut
start=()  # one rank finds the rest as several do
copy_set text && echo 'no pixels' >text/train-00009.h5
refused 'a text file named .h5 is an error that names it' \
  'text/train-00009.h5: is not an HDF5 file' \
  --data.train text
mkdir none
refused 'a folder without shards is an error that names it' 'none: holds no \*.h5 file' \
  --data.train none
refused 'an absent validation set is an error that names it' 'nowhere: ' --data.train small/train \
  --data.val nowhere

"$LOCKSTEP" pack --from shapes --out other --train-rows 20 --val-rows 10 --resize 9 >/dev/null
copy_set mixed && cp other/train/*.h5 mixed/train-00009.h5
refused 'shards that disagree about the shape are both named' \
  'mixed/train-00009.h5: has rows of 9 x 9 x 3, but mixed/train-00000.* has rows of 8 x 8 x 3' \
  --data.train mixed
refused 'a validation set of another shape is an error that names both' \
  'small/train has images of 8 x 8 .* other/val of 9 x 9' --data.train small/train \
  --data.val other/val
mkdir idx
head -c 1280 "$LOCKSTEP" >pixels
{ printf '\0\0\010\003\0\0\0\024\0\0\0\010\0\0\0\010' && cat pixels; } >idx/train-images-idx3-ubyte
printf '\0\0\010\001\0\0\0\024\0\1\2\0\1\2\0\1\2\0\1\2\0\1\2\0\1\2\0\1' \
  >idx/train-labels-idx1-ubyte
"$LOCKSTEP" pack idx --out digits --channels 3 >/dev/null 2>&1
refused 'a validation set of other classes is an error that names both' \
  'small/train .*digits/val .*class' --data.train small/train --data.val digits/val
copy_set classes && cp digits/train/*.h5 classes/train-00009.h5 2>/dev/null
refused 'shards that disagree about the classes are both named' \
  'classes/train-00009.h5: .*class.*classes/train-00000' --data.train classes

"$LOCKSTEP" pack --from shapes --out few --train-rows 3 --val-rows 2 --resize 8 >/dev/null
start=(ranks 4)
refused 'more ranks than rows are an error that gives both numbers' \
  '4 ranks are more than the 3 rows' \
  --data.train few/train --batch 4 --data.keep-last

# ---- damage inside -------------------------------------------------------------------------------
if ! command -v h5dump >/dev/null; then
  echo 'SKIP damaged rows and labels are errors: h5dump is not here'
  exit
fi
# patch FILE DATASET BYTE [BITS]: changes bits in that byte of the data set.
patch() {
  local at byte
  at=$(($(h5dump -p -H -d "$2" "$1" | sed -n 's/.*OFFSET \([0-9]*\).*/\1/p') + $3))
  byte=$(od -An -tu1 -j $at -N 1 "$1")
  printf "\\x$(printf %02x $((byte ^ ${4:-0x55})))" |
    dd of="$1" bs=1 seek=$at conv=notrunc status=none
}
start=()
copy_set labels && patch "labels/$shard" /labels $((41 * 4))
refused 'a label out of range is an error that names file and row' \
  "labels/$shard: row 41 .*label" --data.train labels

copy_set rows && patch "rows/$shard" /images $((41 * 192 + 100))
cp -r small/val rows-val && patch rows-val/val-00000-of-00001.h5 /images $((17 * 192))
# damaged RANKS NAME PATTERN OPTION...: the damage is found in the middle of a training.
damaged() {
  local began=$SECONDS
  run timeout 90 mpirun --oversubscribe --bind-to none -np "$1" "$LOCKSTEP" train --out run \
    --threads 1 --batch 16 "${@:4}"
  # Sooner than the deadline for ranks that wait.
  ((status == 2 && SECONDS - began < 40)) && says "$3"
  verdict $? "$2"
  rm -rf run
}
damaged 1 'a damaged row ends a training, and file and row are named' \
  "error: rows/$shard: row 41 is damaged: the CRC-32C" --data.train rows
for n in 2 4; do
  damaged $n "a damaged row ends all of $n ranks, and the rank that read it names it" \
    "rank [0-9]: error: rows/$shard: row 41 is damaged: the CRC-32C" --data.train rows
done
copy_set classes-of-rows && patch "classes-of-rows/$shard" /labels $((23 * 4)) 1
damaged 2 'a label that was changed to another class ends a training, and file and row are named' \
  "rank [0-9]: error: classes-of-rows/$shard: row 23 is damaged: the CRC-32C" \
  --data.train classes-of-rows
damaged 2 'a damaged row of the validation set ends 2 ranks, and file and row are named' \
  'rank [0-9]: error: rows-val/val-00000-of-00001.h5: row 17 is damaged' --data.train small/train \
  --data.val rows-val

# cut_off NAME OPTION...: a shard becomes shorter while two ranks train on it.
cut_off() {
  local began train status=0
  copy_set shrinking
  mpirun --oversubscribe --bind-to none -np 2 "$LOCKSTEP" train --data.train shrinking --out run \
    --threads 1 --batch 16 --optim.lr 0.01 --epochs 100000 --checkpoint.every-epochs 0 \
    "${@:2}" >run.log 2>&1 &
  train=$!
  first_step run.log
  began=$SECONDS
  truncate -s 15000 "shrinking/$shard"
  wait $train || status=$?
  said=$(tr -d '\0' <run.log)
  ((status == 2 && SECONDS - began < 40)) &&
    says "rank [0-9]: error: shrinking/$shard: row [0-9]+ cannot be read: .* become shorter"
  verdict $? "$1"
  rm -rf run run.log shrinking
}
cut_off 'a shard that becomes shorter during a training ends both ranks, and file and row are named'
cut_off 'a mapped shard that becomes shorter does the same' --data.read mmap

# ---- broken rows that are replaced ---------------------------------------------------------------
copy_set several && for row in 3 41 77; do patch "several/$shard" /images $((row * 192 + 7)); done
listed() { grep -o '"bad_rows":\[[^]]*\]' "$1/metrics.jsonl"; }
skip=(train --data.train several --data.on-bad-row skip --threads 1 --batch 16 --epochs 2
  --data.keep-last true)
run "$LOCKSTEP" "${skip[@]}" --out skipped
((status == 0)) && says '3 rows of epoch 2 broken and replaced' &&
  [[ $(listed skipped | grep -c "row 3 .*row 41 \|row 41 .*row 3 \|row 77 ") == 2 ]]
verdict $? 'on request broken rows are replaced, and listed in the log and in metrics.jsonl'
run "$LOCKSTEP" "${skip[@]}" --out parts --data.workers 3 --stop-after 12 &&
  run "$LOCKSTEP" "${skip[@]}" --out parts --data.workers 2 --resume auto
((status == 0)) && [[ -n $(listed parts) && $(without_times skipped) == "$(without_times parts)" ]]
verdict $? 'the same rows replace them with other workers, and when the epoch was interrupted'
latin=$'caf\xe9'
cp -r several "$latin"
run "$LOCKSTEP" "${skip[@]/several/$latin}" --out latin
((status == 0)) && [[ $(listed latin | grep -c 'row 41 ') == 2 ]]
verdict $? 'broken rows are listed even when their path is not UTF-8'
run ranks 2 "$LOCKSTEP" "${skip[@]}" --out limited --data.bad-rows-limit 2
((status == 2)) && says '3 rows of epoch 1 are broken, more than data.bad-rows-limit = 2'
verdict $? 'more broken rows than the limit end both ranks'
run "$LOCKSTEP" "${skip[@]}" --out val --data.val rows-val
((status == 2)) && says 'row 17 is damaged'
verdict $? 'a broken row of the validation set is not skipped'
