#!/bin/bash
# Networks of any element and task answer over gRPC, asked by tritonclient.grpc and by kserve's
# client, with the bits of `predict`.
# computes
# clients
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/h5py.bash"
source "$support/clients/clients.bash"
source "$support/clients/serving.bash"
law='networks of any element and task answer over gRPC'
run "$LOCKSTEP" serve nowhere.h5 --grpc-port 0
if says 'built without gRPC'; then
  echo "SKIP $law: this program was built without gRPC (make GRPC=1)"
  exit 0
fi
h5py_or_skip "$law"
find_serve_clients tritonclient.grpc 'each element and task over gRPC'
make_delivered
start server --batch 8 --grpc-port 0
port=$(sed -n 's/^listening for gRPC.* at 127.0.0.1:\([0-9]*\)$/\1/p' server.log)
predict_delivered server.log
for client in "${!python_of[@]}"; do
  run "${python_of[$client]}" "$support/clients/grpc_tasks.py" $client "$port"
  grep '^PASS ' <<<"$said"
  verdict $status "$client's client gets the answers of predict for each element over gRPC"
done
end server
verdict $status 'the server ends with status 0 after them'
