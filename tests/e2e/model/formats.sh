#!/bin/bash
# Models in other programs' formats: what `lockstep export` writes evaluates as the checkpoint does,
# and a training begins with the same weights from each file. A file that is damaged, hostile or of
# another network is one clear error.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
python=/usr/bin/python3
"$python" -c 'import h5py, numpy' 2>/dev/null || python=
pack_small
train=("$LOCKSTEP" train --data.train small/train --data.val small/val --batch 50 --threads 1)
"${train[@]}" --optim.ema 0.9 --epochs 2 --out run >run.log 2>&1 || cat run.log
best=run/checkpoints/best.h5
kinds='safetensors pth npz onnx'

# ---- export --------------------------------------------------------------------------------------
run "$LOCKSTEP" export run --to best.safetensors best.pth --to best.npz best.onnx
((status == 0)) && says '^best.pth: PyTorch of resnet20 with 97 tensors from run/checkpoints/best.h5' &&
  [[ -e best.safetensors && -e best.npz && -e best.onnx ]]
verdict $? 'export writes several formats at once, of the best checkpoint of a run'
cp best.pth kept.pth
run "$LOCKSTEP" export $best --to new.npz best.pth
((status == 2)) && says '^error: best.pth: is there already; --force writes over it$' &&
  cmp best.pth kept.pth && [[ ! -e new.npz ]]
verdict $? 'export writes over nothing, and then writes nothing at all'
run "$LOCKSTEP" export $best --to new/er/best.pth && ((status == 0)) &&
  cmp new/er/best.pth kept.pth
verdict $? 'export makes the folder of what it writes'
run "$LOCKSTEP" export $best --to best.pth --force
((status == 0)) && cmp best.pth kept.pth
verdict $? 'export --force writes over a file; the same model gives the same bytes'
run "$LOCKSTEP" export $best --to model.onyx
((status == 2)) && says '^error: model.onyx: the name must end in .safetensors, .pth' &&
  run "$LOCKSTEP" export best.pth --to best.pth --force && ((status == 2)) &&
  says 'best.pth: it is an input file' && cmp best.pth kept.pth
verdict $? 'an unknown ending, and the file that is read, are errors'
ok=0
for kind in $kinds; do
  run "$LOCKSTEP" export best.npz --to again.$kind && cmp again.$kind best.$kind &&
    run "$LOCKSTEP" export best.$kind --to again.npz --force && cmp again.npz best.npz || ok=1
done
verdict $ok 'a file of one format becomes one of another, with the bytes of one from the checkpoint'

# ---- eval, info ----------------------------------------------------------------------------------
# figures FILE [OPTION...]: what eval says, without the name of the file.
figures() {
  "$LOCKSTEP" eval "$1" --data small/val --threads 1 --json figures.json "${@:2}" >eval.log 2>&1 ||
    cat eval.log
  grep -v '"checkpoint"' figures.json
}
figures $best >best.figures
figures $best --ema >ema.figures
for kind in $kinds; do
  cmp best.figures <(figures best.$kind) && [[ -s best.figures ]]
  verdict $? "eval of .$kind = eval of the checkpoint, to the last digit"
  run "$LOCKSTEP" export $best --average --to ema.$kind && cmp ema.figures <(figures ema.$kind) &&
    ! cmp -s ema.figures best.figures
  verdict $? "export --average to .$kind evaluates as the average in the checkpoint"
done
ok=0
for kind in $kinds; do
  run "$LOCKSTEP" info best.$kind
  ((status == 0)) && says '^network resnet20 of 72 nodes$' &&
    says '^97 tensors of 271[0-9]* numbers; input 8 x 8 x 3; 10 classes, named$' || ok=1
  run "$LOCKSTEP" info --json best.$kind
  ((status == 0)) && (($(grep -c '"crc32c"' <<<"$said") == 97)) || ok=1
done
verdict $ok 'info describes the network, input and classes of each file'
ok=0
for kind in $kinds; do
  run "$LOCKSTEP" eval best.$kind
  ((status == 2)) &&
    says "^error: best.$kind: does not say on what it was trained: name the data by --data$" || ok=1
done
verdict $ok 'eval of a file that names no data says so'
run "$LOCKSTEP" eval best.pth --data small/val --ema
((status == 2)) && says '^error: best.pth: holds no average of the weights: only a checkpoint does$'
verdict $? 'eval --ema of a file without an average is an error'

# ---- train --init --------------------------------------------------------------------------------
first=step-00000001.h5
one_step() {  # one_step RUN OPTION...
  run ranks 2 "${train[@]}" --stop-after 1 --out "$1" "${@:2}"
  ((status == 3)) && tensors "$1/checkpoints/$first" >"$1.tensors"
}
one_step from_h5 --init $best --optim.ema 0.9
verdict $? 'a training begins with the weights of a checkpoint'
one_step from_run --init run --optim.ema 0.9 && cmp from_h5.tensors from_run.tensors &&
  says "^beginning with the weights of $best; images are normalised by "
verdict $? "a training begins with the best checkpoint of a run's folder"
for kind in $kinds; do
  one_step from_$kind --init best.$kind --optim.ema 0.9 && cmp from_h5.tensors from_$kind.tensors
  verdict $? "a training from .$kind has the bits of one from the checkpoint, also in its average"
done
one_step from_seed --optim.ema 0.9 && ! cmp -s from_h5.tensors from_seed.tensors
verdict $? 'a training without --init begins elsewhere'
rm best.npz
run ranks 2 "${train[@]}" --out from_npz --init best.npz --optim.ema 0.9 --resume auto
((status == 0)) && says 'resuming from .*step 1'
verdict $? 'a run that resumes does not need the file it began with'
run "${train[@]}" --model resnet32 --init best.pth --out other
((status == 2)) && [[ ! -e other ]] &&
  says '^error: best.pth: holds a resnet20, but the model is resnet32: give --model resnet20$'
verdict $? 'weights of another network are an error that names both'
run "${train[@]}" --head new --out other
((status == 2)) && [[ ! -e other ]] && says '^error: .*head'
verdict $? '--head without --init is an error'
run "${train[@]}" --init none.pth --out other
((status == 2)) && [[ ! -e other ]] && says '^error: .*none.pth'
verdict $? '--init of a file that is not there is an error'

# ---- broken files --------------------------------------------------------------------------------
refused() {  # refused LAW FILE PATTERN: eval, info, export and train say it in one line
  local command ok=0
  for command in "eval $2 --data small/val" "info $2" "export $2 --to x.npz" \
    "train --data.train small/train --init $2 --out other"; do
    run "$LOCKSTEP" $command
    ((status == 2)) && says "^error: $2: $3" && (($(grep -c "$2" <<<"$said") == 1)) &&
      [[ ! -e other && ! -e x.npz ]] || ok=1
  done
  verdict $ok "$1 is an error that names the file"
}
cp ema.npz best.npz
for kind in $kinds; do
  head -c 200000 best.$kind >cut.$kind
  refused "a .$kind that is cut off" cut.$kind '.*cut off'
  { head -c 600000 best.$kind; printf '\377\377'; tail -c +600003 best.$kind; } >flipped.$kind
  refused "a .$kind with two other bytes" flipped.$kind '.*(altered|damaged|not finite)'
done
echo text >text.onnx
refused 'an .onnx that is a text' text.onnx 'it is no ONNX file'
"$LOCKSTEP" export $best --fold --to folded.onnx >export.log
refused 'an .onnx whose batch norms are folded' folded.onnx \
  "its batch norms are parts of convolutions \(tensor 'conv1.weight'\).* without --fold$"
run "$LOCKSTEP" export $best --input float --to float.onnx
((status == 0)) && cmp best.figures <(figures float.onnx)
verdict $? 'an .onnx for values that are normalised evaluates as the checkpoint does'
echo text >text.pth
refused 'a text' text.pth 'it holds no tensors in a form that is known'

if [[ ! $python ]]; then
  echo 'SKIP numpy reads and writes .npz; hostile pickles: /usr/bin/python3 has no h5py'
  exit 0
fi
cat >evil.py <<'PYTHON'
import os, pickle, zipfile

class Evil:
    def __reduce__(self):
        return os.system, ("touch owned",)

for protocol in (2, 4):
    with zipfile.ZipFile(f"evil{protocol}.pth", "w") as file:
        file.writestr("evil/data.pkl", pickle.dumps({"state_dict": Evil()}, protocol))
PYTHON
"$python" evil.py
refused 'a pickle that would run a command' evil2.pth "its pickle would call 'posix.system'"
refused 'the same in protocol 4' evil4.pth "its pickle would call 'posix.system'"
[[ ! -e owned ]]
verdict $? 'a pickle runs nothing'

# ---- numpy ---------------------------------------------------------------------------------------
"$LOCKSTEP" export $best --to best.npz --force >export.log
cat >numpy_client.py <<'PYTHON'
import sys

import h5py
import numpy

arrays = numpy.load("best.npz", mmap_mode="r")
with h5py.File(sys.argv[1]) as file:
    steps = file.attrs["step"]
    weights = {name: values[()] for name, values in file["weights"].items()}
counters = {name for name in arrays if name.endswith("num_batches_tracked")}
assert set(arrays) - counters == set(weights) and len(counters) == 19, set(arrays)
for name, values in weights.items():
    assert arrays[name].dtype == numpy.float32 and arrays[name].tobytes() == values.tobytes(), name
assert all(arrays[name].shape == () and arrays[name] == steps for name in counters)
numpy.savez_compressed("packed.npz", **arrays)
turned = {name: numpy.asfortranarray(values) for name, values in weights.items()}
numpy.savez("turned.npz", **turned)
numpy.savez("wide.npz", **{name: values.astype(numpy.float64) for name, values in weights.items()})
numpy.savez("whole.npz", **{name: values.astype(numpy.int64) for name, values in weights.items()})
PYTHON
run "$python" numpy_client.py $best
verdict $status 'numpy reads from .npz the tensors of the checkpoint'
ok=0
for file in packed turned wide; do
  cmp <(tensors best.npz) <(tensors $file.npz) && run "$LOCKSTEP" eval $file.npz --data small/val &&
    ((status == 0)) && says '^53 rows: loss' || ok=1
done
verdict $ok 'what numpy writes, packed, in Fortran'"'"'s order or as doubles, has the same tensors'
run "${train[@]}" --stop-after 1 --init turned.npz --out nameless
((status == 3)) && says '^beginning with the weights of turned.npz, its last layer too: its outputs have no names'
verdict $? 'a last layer that is kept from a file without names of classes is said'
refused 'an .npz of whole numbers' whole.npz "tensor '[a-z0-9.]*' holds I64, which are no floats"

# ---- other classes -------------------------------------------------------------------------------
"$python" - <<'PYTHON'
import h5py
import numpy

with h5py.File("three.h5", "w") as file:
    file["x"] = numpy.random.default_rng(1).integers(0, 256, (60, 8, 8, 3), dtype=numpy.uint8)
    file["y"] = numpy.arange(60) % 3
PYTHON
three=("$LOCKSTEP" train --data.train three.h5 --batch 30 --threads 1 --stop-after 1)
run "${three[@]}" --init best.pth --head keep --out other
((status == 2)) && [[ ! -e other ]] &&
  says '^error: best.pth: says 10 classes, the data set has 3: --head new keeps all but the last'
verdict $? 'to keep a last layer for other classes is an error that names both numbers'
run "${three[@]}" --init best.pth --head new --optim.lr 1e-30 --out three
((status == 3)) && says 'beginning with the weights of best.pth, and a new last layer for 3 classes'
weights() { tensors "$1" | paste - - | grep '"weights/.*\.weight' | sort; }
same=$(comm -12 <(weights three/checkpoints/$first) <(weights $best) | wc -l)
((status == 3 && same == 38)) && says 'a new last layer'
verdict $? '--head new keeps all but the last layer'
