# Sourced by scripts that ask `lockstep serve`, after e2e.bash and perhaps clients.bash.
#
#   start NAME OPTION...   a server of the models `served`, which writes NAME.log; sets `server`,
#                          `port` and `at`, where it listens over HTTP. `grace`: its --grace-s
#   end NAME               asks it to end, and waits; sets `status` and `said`
#   find_serve_clients TRITON WHAT
#                          sets `python_of` tritonclient (its module TRITON) and kserve; ends the
#                          script where no Python has one: "SKIP triton's client asks WHAT: ..."
#   make_served            the data sets `set` and `jpegs`, and a trained `model`
#   make_delivered         delivered.py's data sets, each with a network; sets `served`
#   predict_delivered LOG  what `predict` says of their rows, in of-NAME, with the bits of the
#                          server whose log this is
#
# The two clients cannot be in one process: each has its own environment in what `make test-clients`
# installed, or is in one of the Pythons that SERVE_PYTHON names.
start() {
  "$LOCKSTEP" serve "${served[@]}" --port 0 --threads 2 --grace-s ${grace:-0} "${@:2}" \
    >"$1.log" 2>&1 &
  server=$!
  until_it 600 grep -q '^listening at' "$1.log"
  at=$(sed -n 's/^listening at \(http.*\)\/$/\1/p' "$1.log")
  port=${at##*:}
}
end() {
  kill -TERM $server
  wait $server
  status=$?
  said=$(cat "$1.log")
}

find_serve_clients() {
  declare -gA python_of
  local one client others=$installed/..
  for one in ${SERVE_PYTHON:-"$others/triton/bin/python3" "$others/kserve/bin/python3"}; do
    "$one" -c "import h5py, $1" 2>/dev/null && python_of[triton]=$one
    "$one" -c 'import h5py, kserve' 2>/dev/null && python_of[kserve]=$one
  done
  for client in triton kserve; do
    [[ ${python_of[$client]:-} ]] ||
      echo "SKIP ${client}'s client asks $2: no Python has it (make test-clients)"
  done
  ((${#python_of[@]} > 0)) || exit 0
}

make_delivered() {
  local name task clip curve of
  "$python" "$support/clients/delivered.py" write
  served=()
  declare -gA delivered
  while read -r name task clip curve of; do
    run "$LOCKSTEP" train --model resnet20 --batch 32 --optim.lr 0.01 --threads 1 --data.train \
      $name.h5 --data.task $task --data.clip "${clip#-}" --data.curve $curve $of --epochs 1 \
      --out $name
    ((status == 0)) || echo "$said"
    served+=("$name=$name")
    delivered[$name]=$of
  done <"$support/clients/delivered.sets"
}
predict_delivered() {
  local name most
  for name in "${!delivered[@]}"; do
    most=$(sed -n "s/.*$name: .*[ ,]\([0-9][0-9]*\) rows give equal bits/\1/p" "$1")
    run "$LOCKSTEP" predict $name $name.h5 --logits --threads 2 --batch "$most" --out of-$name \
      ${delivered[$name]}
    ((status == 0)) || echo "$said"
  done
}

make_served() {
  "$LOCKSTEP" pack --from shapes --out set --train-rows 200 --val-rows 50 >pack.log || cat pack.log
  "$LOCKSTEP" pack --from shapes --out jpegs --train-rows 20 --val-rows 20 --jpeg >>pack.log
  "$LOCKSTEP" train --data.train set/train --model resnet20 --batch 50 --stop-after 2 --threads 2 \
    --out run >run.log 2>&1
  model=run/checkpoints/step-00000002.h5
}
