#!/bin/bash
# What /openapi.json says of `lockstep serve` is true: schemathesis asks for all that it describes,
# and for what it forbids. Its environment is what `make test-clients` installed, or the `st` that
# SCHEMATHESIS names.
# computes
# clients
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/clients/clients.bash"
st=${SCHEMATHESIS:-$installed/../schemathesis/bin/st}
law='schemathesis finds nothing wrong in what /openapi.json describes'
"$st" --version >version.log 2>&1 ||
  { echo "SKIP $law: schemathesis is not here (make test-clients)"; exit 0; }

# Small images, since each of their values is drawn.
"$LOCKSTEP" pack --from shapes --out set --train-rows 100 --val-rows 20 --resize 8 >pack.log ||
  cat pack.log
"$LOCKSTEP" train --data.train set/train --model resnet20 --batch 50 --stop-after 1 --threads 2 \
  --out run >run.log 2>&1
echo 'a-secret-of-24-letters-x' >token && chmod 600 token
for token in '' "$(cat token)"; do
  "$LOCKSTEP" serve m=run/checkpoints/step-00000001.h5 --port 0 --threads 2 --grace-s 0 \
    ${token:+--token-file token} >serve.log 2>&1 &
  server=$!
  until_it 600 grep -q '^listening at' serve.log
  at=$(sed -n 's/^listening at \(http:.*\)\/$/\1/p' serve.log)
  run "$st" --no-color run "$at/openapi.json" --url "$at" --checks all --max-examples 25 \
    --generation-deterministic --request-timeout 60 --continue-on-failure \
    ${token:+-H "Authorization: Bearer $token"}
  verdict $status "$law${token:+, where a token is asked for}"
  kill -TERM $server
  wait $server
  status=$?
  said=$(cat serve.log)
  verdict $status 'the server ends with status 0 after all that it was asked'
done
