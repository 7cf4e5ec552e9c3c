#!/bin/bash
# A network that `lockstep export` writes as ONNX computes in other programs what it does in
# lockstep: from pixels and from normalised values, with its batch norms folded and not.
# ci
# computes
# clients
root=$PWD
source "$(dirname "$0")/../../support/e2e.bash"
source "$root/tests/support/clients/clients.bash"
pack_small
train=("$LOCKSTEP" train --data.train small/train --data.val small/val --batch 50 --threads 1)
"${train[@]}" --optim.ema 0.9 --epochs 2 --out run >run.log 2>&1 || cat run.log
best=run/checkpoints/best.h5

run "$LOCKSTEP" export run --to plain.onnx folded.pth
((status == 0)) && says '^plain.onnx: ONNX of resnet20 with 97 tensors from run/checkpoints/best' &&
  run "$LOCKSTEP" export $best --to again.onnx && cmp plain.onnx again.onnx &&
  run "$LOCKSTEP" export folded.pth --to again.onnx --force && cmp plain.onnx again.onnx &&
  run "$LOCKSTEP" export plain.onnx --to again.onnx --force && cmp plain.onnx again.onnx &&
  run "$LOCKSTEP" export $best --fold --to folded.onnx &&
  (($(stat -c %s folded.onnx) < $(stat -c %s plain.onnx)))
verdict $? 'export writes ONNX, and the same bytes from a checkpoint and from a file of its weights'
run "$LOCKSTEP" export $best --fold --to one.onnx one.pth
((status == 2)) && says '^error: one.pth: --fold and --input are for files that hold the network' &&
  [[ ! -e one.onnx ]] && run "$LOCKSTEP" export $best --input float --to one.npz && ((status == 2))
verdict $? 'options of the network are an error for a file without it'
run "$LOCKSTEP" export $best --average --to average.onnx
((status == 0)) && ! cmp -s average.onnx plain.onnx
verdict $? 'export --average writes other weights'

# ---- other programs ------------------------------------------------------------------------------
# exported MODEL CHECKPOINT: its files, and the figures of eval.
exported() {
  "$LOCKSTEP" export "$2" --to $1.onnx && "$LOCKSTEP" export "$2" --to $1-fold.onnx --fold &&
    "$LOCKSTEP" export "$2" --to $1-float.onnx --input float &&
    "$LOCKSTEP" export "$2" --to $1-float-fold.onnx --input float --fold &&
    "$LOCKSTEP" eval "$2" --data small/val --threads 1 --precision fp32 --json $1.json
}
models='resnet20 resnet18 resnet50'
nightly && models+=' resnet32 resnet44 resnet56 resnet110 resnet34 resnet101 resnet152'
cp $best resnet20.h5
for model in $models; do
  if [[ $model != resnet20 ]]; then
    # Running statistics are then no longer those of the beginning.
    "${train[@]}" --model $model --epochs 1 --optim.lr 0.01 --out $model >$model.log 2>&1
    cp $model/checkpoints/best.h5 $model.h5
  fi
  exported $model $model.h5 >$model.log 2>&1 || cat $model.log
done
clients() {  # clients CLIENT: reads all files
  local model
  for model in $models; do
    run "$python" "$root/tests/support/clients/onnx_clients.py" $1 $model.h5 small/val/*.h5 \
      $model.json $model{,-fold,-float,-float-fold}.onnx
    ((status == 0)) || return
  done
}
law="onnx's checker and its strict inference of shapes find nothing wrong"
clients_or_skip "$law" onnx
clients onnx
verdict $status "$law"
law="what onnx saves, with numbers in other fields or as doubles, too, has the same tensors"
client() { run "$python" "$root/tests/support/clients/onnx_forms.py" "$@"; }
"$LOCKSTEP" export $best --to plain.npz >export.log
client plain.onnx
ok=$status
for form in saved typed double; do
  run "$LOCKSTEP" export $form.onnx --to $form.npz && cmp plain.npz $form.npz || ok=1
done
verdict $ok "$law"
"$LOCKSTEP" export half.onnx --to half.npz &&
  "$LOCKSTEP" export half-typed.onnx --to typed-half.npz &&
  cmp half.npz typed-half.npz && ! cmp -s half.npz plain.npz &&
  "$LOCKSTEP" export brain.onnx --to brain.npz && "$LOCKSTEP" eval half.onnx --data small/val
verdict $? "onnx's halves are read as their values, from bytes and from numbers"
run "$LOCKSTEP" export outside.onnx --to outside.npz
((status == 2)) && [[ ! -e outside.npz ]] &&
  says "^error: outside.onnx: tensor 'conv1.weight': it has its numbers in another file, .*outside"
verdict $? 'an ONNX file whose numbers are in another file is an error that names it'
for client in onnxruntime openvino; do
  law="$client has the logits of the checkpoint, and the loss and top-1 of eval"
  clients_or_skip "$law" $client h5py
  clients $client
  verdict $status "$law"
done
