#!/bin/bash
# `lockstep serve`: answers have the bits of `lockstep predict` in whatever company, what is wrong
# gets its error, and neither its end nor a new model loses a request.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/h5py.bash"
source "$support/clients/serving.bash"
h5py_or_skip 'lockstep serve answers as lockstep predict does'
command -v curl >/dev/null || { echo 'SKIP lockstep serve answers: no curl'; exit 0; }
client() { run "$python" "$support/serving.py" "$@"; }
"$LOCKSTEP" pack --from shapes --out set --train-rows 200 --val-rows 200 --rows-per-shard 500 \
  >pack.log || cat pack.log
for steps in 1 3; do
  "$LOCKSTEP" train --data.train set/train --model resnet20 --batch 50 --stop-after $steps \
    --threads 2 --out run$steps >run$steps.log 2>&1
done
shard=$(echo set/val/*.h5)
first=was1/predictions.h5 second=was3/predictions.h5
cp run1/checkpoints/step-00000001.h5 model.h5

served=(m=model.h5)
get() { run curl -sS -m 60 -w '\n%{http_code}\n' "$at$1" "${@:2}"; }
post() { get /v2/models/m/infer -o answer -D headers "$@"; }
json_length() { tr -d '\r' <headers | sed -n 's/^Inference-Header-Content-Length: //Ip'; }

# ---- the protocol --------------------------------------------------------------------------------
grace=4 start plain
# On some processors a row's bits depend on its place in 16 rows: the server then takes fewer.
most=$(sed -n 's/.* \([0-9][0-9]*\) rows give equal bits/\1/p' plain.log)
for steps in 1 3; do
  "$LOCKSTEP" predict run$steps set/val --batch "$most" --threads 2 --logits --out was$steps \
    >was$steps.log 2>&1 || cat was$steps.log
done
get /v2/health/live && says '"live":true' && says '^200$' && get /v2/health/ready && says '^200$' &&
  get /v2/models/m/ready && says '"ready":true' && get /v2 && says '"binary_tensor_data"' &&
  get /v2/models/m && says '"shape":\[-1,32,32,3\]' && says '"versions":\["1"\]' &&
  get /v2/models/m/versions/1/config && says '"max_batch_size":1?[0-9]' &&
  get /v2/repository/index -d '{}' && says '"state":"READY"'
verdict $? 'the server says that it lives and is ready, and what its model takes and gives'

"$python" "$support/serving.py" bodies "$shard"
post --data-binary @json.body && says '^200$' && client same "$first" answer 0 0 1 2 &&
  ((status == 0))
verdict $? 'pixels as JSON get the logits of predict, bit for bit'
post --data-binary @binary.body -H "Inference-Header-Content-Length: $(cat binary.length)" &&
  says '^200$' && client same "$first" answer "$(json_length)" $(seq 3 23) && ((status == 0))
verdict $? 'binary pixels of more rows than a batch get the logits of predict, bit for bit'
post --data-binary @gzip.body -H 'Content-Encoding: gzip' \
  -H "Inference-Header-Content-Length: $(cat binary.length)" && says '^200$' &&
  client same "$first" answer "$(json_length)" $(seq 3 23) && ((status == 0))
verdict $? 'a compressed request gets the same answer'
post --data-binary @raw.body -H 'Inference-Header-Content-Length: 0' && says '^200$' &&
  client same "$first" answer "$(json_length)" 24 && ((status == 0))
verdict $? 'the bare pixels of one image get the logits of predict, bit for bit'
sed 's/{"name": "logits"}/{"name":"probabilities","parameters":{"classification":2}}/' json.body \
  >classify.body
get /v2/models/m/infer --data-binary @classify.body
says '"shape":\[3,2\]' && says '"data":\["0\.[0-9]+:[0-9]:[a-z]+'
verdict $? 'a classification names the likeliest classes'
get /v2/models/m/infer -H 'Accept: text/plain' -H 'Inference-Header-Content-Length: 0' \
  --data-binary @raw.body
says '^ *[0-9]+\.[0-9] %  [a-z]+$' && [[ $(grep -c ' %  ' <<<"$said") == 5 ]]
verdict $? 'a person who asks for text gets the likeliest classes in percent'

client wrong "$port" m
((status == 0)) && says '23 wrong requests got their errors'
verdict $? 'each wrong request gets its status and one line that says what is wrong'
get /v2/models/m/stats
# Triton's clients want the parts of as many requests as there were.
parts='"success":\{"count":([0-9]+),.*"queue":\{"count":\1,.*"compute_input":\{"count":\1,'
parts+='.*"compute_infer":\{"count":\1,.*"compute_output":\{"count":\1,'
says '"inference_count":[1-9]' && says '"fail":\{"count":[1-9]' && says "$parts" && get /metrics &&
  says '^lockstep_serve_rows_total\{model="m"\} [1-9]' &&
  says '^lockstep_serve_request_seconds_bucket\{model="m",le="\+Inf"\} [1-9]'
verdict $? 'statistics and metrics count what was done'
get /v2/models/m/config
says '"max_queue_delay_microseconds":[1-9]'
verdict $? 'the configuration says for how long a batch may wait'
if command -v promtool >/dev/null; then
  run promtool check metrics < <(curl -sS "$at/metrics")
  verdict $status 'promtool finds nothing in the metrics'
else
  echo 'SKIP promtool finds nothing in the metrics: promtool is not here (Debian: prometheus)'
fi

# ---- under load ----------------------------------------------------------------------------------
load() { client load "$port" m "$shard" 8 "$@"; echo "$said" >load.log; return $status; }
has_loaded() { [[ $(curl -sS "$at/v2/models/m/versions/$1/stats") =~ \"model_stats\" ]]; }
count() { curl -sS "$at/v2/models/m/stats" | sed -n 's/.*"inference_count":\([0-9]*\).*/\1/p'; }
loaded=$(count)
more_than() { (($(count) > loaded + $1)); }
last=2
! nightly || last=102
answers=()
for ((version = 1; version <= last; version += 2)); do answers+=("$first" "$second"); done
load "${answers[@]}" &
clients=$!
until_it 300 more_than 300
for ((version = 2; version <= last; ++version)); do
  steps=$((version % 2 == 0 ? 3 : 1))
  cp run$steps/checkpoints/step-0000000$steps.h5 next.h5 && mv next.h5 model.h5
  happens 300 has_loaded $version
  loaded=$(count)
  happens 300 more_than 300
done
touch enough
wait $clients
status=$?
said=$(cat load.log plain.log)
((status == 0)) && says "failed=0 wrong=0 versions=$(seq -s, $last)$" &&
  says "^m: version $last, 3 steps" && (($(grep -c '^m: version' plain.log) == last))
verdict $? 'a changed file is loaded under load: no request fails, each has the bits of its version'

head -c 20000 run1/checkpoints/step-00000001.h5 >next.h5 && mv next.h5 model.h5
told() { grep -q "$1" plain.log; }
happens 300 told 'm: cannot be loaded, so the version that is there stays'
get /v2/models/m/versions/$last/ready && says '^200$'
verdict $? 'a broken file is named once, and the old model stays'
get /metrics && says '^lockstep_serve_model_outdated\{model="m"\} 1$' &&
  get /v2/repository/index -d '{}' && says '"reason":"a newer file is not loaded: [^"]+'
verdict $? 'metrics and the index say that a newer file is not loaded'
# The same size and times, as if only reading had failed.
cp run1/checkpoints/step-00000001.h5 broken.h5
printf 'broken' | dd of=broken.h5 conv=notrunc status=none
touch -d '2001-01-01' broken.h5
mv broken.h5 model.h5
loads=$(grep -c ', 1 steps\?: batches' plain.log)
nap 2.5
{ dd if=run1/checkpoints/step-00000001.h5 of=model.h5 conv=notrunc status=none; } &&
  touch -d '2001-01-01' model.h5
loaded_again() { (($(grep -c ', 1 steps\?: batches' plain.log) > loads)); }
current() { curl -sS "$at/metrics" | grep -q '^lockstep_serve_model_outdated{model="m"} 0$'; }
happens 300 loaded_again && happens 100 current
verdict $? 'a file that could not be used is tried again, also when its size and times are the same'
cp run3/checkpoints/step-00000003.h5 next.h5 && mv next.h5 model.h5
loads=$(grep -c ', 3 steps: batches' plain.log)
again() { (($(grep -c ', 3 steps: batches' plain.log) > loads)); }
kill -HUP $server
happens 300 again
verdict $? 'SIGHUP loads a model again'

rm enough
loaded=$(count)
load "$second" "$second" &
clients=$!
until_it 300 more_than 300
kill -TERM $server
unready() { [[ $(curl -sS -o /dev/null -w '%{http_code}' "$at/v2/health/ready") == 503 ]]; }
happens 30 unready
post --data-binary @json.body
in_grace=$said
wait $clients
loads=$?
wait $server
status=$?
said=$(cat load.log plain.log)
((status == 0 && loads == 0)) && [[ $in_grace == *200 ]] && says 'refused=8 failed=0 wrong=0' &&
  says '^stopped: all requests were answered'
verdict $? 'SIGTERM under load: not ready at once, still answers, then refuses, loses none, status 0'

# ---- limits --------------------------------------------------------------------------------------
start tight --queue 4 --batch 4
sed 's/^{/{"parameters":{"timeout":1},/' json.body >late.body
post --data-binary @binary.body -H "Inference-Header-Content-Length: $(cat binary.length)"
says '^400$' && get /v2/models/m/infer --data-binary @late.body && says '^504$' &&
  says '^\{"error":"it was not computed within' && post --data-binary @json.body && says '^200$'
verdict $? 'a request that is larger than the queue is an error, and one that is late 504'
end tight
((status == 0))
verdict $? 'a server without work ends with status 0'

# ---- where it listens, and for whom --------------------------------------------------------------
echo 'a-secret-of-24-letters-x' >token && chmod 644 token
refused() {  # refused NAME PATTERN OPTION...
  run "$LOCKSTEP" serve "${@:3}" --threads 1
  ((status == 2)) && says "$2"
  verdict $? "$1"
}
refused 'a token that others can read is an error' 'token: is not for its owner alone' m=model.h5 \
  --token-file token
chmod 600 token
start secret --token-file token
get /v2/models/m && says '^401$' && get /v2/models/m -H 'Authorization: Bearer wrong' &&
  says '^401$' && get /v2/models/m -H "Authorization: Bearer $(cat token)" && says '^200$' &&
  get /v2/health/ready && says '^200$' && get / && says 'Try a model'
verdict $? 'with a token only health and the page are open'
end secret
"$LOCKSTEP" serve model.h5 --socket here --threads 2 --grace-s 0 >local.log 2>&1 &
server=$!
until_it 600 grep -q '^listening at here' local.log
run curl -sS --unix-socket here http://x/v2/models/model/infer --data-binary @json.body -o answer
client same "$second" answer 0 0 1 2
verdict $status 'a Unix socket answers, too'
end local
[[ $status == 0 && ! -e here ]]
verdict $? 'a Unix socket goes with its server'
SLURM_JOB_ID=1 SLURM_SUBMIT_HOST=login USER=me start job
grep -q "^from your own machine: ssh -N -L $port:127.0.0.1:$port -J me@login me@" job.log
verdict $? 'in a Slurm job it says how to reach it from outside'
refused 'a port in use is named' "127.0.0.1:$port: nothing can listen there: Address already" \
  m=model.h5 --port $port
end job
refused 'a file that is not a model is named' 'set/val/.*h5: ' "$shard"
refused 'two models of one name are an error' 'two models have this name' m=model.h5 m=model.h5
refused 'a name that no path can have is an error' 'cannot be the name of a model' 'stats=x'

# ---- images in files -----------------------------------------------------------------------------
python3 "$support/flowers.py" flowers 4
"$LOCKSTEP" pack flowers --out packed --resize 32x36 --held-out 0 >flowers.log 2>&1
"$LOCKSTEP" pack flowers --out jpegs --jpeg --held-out 0 >>flowers.log 2>&1
"$LOCKSTEP" train --data.train packed/train --batch 4 --stop-after 2 --threads 1 --out garden \
  >>flowers.log 2>&1
cp garden/checkpoints/step-00000002.h5 model.h5
"$LOCKSTEP" predict model.h5 flowers --resize 32x36 --batch "$most" --threads 2 --logits \
  --out pngs \
  >>flowers.log 2>&1
"$LOCKSTEP" predict model.h5 jpegs/train --batch "$most" --threads 2 --logits --out jpeg_rows \
  >>flowers.log 2>&1
start pngs --resize 32x36
client files "$port" m flowers pngs/predictions.h5
((status == 0))
verdict $? 'PNG files get the logits of predict, bit for bit'
end pngs
start jpegs --jpeg
client files "$port" m jpegs/train/*.h5 jpeg_rows/predictions.h5
((status == 0))
verdict $? 'JPEG files get the logits of validation on the packed set, bit for bit'
end jpegs
