#!/bin/bash
# `lockstep serve` gets 100 new models while clients ask without a pause: each is loaded once, and
# every answer has the bits of its version.
# computes
# nightly
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/h5py.bash"
source "$support/clients/serving.bash"
h5py_or_skip '100 new models are loaded under load'
command -v curl >/dev/null || { echo 'SKIP 100 new models are loaded under load: no curl'; exit 0; }
"$LOCKSTEP" pack --from shapes --out set --train-rows 200 --val-rows 200 --rows-per-shard 500 \
  >pack.log || cat pack.log
for steps in 1 3; do
  "$LOCKSTEP" train --data.train set/train --model resnet20 --batch 50 --stop-after $steps \
    --threads 2 --out run$steps >run$steps.log 2>&1
done
models=(run1/checkpoints/step-00000001.h5 run3/checkpoints/step-00000003.h5)
cp "${models[0]}" model.h5
served=(m=model.h5)
start plain
most=$(sed -n 's/.* \([0-9][0-9]*\) rows give equal bits/\1/p' plain.log)
for steps in 1 3; do
  "$LOCKSTEP" predict run$steps set/val --batch "$most" --threads 2 --logits --out was$steps \
    >was$steps.log 2>&1 || cat was$steps.log
done
answers=()
for ((version = 0; version <= 100; ++version)); do
  answers+=("was$((version % 2 == 0 ? 1 : 3))/predictions.h5")
done
"$python" "$support/serving.py" load "$port" m "$(echo set/val/*.h5)" 8 "${answers[@]}" \
  >load.log 2>&1 &
clients=$!
has_loaded() { [[ $(curl -sS "$at/v2/models/m/versions/$1/stats") =~ \"model_stats\" ]]; }
for ((version = 2; version <= 101; ++version)); do
  cp "${models[$((version % 2 == 0))]}" next.h5 && mv next.h5 model.h5
  until_it 300 has_loaded $version || break
done
touch enough
wait $clients
asked=$?
end plain
loads=$(grep -o '^m: version [0-9]*, [13] steps' plain.log | sort | uniq -c | grep -c '^ *1 ')
said=$(cat load.log)
((asked == 0 && status == 0 && version == 102 && loads >= 100)) &&
  says 'failed=0 wrong=0 versions=1,2,'
verdict $? '100 new models are loaded under load, each once: no request fails, each has its bits'
echo "    $loads loads; $(tail -n 1 load.log | cut -c1-60)"
