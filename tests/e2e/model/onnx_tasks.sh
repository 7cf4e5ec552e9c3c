#!/bin/bash
# The ONNX file of a network of any element and task says of the same rows what `predict` says, and
# lockstep reads it with the same bits.
# ci
# computes
# clients
root=$PWD
source "$(dirname "$0")/../../support/e2e.bash"
source "$root/tests/support/clients/clients.bash"
law="onnxruntime's answers are those of predict, of each element and task"
clients_or_skip "$law" onnxruntime h5py
"$python" "$root/tests/support/clients/delivered.py" write

# delivers NAME TASK CLIP CURVE OPTION...: trains, predicts, exports and compares.
delivers() {
  local name=$1 task=$2 clip=${3#-} curve=$4 of=${*:5}
  "$LOCKSTEP" train --model resnet20 --batch 32 --optim.lr 0.01 --threads 1 --precision fp32 \
    --data.train $name.h5 --data.task $task --data.clip "$clip" --data.curve $curve $of \
    --epochs 3 --out $name >$name.log 2>&1 &&
    "$LOCKSTEP" predict $name $name.h5 --logits --threads 1 --out of-$name $of &&
    "$LOCKSTEP" export $name --to $name.onnx &&
    "$LOCKSTEP" export $name --fold --to $name-fold.onnx &&
    "$python" "$root/tests/support/clients/delivered.py" compare $name $name.onnx $task &&
    "$python" "$root/tests/support/clients/delivered.py" compare $name $name-fold.onnx $task &&
    "$LOCKSTEP" predict $name.onnx $name.h5 --logits --threads 1 --out again-$name $of &&
    h5diff of-$name/predictions.h5 again-$name/predictions.h5 /logits
}
ok=0
while read -r name task clip curve of; do
  run delivers $name $task $clip $curve $of
  ((status == 0)) || { ok=1 && cat $name.log && break; }
done <"$root/tests/support/clients/delivered.sets"
verdict $ok "$law, and the file read again has their bits"
