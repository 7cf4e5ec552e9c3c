#!/bin/bash
# data/lockstep.py with other programs of PyPI: torch's DataLoader takes its Shards, torchvision and
# safetensors its tensors, Pillow decodes its JPEGs; scikit-learn finds no better probe than
# data/probe.py.
# computes
# clients
root=$PWD
source "$(dirname "$0")/../../support/e2e.bash"
source "$root/tests/support/clients/clients.bash"
export PYTHONPATH=$root/data PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
client() { run "$python" "$root/tests/support/clients/python_clients.py" "$@"; }
"$LOCKSTEP" pack --from shapes --out data --train-rows 1500 --val-rows 2000 --resize 32 \
  --rows-per-shard 500 >pack.log 2>&1 || cat pack.log
"$LOCKSTEP" pack --from shapes --jpeg --train-rows 200 --val-rows 30 --rows-per-shard 50 \
  --out jpegs >pack.log 2>&1 || cat pack.log
train=("$LOCKSTEP" train --data.train data/train --data.val data/val --batch 50 --threads 1
  --epochs 1)
"${train[@]}" --out run >run.log 2>&1 || cat run.log
for split in train val; do
  "$LOCKSTEP" predict run data/$split --features --threads 1 --out features/$split \
    >predict.log 2>&1 || cat predict.log
done

law="scikit-learn's LogisticRegression on the same features has the probe's top-1, within 0.1 points"
clients_or_skip "$law" sklearn h5py
client regression features/train features/val
verdict $status "$law"
law="Pillow decodes JPEG rows to the pixels that lockstep's decoder gives, within 2 levels"
clients_or_skip "$law" PIL
"$LOCKSTEP" pack --repack jpegs --resize 32 --out pixels >pack.log 2>&1 || cat pack.log
client jpegs jpegs/train pixels/train
verdict $status "$law"

law="torch's DataLoader gives each row once, with 4 workers under fork, spawn and forkserver"
clients_or_skip "$law" torch torchvision
client loader data/train
((status == 0)) && client loader jpegs/train
verdict $status "$law"
"${train[@]}" --model resnet18 --optim.lr 0.01 --stop-after 8 --out larger >run.log 2>&1
larger=$(echo larger/checkpoints/step-*.h5)
"$LOCKSTEP" predict $larger data/val --logits --threads 1 --out logits >predict.log 2>&1 ||
  cat predict.log
client network resnet18 $larger data/val logits
verdict $status "torchvision's model with state_dict(), strict, has predict's logits for rows of Shards"
law="the safetensors library reads the tensors of state_dict()"
clients_or_skip "$law" safetensors
"$LOCKSTEP" export $larger --to larger.safetensors >export.log 2>&1 || cat export.log
client safetensors $larger larger.safetensors
verdict $status "$law"
