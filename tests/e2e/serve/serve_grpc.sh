#!/bin/bash
# `lockstep serve` over gRPC, asked by tritonclient.grpc and by kserve's client: answers have the
# bits of `lockstep predict`, errors are the sentences of HTTP, and its end loses no call. A program
# without gRPC says so.
# computes
# clients
clients=$PWD/tests/support/clients proto=$PWD/src/ports/grpc/inference.proto
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/clients/clients.bash"
source "$support/clients/serving.bash"
run "$LOCKSTEP" serve nowhere.h5 --grpc-port 0
if says 'built without gRPC'; then
  ((status == 2)) && says '^[^ ]*(error|lockstep): .*built without gRPC: build it with make GRPC=1$' &&
    [[ $(wc -l <<<"$said") == 1 ]]
  verdict $? 'a program without gRPC says in one line how to build it with gRPC'
  echo 'SKIP lockstep serve answers over gRPC: this program was built without gRPC (make GRPC=1)'
  exit 0
fi
find_serve_clients tritonclient.grpc 'lockstep serve over gRPC'
make_served
served=(m=$model m-jpeg=$model --jpeg)
# As start, but `port` is gRPC's.
start_grpc() {
  start "$1" --grpc-port 0 "${@:2}"
  port=$(sed -n 's/^listening for gRPC.* at 127.0.0.1:\([0-9]*\)$/\1/p' "$1.log")
}
ask() {  # ask LAW COMMAND...: shows each law of it; LAW is that all of them hold
  run "${@:2}"
  grep '^PASS ' <<<"$said"
  verdict $status "$1"
}
start_grpc plain
most=$(sed -n 's/.*m: .* \([0-9][0-9]*\) rows give equal bits/\1/p' plain.log)
for rows in set jpegs; do
  "$LOCKSTEP" predict $model $rows/val --batch "$most" --threads 2 --logits --out $rows.out \
    >$rows.log 2>&1
done
for client in "${!python_of[@]}"; do
  ask "$client's client gets all that it asks for over gRPC" "${python_of[$client]}" \
    "$clients/grpc_clients.py" $client "$port" set/val/*.h5 set.out/predictions.h5 jpegs/val/*.h5 \
    jpegs.out/predictions.h5
done
run "$LOCKSTEP" serve m=$model --port 0 --threads 1 --grpc-port "$port"
((status == 2)) && [[ $(grep -c Address <<<"$said") == 1 ]] && ! says '^listening' &&
  says "127.0.0.1:$port: nothing can listen there: Address already in use$"
verdict $? 'a port of gRPC that is in use is named'
end plain
verdict $status 'the server ends with status 0 after all clients'

if [[ ${python_of[triton]:-} ]]; then
  limits=("${python_of[triton]}" "$clients/grpc_limits.py")
  if command -v protoc >/dev/null; then
    ask "our messages are part of tritonclient's" "${limits[@]}" description "$proto"
  else
    echo "SKIP our messages are part of tritonclient's: no protoc"
  fi
  echo 'a-secret-of-24-letters-x' >token && chmod 600 token
  start_grpc limited --token-file token --body-mb 1 --body-s 2 --connections 16
  ask 'over gRPC, too, what a client may cost is limited' "${limits[@]}" limits "$port" \
    "$(cat token)" set/val/*.h5 set.out/predictions.h5
  end limited
  verdict $status 'the server ends with status 0 after all that it refused'

  grace=2 start_grpc load
  "${limits[@]}" load "$port" set/val/*.h5 set.out/predictions.h5 8 \
    >clients.log 2>&1 &
  asking=$!
  until_it 600 grep -q '^answers come$' clients.log
  kill -TERM $server
  unready() { grep -q '^unready, and answers$' clients.log; }
  happens 100 unready
  wait $asking
  loads=$?
  wait $server
  status=$?
  said=$(cat clients.log load.log)
  ((status == 0 && loads == 0)) && says 'refused=8 failed=0 wrong=0' &&
    says '^stopped: all requests were answered'
  verdict $? 'SIGTERM under load of gRPC: not ready at once, still answers, then refuses, loses none'
fi
