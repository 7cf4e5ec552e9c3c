#!/bin/bash
# PyTorch, torchvision, timm and safetensors read what `lockstep export` writes, and lockstep reads
# what they write.
# seconds: 1500
# computes
# clients
root=$PWD
source "$(dirname "$0")/../../support/e2e.bash"
source "$root/tests/support/clients/clients.bash"
client() { run "$python" "$root/tests/support/clients/model_clients.py" "$@"; }
has() { client has "$@" && ((status == 0)); }
clients_or_skip 'PyTorch and torchvision read and write models' torch torchvision
models='resnet18 resnet50 resnext50_32x4d'
nightly && models+=' resnet34 resnet101 resnet152 wide_resnet50_2 resnext101_64x4d'
if has timm; then
  models+=' resnet50d'
else
  echo "SKIP timm's ResNet-D: $python does not have it"
fi
# How `train` names a model.
words_for() {
  case $1 in
    resnet50d) echo --model resnet50 --model-options.stem deep --model-options.shortcut average ;;
    *) echo --model "$1" ;;
  esac
}
"$LOCKSTEP" pack --from shapes --out data --train-rows 60 --val-rows 53 --resize 32 \
  >pack.log 2>&1 || cat pack.log
kinds='pth npz'
if has safetensors; then
  kinds+=' safetensors'
else
  echo "SKIP the safetensors library reads and writes models: $python does not have it"
fi

for model in $models; do
  client make $model
  ((status == 0)) || verdict $status "torchvision makes a $model"
  for from in $model.pth $model-old.pth $model-nested.pth $model-turned.pth $model-raw.pth \
    $model.safetensors; do
    [[ -e $from ]] || continue
    files=()
    for kind in $kinds; do files+=("there.$kind"); done
    run "$LOCKSTEP" export $from --to "${files[@]}" --force
    ((status == 0)) && client same $model "${files[@]}"
    verdict $status "$from -> lockstep -> $kinds: each tensor has its bits, in PyTorch's model"
  done
  if has onnx onnxscript; then
    client onnx $model
    for from in $model-{plain,preserved}.onnx; do
      run "$LOCKSTEP" export $from --to there.pth there.npz --force
      ((status == 0)) && client weights $model there.pth there.npz
      verdict $status "$from of torch.onnx -> lockstep: each tensor has its bits"
    done
    for from in $model-{optimised,folded}.onnx; do
      run "$LOCKSTEP" export $from --to folded.npz
      ((status == 2)) && [[ ! -e folded.npz ]] && says "^error: $from: its batch norms are parts \
of convolutions \(tensor '[a-zA-Z0-9:._]*'\).* optimize=False "
      verdict $? "$from, where torch.onnx folded batch norms, is an error that says what to do"
    done
  else
    echo "SKIP lockstep reads what torch.onnx writes: $python does not have onnx and onnxscript"
  fi
  run "$LOCKSTEP" export $model-half.pth --to half.npz --force
  run "$LOCKSTEP" export $model-rounded.pth --to rounded.npz --force
  ((status == 0)) && cmp half.npz rounded.npz
  verdict $? "halves of $model are read as their values"
  if [[ -e $model.safetensors ]]; then
    client bytes there.safetensors
    verdict $status "lockstep's .safetensors of $model has the bytes that the library writes"
  fi
  if has h5py; then
    run "$LOCKSTEP" eval $model.pth --data data/val --threads 1 --json figures.json
    ((status == 0)) && client loss $model data/val/*.h5 figures.json
    verdict $status "eval of the library's $model has PyTorch's loss and top-1"
    run "$LOCKSTEP" train $(words_for $model) --init $model.pth --data.train data/train --batch 60 \
      --epochs 1 --optim.lr 0.01 --optim.momentum 0 --optim.weight-decay 0 \
      --optim.warmup-epochs 0 --winograd false --out run-$model
    ((status == 0)) && run "$LOCKSTEP" export run-$model --to after.npz --force &&
      ((status == 0)) &&
      client step $model data/train/*.h5 run-$model/metrics.jsonl after.npz 0.01
    verdict $status "a step of $model has PyTorch's loss, and its weights after it"
  else
    echo "SKIP eval of torchvision's $model has PyTorch's loss: $python has no h5py"
  fi
done
