#!/bin/bash
# `lockstep eval` counts every row once, on any number of ranks and with any last batch, and reports
# in JSON; `lockstep info` describes a file or folder, for people and for scripts.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
"$LOCKSTEP" train --data.train small/train --data.val small/val --batch 50 --epochs 3 --threads 1 \
  --out run >run.log 2>&1 || cat run.log
best=run/checkpoints/best.h5
python=/usr/bin/python3
"$python" -c 'import json' 2>/dev/null || python=

# ---- eval ----------------------------------------------------------------------------------------
cat >compare.py <<'PYTHON'
import json, sys

one, *others = [json.load(open(name)) for name in sys.argv[2:]]
rows = int(sys.argv[1])
for other in others:
    assert {k: v for k, v in other.items() if k != "loss"} == \
        {k: v for k, v in one.items() if k != "loss"}, (one, other)
    assert abs(other["loss"] - one["loss"]) <= 1e-6 * one["loss"], (one["loss"], other["loss"])
assert one["rows"] == rows == sum(count for _, _, count in one["confusion"]), one
assert one["confusion"] == sorted(one["confusion"])
assert all(count > 0 for _, _, count in one["confusion"])
right = 0
for label, name in enumerate(one["classes"]):
    row = {taken_for: count for of, taken_for, count in one["confusion"] if of == label}
    assert name["rows"] == sum(row.values()), name
    assert name["top1"] is None if name["rows"] == 0 else \
        abs(name["top1"] - row.get(label, 0) / sum(row.values())) < 1e-12, name
    right += row.get(label, 0)
assert abs(one["top1"] - right / rows) < 1e-12 and one["top1"] <= one["top5"] <= 1, one
PYTHON
# same NAME DATA ROWS RANKS:BATCH...: each evaluation gives the same result as the first.
same() {
  local name=$1 data=$2 rows=$3 files=() pair
  for pair in "${@:4}"; do
    run ranks "${pair%:*}" "$LOCKSTEP" eval "$best" --data "$data" --batch "${pair#*:}" \
      --threads 1 \
      --json "$pair.json"
    ((status == 0)) || break
    files+=("$pair.json")
  done
  if ((status == 0)) && [[ -n $python ]]; then run "$python" compare.py "$rows" "${files[@]}"; fi
  verdict $status "$name"
}
if [[ -n $python ]]; then
  same '53 rows give the same counts on 1 to 4 ranks, in batches that do and do not divide them' \
    small/val 53 1:53 1:7 2:7 3:9 4:16 4:1
  "$LOCKSTEP" pack --from shapes --out few --train-rows 20 --val-rows 3 --resize 8 >/dev/null
  same '3 rows are counted once on 4 ranks, and classes without rows have no accuracy' \
    few/val 3 1:3 4:2
else
  echo 'SKIP evaluations are compared: /usr/bin/python3 is not here'
fi
run "$LOCKSTEP" eval run --data small/val --data.images x
((status == 2)) && says '^error: --data.images would have no effect: small/val holds shards$'
verdict $? 'a key that says how to read other files is an error for shards'
mkdir alone && cp -r small/train alone && run "$LOCKSTEP" eval run --data alone
((status == 2)) && says '^error: alone: has train/, but no val/'
verdict $? 'a packed folder without a validation set is an error that says so'
# Twenty thousand classes: a matrix of them would be of 3.2 GB. Each file of a list may be a row
# often.
if [[ -n $python ]]; then
  "$python" - <<'PYTHON'
import os, struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for n in range(8):
    pixels = lambda y: bytes([(31 * n + 3 * x + y) % 256 for x in range(24)])
    rows = b"".join(b"\0" + pixels(y) for y in range(8))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
    open(f"{n}.png", "wb").write(b"\x89PNG\r\n\x1a\n" + head +
                                chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
classes = 20000
os.mkdir("i")
for n in range(classes):
    os.link(f"{n % 8}.png", f"i/{n}.png")
open("many.txt", "w").writelines(f"i/{n}.png {n}\n" for n in range(classes))
open("some.txt", "w").writelines(f"i/{n * 49}.png {n * 49}\n" for n in range(400))
PYTHON
  "$LOCKSTEP" pack many.txt --val some.txt --out many >pack.log 2>&1 || cat pack.log
  "$LOCKSTEP" train --data.train many/train --data.val many/val --batch 32 --stop-after 1 \
    --threads 1 \
    --out many-run >many.log 2>&1
  run ranks 2 "$LOCKSTEP" eval many-run/checkpoints/step-00000001.h5 --batch 16 --threads 1 \
    --json many.json
  ((status == 0)) && says '^400 rows: loss' && run "$python" - <<'PYTHON'
import json
of = json.load(open("many.json"))
assert len(of["classes"]) == 20000 and sum(count for _, _, count in of["confusion"]) == 400
PYTHON
  verdict $status 'an evaluation of 20000 classes counts what occurs, not each pair of classes'
fi
run "$LOCKSTEP" eval "$best" --data small/val
[[ $(grep -o 'top-1 [0-9.]* %' <<<"$said") == \
  $(grep -o 'validation top-1 [0-9.]* % (best [0-9.]* %' run.log | sed 's/.*(best/top-1/') ]]
verdict $? 'eval gives the top-1 that training printed'

refused() {  # refused NAME PATTERN ARGUMENT...
  run "$LOCKSTEP" eval "${@:3}" --json out.json
  ((status == 2)) && says "$2" && [[ ! -e out.json ]]
  verdict $? "eval refuses $1"
}
"$LOCKSTEP" pack --from shapes --out large --train-rows 20 --val-rows 3 --resize 9 >/dev/null
head -c 100000 $best >cut.h5
refused 'a truncated checkpoint, and names it' 'cut.h5: this checkpoint is torn' cut.h5 \
  --data small/val
refused 'a shard in place of a checkpoint' '00001.h5: not a lockstep checkpoint' small/val/*.h5 \
  --data small/val
refused 'images of another shape, and names both' \
  "$best has images of 8 x 8 .* large/val of 9 x 9" $best --data large/val
"$LOCKSTEP" pack --from shapes --out grey --train-rows 20 --val-rows 3 --resize 8 --channels 1 \
  >/dev/null
refused 'images with another number of channels' 'grey/val of 8 x 8 pixels of 1 channel' $best \
  --data grey/val
refused 'a data set that is not there' 'nowhere: ' $best --data nowhere
refused 'a batch of no rows' 'batch: .*0' $best --data small/val --batch 0
refused 'an unknown precision' "precision: 'fp8' is not known" $best --data small/val \
  --precision fp8

cp "$best" kept.h5
run "$LOCKSTEP" eval kept.h5 --data small/val --json kept.h5
((status == 2)) && says 'cannot write the report to kept.h5: it is an input file' &&
  cmp "$best" kept.h5
verdict $? 'a report does not overwrite the checkpoint'
run "$LOCKSTEP" eval "$best" --data small/val --json /dev/stdout
((status == 0)) && says '"confusion"'
verdict $? 'a report can be written to a device'
cp -r small other && run unlike_ranks "$LOCKSTEP" eval "$best" --data small/val : \
  "$LOCKSTEP" eval "$best" --data small/train
((status == 2)) && says '.--data: the ranks see different data: .* on rank 0, but .* on rank 1'
verdict $? 'ranks that evaluate on different data are an error'

# ---- info ----------------------------------------------------------------------------------------
describes() {  # describes NAME PATH PATTERN KIND
  run "$LOCKSTEP" info "$2"
  ((status == 0)) && says "$3" && run "$LOCKSTEP" info --json "$2" && says "\"kind\": \"$4\"" &&
    { [[ -z $python ]] || "$python" -m json.tool <<<"$said" >/dev/null; }
  verdict $? "info describes $1, with JSON that parses"
}
describes 'a shard' small/val/val-00000-of-00001.h5 '53 rows of 8 x 8 pixels, 3 channels' shard
describes 'a set of shards' small/train '250 rows .* in 3 file' 'data set'
describes 'a checkpoint' $best 'valid, .*' checkpoint
describes 'a run' run 'run run: finished, 15 steps' run
head -c 700 run/metrics.jsonl >half && mkdir torn && cp run/config.toml torn &&
  mv half torn/metrics.jsonl
describes 'a run that was killed while writing' torn 'not finished' run

unknown() {  # unknown NAME PATTERN PATH
  run "$LOCKSTEP" info --json "$3"
  ((status == 2)) && says "$2"
  verdict $? "info refuses $1"
}
echo 'a text' >text.h5
: >empty.h5
unknown 'a missing file' 'nowhere: no such file' nowhere
unknown 'a text file, and names it' 'text.h5: is not an HDF5 file' text.h5
unknown 'an empty file, and names it' 'empty.h5: is not an HDF5 file' empty.h5
unknown 'a truncated checkpoint, and names it' 'cut.h5: this checkpoint is torn' cut.h5
echo '{' >torn/summary.json
run "$LOCKSTEP" info torn
((status == 0)) && says 'warning: .*torn/summary.json'
verdict $? 'info describes a run with a broken summary by the rest, and names it'
