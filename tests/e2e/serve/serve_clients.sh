#!/bin/bash
# Clients of PyPI, tritonclient and kserve, ask `lockstep serve`. The two cannot be in one process:
# each has its own environment in what `make test-clients` installed, or is in one of the Pythons
# that SERVE_PYTHON names.
# computes
# clients
clients=$PWD/tests/support/clients/serve_clients.py
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/clients/clients.bash"
declare -A python_of
others=$installed/..
for one in ${SERVE_PYTHON:-"$others/triton/bin/python3" "$others/kserve/bin/python3"}; do
  "$one" -c 'import h5py, tritonclient.http' 2>/dev/null && python_of[triton]=$one
  "$one" -c 'import h5py, kserve' 2>/dev/null && python_of[kserve]=$one
done
for client in triton kserve; do
  [[ ${python_of[$client]:-} ]] ||
    echo "SKIP ${client}'s client asks lockstep serve: no Python has it (make test-clients)"
done
((${#python_of[@]} > 0)) || exit 0

"$LOCKSTEP" pack --from shapes --out set --train-rows 200 --val-rows 50 >pack.log || cat pack.log
"$LOCKSTEP" pack --from shapes --out jpegs --train-rows 20 --val-rows 20 --jpeg >>pack.log
"$LOCKSTEP" train --data.train set/train --model resnet20 --batch 50 --stop-after 2 --threads 2 \
  --out run >run.log 2>&1
model=run/checkpoints/step-00000002.h5
"$LOCKSTEP" serve m=$model m-jpeg=$model --jpeg --port 0 --threads 2 --grace-s 0 >serve.log 2>&1 &
server=$!
until_it 600 grep -q '^listening at' serve.log
port=$(sed -n 's/^listening at http:.*:\([0-9]*\)\/$/\1/p' serve.log)
most=$(sed -n 's/.*m: .* \([0-9][0-9]*\) rows give equal bits/\1/p' serve.log)
"$LOCKSTEP" predict $model set/val --batch "$most" --threads 2 --logits --out rows >rows.log 2>&1
"$LOCKSTEP" predict $model jpegs/val --batch "$most" --threads 2 --logits --out files \
  >files.log 2>&1
for client in "${!python_of[@]}"; do
  run "${python_of[$client]}" "$clients" $client "$port" m set/val/*.h5 rows/predictions.h5 \
    jpegs/val/*.h5 files/predictions.h5
  grep '^PASS ' <<<"$said"
  verdict $status "$client's client gets all that it asks for"
done
kill -TERM $server
wait $server
status=$?
said=$(cat serve.log)
verdict $status 'the server ends with status 0 after all clients'
