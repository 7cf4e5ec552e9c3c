#!/bin/bash
# A checkpoint explains its network on its own: `lockstep eval` and `info` need no configuration,
# other programs run the network, and an older lockstep's checkpoint is still read. A checkpoint
# that explains something else is one clear error.
# computes
root=$PWD
source "$(dirname "$0")/../../support/e2e.bash"
python=/usr/bin/python3
"$python" -c 'import h5py, numpy' 2>/dev/null || python=
pack_small
train=("$LOCKSTEP" train --data.train small/train --data.val small/val --batch 50 --threads 1)
"${train[@]}" --epochs 2 --out run >run.log 2>&1 || cat run.log
cp run/checkpoints/best.h5 new.h5
rm -r run

evaluate() {  # evaluate CHECKPOINT [OPTION...]: its figures are in figures.json
  run "$LOCKSTEP" eval "$1" --data small/val --threads 1 --json figures.json "${@:2}"
}
# agrees FIGURES ROWS: loss and top-1 of figures.json are those, but for ROWS rows that another
# arithmetic may judge otherwise.
cat >agrees.py <<'PYTHON'
import json, sys

found, wanted = json.load(open("figures.json")), json.load(open(sys.argv[1]))
assert found["rows"] == wanted["rows"] == 53, (found, wanted)
assert abs(found["loss"] - wanted["loss"]) <= 1e-4 * wanted["loss"], (found["loss"], wanted["loss"])
off = abs(found["top1"] - wanted["top1"])
assert off * 53 <= float(sys.argv[2]) + 1e-9, (found["top1"], wanted["top1"])
PYTHON
agrees() { [[ ! $python ]] || run "$python" agrees.py "$@"; }

# ---- an older file -------------------------------------------------------------------------------
# A lockstep that wrote format 2 made it, and evaluated it: format-2.json.
old=$root/tests/fixtures/checkpoints/format-2
gzip -dc "$old.h5.gz" >old.h5
evaluate old.h5
((status == 0)) && agrees "$old.json" 1 && ((status == 0))
verdict $? 'a checkpoint of format 2 evaluates as with the lockstep that wrote it'
run "$LOCKSTEP" info old.h5
((status == 0)) && says 'format 2; network resnet20 of 72 nodes' && says 'optim.lr = 0.02'
verdict $? 'info describes a checkpoint of format 2'
run "$LOCKSTEP" train --data.train small/train --batch 250 --threads 1 --optim.weight-decay 0 \
  --epochs 4 --optim.lr 0.02 --optim.warmup-epochs 0 --resume old.h5 --out resumed
((status == 0)) && says 'resuming from old.h5: step 2' &&
  run "$LOCKSTEP" info resumed/checkpoints/step-00000004.h5 && says 'format 3; network resnet20'
verdict $? 'a run resumes from a checkpoint of format 2 and writes format 3'

# ---- without a training --------------------------------------------------------------------------
library=$(dirname "$LOCKSTEP")/liblockstep.a
if [[ -e $library ]]; then
  run "${CXX:-g++}" -std=c++20 -pthread -I"$root/include" -o alone "$root/tests/link/model.cpp" \
    "$library" \
    $(pkg-config --cflags --libs hdf5 fmt)
  ((status == 0)) && ! { nm -C alone |
    grep -E 'lockstep::(train|config|observe|reduce|comm|app)::'; } &&
    run ./alone new.h5 && says '^resnet20: 72 nodes, 10 classes, 271098 numbers$'
  verdict $? 'a program that loads a model links nothing of a training or its configuration'
  run ./alone old.h5
  ((status == 2)) && says 'old.h5: has checkpoint format 2, which only the configuration'
  verdict $? 'a program without configurations refuses a checkpoint that only one explains'
else
  echo 'SKIP a program that loads a model links nothing of a training: liblockstep.a is not here'
fi
if [[ ! $python ]]; then
  echo 'SKIP other programs run the network of a checkpoint: /usr/bin/python3 has no h5py'
  exit 0
fi

awk '/<!-- reading: end/ { on = 0 } on && !/^```/; /<!-- reading: begin/ { on = 1 }' \
  "$root/data/CHECKPOINT.md" >reading.py
run "$python" reading.py new.h5
((status == 0)) && says '^resnet20 72 nodes, 10 classes$' &&
  says '^layer3.2.conv2.weight 64 64 3 3$' &&
  says '^bn1.running_var 16$' && (($(wc -l <<<"$said") == 98))
verdict $? 'the program in data/CHECKPOINT.md reads a checkpoint'

# by_numpy MODEL: a program in numpy gets the same result from the checkpoint alone.
by_numpy() {
  evaluate "$1" && "$python" "$root/tests/support/run_network.py" "$1" small/val/*.h5 >numpy.json &&
    agrees numpy.json 1 && ((status == 0))
}
by_numpy new.h5
verdict $? 'another program gets the same result from the checkpoint alone: ResNet-20'
deep=(--model-options.stem deep --model-options.shortcut average)
for design in '' "${deep[*]}"; do
  rm -rf larger
  # shellcheck disable=SC2086
  "${train[@]}" --model resnet18 $design --epochs 1 --stop-after 2 --out larger >larger.log 2>&1
  by_numpy larger/checkpoints/step-00000002.h5
  verdict $? \
    "another program gets the same result from the checkpoint alone: ResNet-18${design:+-D}"
done

# ---- without a configuration, or with another one ------------------------------------------------
# edit TO CHANGE VALUE: writes new.h5 with one change.
edit() { "$python" "$support/edit_checkpoint.py" new.h5 "$@"; }
evaluate new.h5
cp figures.json right.json
edit bare.h5 drop config && evaluate bare.h5
((status == 0)) && agrees right.json 0 && ((status == 0)) && run "$LOCKSTEP" info bare.h5 &&
  says 'format 3; network resnet20'
verdict $? 'a checkpoint whose configuration was removed evaluates with the same result'
edit strange.h5 config 'model = "resnet20"
warp = 9
' && evaluate strange.h5
((status == 0)) && says 'warning: strange.h5, line 2: unknown key .warp.*; its configuration is ignored' &&
  agrees right.json 0 && ((status == 0))
verdict $? \
  'a checkpoint with keys of another lockstep evaluates with the same result, and a warning'
run "${train[@]}" --epochs 3 --resume bare.h5 --out other
((status == 2)) && says '^error: bare.h5: its configuration was removed' && [[ ! -e other ]]
verdict $? 'a run does not resume from a checkpoint whose configuration was removed'

# ---- what is an error ----------------------------------------------------------------------------
refused() {  # refused NAME FILE PATTERN: eval and info say it in one line, with status 2
  local command ok=0
  for command in "eval $2 --data small/val" "info $2"; do
    run "$LOCKSTEP" $command
    ((status == 2)) && says "^error: $2: $3" && [[ $(grep -c "$2" <<<"$said") == 1 ]] || ok=1
  done
  verdict $ok "$1 is an error that names the file"
}
edit newer.h5 format 8
refused 'a checkpoint of a newer format' newer.h5 \
  'has checkpoint format 8, but this lockstep reads formats 2 to 7'
run "${train[@]}" --epochs 3 --resume newer.h5 --out other
((status == 2)) && says '^error: newer.h5: has checkpoint format 8, but .* 2 to 7' &&
  [[ ! -e other ]]
verdict $? 'a run does not resume from a checkpoint of a newer format'
edit cut.h5 network '{"name":"resnet20","input":'
refused 'a network that is cut' cut.h5 'the data set /network: it is not JSON'
head -c 1000000 /dev/zero | tr '\0' '[' >deep && edit deep.h5 network @deep
refused 'a network that is nested a million deep' deep.h5 \
  'the data set /network: it is nested more than 4 deep'
edit none.h5 drop network
refused 'a checkpoint without its network' none.h5 'the data set /network is missing'
edit size.h5 drop short_side
refused 'a checkpoint that does not say how images are resized' size.h5 \
  "the attribute 'short_side' is missing"
edit fits.h5 texts fit
refused 'a checkpoint that says several times how images are resized' fits.h5 \
  "the attribute 'fit' has 6 strings"

# An edited network that is still one: other tensors, or none that a backend can place.
network() {  # network FROM TO: its text, changed
  "$python" -c 'import h5py, sys; text = h5py.File("new.h5")["network"][()].tobytes().decode()
assert sys.argv[1] in text; print(text.replace(*sys.argv[1:], 1))' "$@" >changed
}
network '"kernel":3' '"kernel":5' && edit wider.h5 network @changed
refused 'a network with other tensors' wider.h5 \
  "a checkpoint of another model: tensor 'conv1.weight' is \[16, 3, 3, 3\] there and \[16, 3, 5, 5\] here"
network '"relu","op":"relu","inputs":["bn1"]' '"relu","op":"relu","inputs":["conv1"]' &&
  edit unread.h5 network @changed
refused 'a network with a node that leads nowhere' unread.h5 \
  'the data set /network: bn1: no node reads it'
network '"name":"relu","op":"relu","inputs":["bn1"]' \
  '"name":"relu","op":"add","inputs":["bn1","bn1"]' &&
  edit odd.h5 network @changed
run "$LOCKSTEP" eval odd.h5 --data small/val --backend cpu
((status == 2)) && says '^error: odd.h5: the CPU backend cannot place bn1: exactly one node must read it'
verdict $? 'a network that no backend can place is an error that names file and node'
