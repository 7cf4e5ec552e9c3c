#!/bin/bash
# `lockstep predict`: workers that know only a folder predict each row once, whatever happens to
# them, with the bits of a single worker.
# ci
# computes
source "$(dirname "$0")/../../support/e2e.bash"
"$LOCKSTEP" pack --from shapes --out set --train-rows 500 --val-rows 3000 --rows-per-shard 1200 \
  >pack.log || cat pack.log
"$LOCKSTEP" train --data.train set/train --data.val set/val --model resnet44 --batch 50 \
  --epochs 1 --threads 2 --out run >run.log 2>&1 || cat run.log
best=run/checkpoints/best.h5

# worker OUT OPTION...: 47 pieces of 64 rows. It replaces its shell, whose number is the worker's.
worker() {
  exec "$LOCKSTEP" predict "$best" set/val --batch 32 --piece-rows 64 --threads 1 --logits \
    --out "$@"
}
pieces() { find "$1/parts" -name 'part-*.h5' 2>/dev/null | wc -l; }
own_pieces() { awk '/^this worker predicted/ { sum += $4 } END { print sum + 0 }' "$@"; }
has_pieces() { (($(pieces "$1") >= $2)); }
same_as_one() {
  cmp one/predictions.h5 "$1/predictions.h5" && cmp one/predict.json "$1/predict.json"
}
nothing_pending() { [[ ! $(find "$1" -name '*.tmp*') ]]; }

# ---- one worker, several workers -----------------------------------------------------------------
run worker one --csv
((status == 0)) && says '3000 rows in 47 pieces: top-1 .* one/predictions.h5 and one/pred.*csv' &&
  says 'this worker predicted 47 pieces of 3000 rows' && (($(wc -l <one/predictions.csv) == 3001))
verdict $? 'one worker predicts all rows, and says what is right of those with labels'
predicted=$(grep -o 'top-1 [0-9.]* %' <<<"$said")
run "$LOCKSTEP" eval "$best" --data set/val
[[ $(grep -o 'top-1 [0-9.]* %' <<<"$said") == "$predicted" && $predicted ]]
verdict $? 'the top-1 that predict prints is the one of eval'

for i in 1 2 3; do worker three --csv >"three$i.log" 2>&1 & workers[i]=$!; done
ended=0
for i in 1 2 3; do wait "${workers[i]}" || ended=$?; done
said=$(cat three?.log)
((ended == 0)) && same_as_one three && cmp one/predictions.csv three/predictions.csv &&
  (($(own_pieces three?.log) == 47))
verdict $? 'three workers at once share the pieces, redo none, and give the bits of one'

stamps() { find three -type f -printf '%p %i %T@ %s\n' | sort; }
stamps >before
began=${EPOCHREALTIME/./}
run worker three --csv
took_us=$((${EPOCHREALTIME/./} - began))
((status == 0 && took_us < 2000000)) && says 'three: is complete' && says "$predicted" &&
  stamps | cmp - before
verdict $? 'a start that finds all done ends within 2 s and changes nothing'
rm three/predictions.csv
run worker three --csv
((status == 0)) && ! says 'this worker predicted' && same_as_one three &&
  cmp one/predictions.csv three/predictions.csv
verdict $? 'what is asked for later is made of what is there'

# ---- workers that are killed and stopped ---------------------------------------------------------
begin() { worker lost --stale-s 2 >"lost$1.log" 2>&1 & workers[$1]=$!; }
mkdir -p lost/parts
touch lost/parts/part-000002.h5.tmp7-0 lost/predictions.h5.tmp7-1  # of a worker killed long ago
for i in 1 2 3; do begin $i; done
until_it 600 has_pieces lost 3
kill -STOP "${workers[3]}"
until_it 600 has_pieces lost 8
kill -KILL "${workers[1]}"
until_it 600 has_pieces lost 14
kill -KILL "${workers[2]}"
wait "${workers[1]}" "${workers[2]}" 2>/dev/null
left=$((47 - $(pieces lost)))
held=$(grep -l "^pid ${workers[3]}$" lost/claims/* | wc -l)
for i in 4 5; do begin $i; done
wait "${workers[4]}" && wait "${workers[5]}"
status=$?
said=$(cat lost4.log lost5.log)
redone=$(own_pieces lost[45].log)
((status == 0 && left > 0 && held > 0 && redone == left)) && same_as_one lost &&
  nothing_pending lost
verdict $? 'others finish what a stopped and two killed workers held, and nothing else'
stamps_of_lost() { find lost -type f -printf '%p %i %T@ %s\n' | sort; }
stamps_of_lost >before
kill -CONT "${workers[3]}"
wait "${workers[3]}"
status=$?
said=$(cat lost3.log)
((status == 0)) && stamps_of_lost | cmp - before && nothing_pending lost
verdict $? 'a worker that was stopped and overtaken publishes nothing twice, and ends well'

worker stopped >stopped.log 2>&1 &
until_it 600 has_pieces stopped 2
kill -TERM $!
wait $!
status=$?
said=$(cat stopped.log)
((status == 3)) && says 'start it again to continue in stopped' && nothing_pending stopped &&
  [[ ! $(ls stopped/claims) && ! -e stopped/predictions.h5 ]]
verdict $? 'a worker that gets SIGTERM gives its piece up and ends with status 3'
run worker stopped
((status == 0)) && same_as_one stopped
verdict $? 'a later start continues where all workers were stopped'

# Where the file system has neither hard links nor a rename that replaces nothing.
odd() { LD_PRELOAD=$PWD/odd.so ODD="$1" "${@:2}"; }
begin_odd() { odd 'links noreplace foldersync' worker odd >"odd$1.log" 2>&1 & workers[$1]=$!; }
law='without hard links, and where folders are not synced, workers share the pieces all the same'
if "${CXX:-g++}" -x c -O1 -shared -fPIC -o odd.so "$support/preloads/odd_file_system.c"; then
  for i in 1 2; do begin_odd $i; done
  wait "${workers[1]}" && wait "${workers[2]}"
  status=$?
  said=$(cat odd?.log)
  ((status == 0 && $(own_pieces odd?.log) == 47)) && same_as_one odd && nothing_pending odd &&
    run odd links worker odd2 && ((status == 0)) && same_as_one odd2
  verdict $? "$law"
  run odd 'replies locks' worker odd3
  ((status == 0)) && same_as_one odd3 && nothing_pending odd3 &&
    says 'this worker predicted 47 pieces of 3000 rows'
  verdict $? 'without locks, and where the answer to a link is lost, what is published is its own'
  run odd 'links noreplace foldersync' "$LOCKSTEP" train --data.train set/train --model resnet20 \
    --batch 50 --stop-after 2 --threads 1 --data.stage "$PWD/stage" --out odd_run
  ((status == 3)) && says 'each node copies' && ls stage/lockstep-stage-*/*.h5 >/dev/null &&
    [[ -e odd_run/checkpoints/step-00000002.h5 ]]
  verdict $? 'training stages its data and saves there, too'
else
  echo "SKIP $law: no compiler for a preload"
fi

mkdir damaged && cp -r one/parts one/predict.json damaged
printf 'changed' | dd of=damaged/parts/part-000003.h5 bs=1 seek=2000 conv=notrunc 2>/dev/null
truncate -s 300 damaged/parts/part-000005.h5
run worker damaged
((status == 0)) && same_as_one damaged && says 'this worker predicted 2 pieces of 128 rows' &&
  says 'warning: damaged/parts/part-000003.h5: is torn or was altered.*; its rows are pred' &&
  says 'warning: damaged/parts/part-000005.h5: .*; its rows are predicted again'
verdict $? 'pieces that were altered or cut on the disk are named and predicted again'
truncate -s 5000 damaged/predictions.h5
run worker damaged
((status == 2)) && says 'damaged/predictions.h5: .*; remove it, and the next start makes it again' &&
  rm damaged/predictions.h5 && run worker damaged && ((status == 0)) && same_as_one damaged
verdict $? 'a result that was cut is an error that says how to get it again, and that is true'
mends=0
for cut in 10 5000 $(($(stat -c %s one/predictions.csv) - 1)) $(head -n 1500 one/predictions.csv |
  wc -c); do
  head -c "$cut" one/predictions.csv >damaged/predictions.csv
  run worker damaged --csv
  ((status == 2)) && says 'damaged/predictions.csv: .*; remove it, and the next start makes it' &&
    ! says 'is complete' && rm damaged/predictions.csv && run worker damaged --csv &&
    ((status == 0)) && cmp one/predictions.csv damaged/predictions.csv && ((++mends))
done
((mends == 4))
verdict $? 'so is a CSV that was cut, anywhere: between two rows, and before its last byte'

law='a full disk is named, leaves no half part, and costs nothing once there is room'
mkdir full
if mount -t tmpfs -o size=200k tmpfs full 2>/dev/null; then
  run worker full/out
  ((status == 1)) && says 'error: cannot write full/out/.*: No space left' &&
    nothing_pending full && (($(pieces full/out) > 0)) &&
    mount -o remount,size=64m full && run worker full/out && ((status == 0)) && same_as_one full/out
  verdict $? "$law"
  umount full
else
  echo "SKIP $law: no small file system can be mounted here"
fi

# ---- launchers -----------------------------------------------------------------------------------
run ranks 3 "$LOCKSTEP" predict "$best" set/val --batch 32 --piece-rows 64 --logits \
  --out ranked
((status == 0)) && same_as_one ranked && (($(grep -c 'rows in 47 pieces' <<<"$said") == 1))
verdict $? 'under mpirun each process is a worker, and one of them speaks'

# ---- what cannot be done -------------------------------------------------------------------------
refused() {  # refused NAME PATTERN ARGUMENT...
  run "$LOCKSTEP" predict "${@:3}"
  ((status == 2)) && says "$2"
  verdict $? "$1"
}
"$LOCKSTEP" train --data.train set/train --model resnet44 --batch 50 --stop-after 1 --threads 2 \
  --out other >other.log 2>&1
refused 'another model in the same folder is an error that names what differs' \
  'one/predict.json: this folder has predictions with weights = .* name another folder' \
  other/checkpoints/step-00000001.h5 set/val --batch 32 --piece-rows 64 --logits --out one
refused 'other rows in the same folder are an error' \
  'one/predict.json: .* with data = "3000 rows' "$best" set/train --batch 32 --piece-rows 64 \
  --logits --out one
refused 'other columns in the same folder are an error' 'with top = 5, and now it is 3' "$best" \
  set/val --batch 32 --piece-rows 64 --logits --top 3 --out one
refused 'a folder that is a file is named' 'run.log' "$best" set/val --out run.log
refused 'a shard in place of a checkpoint is named' 'not a lockstep checkpoint' \
  set/val/val-00000-of-00003.h5 set/val --out bad
refused 'a data set that is not there is named' 'nowhere: ' "$best" nowhere --out bad
rm -r damaged/predict.json damaged/predictions.h5
refused 'pieces of which nothing says what they are of are not joined to others' \
  'damaged: has predictions, but predict.json, which says of what, is missing' \
  other/checkpoints/step-00000001.h5 set/val --batch 32 --piece-rows 64 --logits --out damaged
"$LOCKSTEP" pack --from shapes --out large --train-rows 20 --val-rows 3 --resize 40 >/dev/null
refused 'images of another shape are an error that names both' \
  "$best has images of 32 x 32 .* large/val of 40 x 40" "$best" large/val --out bad
[[ ! -e bad ]]
verdict $? 'what cannot be done makes no folder'

cp -r set/val broken
printf 'broken pixels' | dd of=broken/val-00000-of-00003.h5 bs=1 seek=500000 conv=notrunc \
  2>/dev/null
refused 'a broken row is an error that names file and row' \
  'broken/val-00000.*: row [0-9]+ is damaged' "$best" broken --out strict
run "$LOCKSTEP" predict "$best" broken --out lenient --skip-bad --csv
((status == 0)) && says 'warning: 1 row could not be read' &&
  (($(grep -Ec '^[0-9]+,[a-z]+,{10}$' lenient/predictions.csv) == 1))
verdict $? 'with --skip-bad a broken row gets no class'

# ---- other programs ------------------------------------------------------------------------------
if /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
  run /usr/bin/python3 - <<'PYTHON'
import csv, h5py, numpy as np

with h5py.File("one/predictions.h5") as file:
    classes = [name.decode() for name in file["classes"]]
    got = {name: file[name][:] for name in file if name != "classes"}
assert (got["row"] == np.arange(3000)).all()
assert got["top_class"].shape == (3000, 5) and got["logits"].shape == (3000, 10)
logits = got["logits"].astype(np.float64)
order = np.argsort(-logits, axis=1, kind="stable")[:, :5]
assert (order == got["top_class"]).all()
share = np.exp(logits - logits.max(1, keepdims=True))
share /= share.sum(1, keepdims=True)
assert np.abs(np.take_along_axis(share, order, 1) - got["top_probability"]).max() < 1e-6
rows = list(csv.DictReader(open("one/predictions.csv")))
assert len(rows) == 3000
for row, label, top in zip(rows, got["label"], got["top_class"]):
    assert row["label"] == classes[label] and row["class_1"] == classes[top[0]]
PYTHON
  verdict $status 'h5py and csv read the same rows, and the likeliest classes follow from logits'
else
  echo 'SKIP predictions are read by other programs: /usr/bin/python3 has no h5py'
fi
