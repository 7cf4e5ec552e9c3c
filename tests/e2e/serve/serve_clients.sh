#!/bin/bash
# Clients of PyPI, tritonclient and kserve, ask `lockstep serve`.
# computes
# clients
clients=$PWD/tests/support/clients/serve_clients.py
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/clients/clients.bash"
source "$support/clients/serving.bash"
find_serve_clients tritonclient.http 'lockstep serve'
make_served
served=(m=$model m-jpeg=$model --jpeg)
start serve
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
end serve
verdict $status 'the server ends with status 0 after all clients'
