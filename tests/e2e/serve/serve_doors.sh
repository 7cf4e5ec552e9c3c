#!/bin/bash
# `lockstep serve` at its door: TLS, and clients that are slow, silent, many or not to be trusted.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/h5py.bash"
source "$support/clients/serving.bash"
h5py_or_skip 'lockstep serve keeps its door'
for tool in curl openssl; do
  command -v $tool >/dev/null || { echo "SKIP lockstep serve keeps its door: no $tool"; exit 0; }
done
"$LOCKSTEP" pack --from shapes --out set --train-rows 100 --val-rows 50 >pack.log || cat pack.log
"$LOCKSTEP" train --data.train set/train --model resnet20 --batch 50 --stop-after 1 --threads 2 \
  --out run >run.log 2>&1
cp run/checkpoints/step-00000001.h5 model.h5
certify() {  # certify NAME: NAME.crt and NAME.key, for this machine
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" \
    -out "$1.crt" -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 2>"$1.log"
  chmod 600 "$1.key"
}
certify one
certify other
echo 'a-secret-of-24-letters-x' >token && chmod 600 token
"$python" "$support/serving.py" bodies "$(ls set/val/*.h5)"

served=(m=model.h5)
get() { run curl -sS -m 60 -w '\n%{http_code}\n' "$@"; }

# ---- TLS -----------------------------------------------------------------------------------------
start tls --tls-cert one.crt --tls-key one.key --token-file token --body-mb 1
at=https://127.0.0.1:$port
grep -q "^listening at $at/$" tls.log && get --cacert one.crt "$at/v2/health/ready" &&
  says '^200$' && get --cacert one.crt --tlsv1.3 -o answer -H "Authorization: Bearer $(cat token)" \
    --data-binary @binary.body -H "Inference-Header-Content-Length: $(cat binary.length)" \
    "$at/v2/models/m/infer" && says '^200$' && [[ $(wc -c <answer) -gt 800 ]]
verdict $? 'with a certificate it answers over TLS, to clients that trust it'
get --cacert one.crt "$at/v2/models/m" && says '^401$' &&
  get --cacert one.crt -H 'Authorization: Bearer wrong' "$at/v2/models/m" && says '^401$' &&
  get --cacert one.crt -H "Authorization: Bearer $(cat token)" "$at/v2/models/m" && says '^200$'
verdict $? 'over TLS the token is asked for, too'
get --cacert other.crt "$at/v2/health/ready"
((status == 60))
verdict $? 'a client that trusts another certificate refuses it'
get -m 20 "http://127.0.0.1:$port/v2/health/ready"
((status == 52 || status == 56 || status == 1)) && get --cacert one.crt "$at/v2/health/ready" &&
  says '^200$'
verdict $? 'plain HTTP at the port of TLS gets no answer, and the server continues'
run "$python" "$support/clients/doors.py" silent "$port" 10
verdict $status 'a client that never begins TLS is closed'
run timeout 20 openssl s_client -connect "127.0.0.1:$port" -tls1_1 -cipher ALL:@SECLEVEL=0 \
  </dev/null
says 'Cipher is .NONE.' &&
  run timeout 20 openssl s_client -connect "127.0.0.1:$port" -tls1_2 </dev/null &&
  says 'Cipher is (ECDHE|AES|DHE)'
verdict $? 'TLS before 1.2 is not spoken'
get --cacert one.crt -H "Authorization: bearer $(cat token)" "$at/v2/models/m" && says '^200$'
verdict $? 'the word Bearer is taken in any case'
run curl -sS -m 60 --cacert one.crt -D - -o page.html "$at/"
says "^Content-Security-Policy: .*frame-ancestors 'none'"
verdict $? 'its page cannot be shown within another page'
infer() {
  get --cacert one.crt -H "Authorization: Bearer $(cat token)" "$at/v2/models/m/infer" \
    -H 'Inference-Header-Content-Length: 0' "$@"
}
head -c 1000001 /dev/zero >large.body && gzip -k large.body
infer --data-binary @large.body && says 'a body has at most 1000000 bytes' && says '^413$' &&
  infer -H 'Content-Encoding: gzip' --data-binary @large.body.gz &&
  says 'at most 1000000 bytes, also when it is decoded' && says '^413$'
verdict $? 'a body larger than --body-mb gets 413, as it comes or decoded'
"$python" -c 'import sys; sys.path.append(sys.argv[1]); import attacks
sys.stdout.buffer.write(attacks.png(20, 30))' "$support/hostile" >small.png
infer --data-binary @small.png && says '^400$' &&
  says 'is 30 x 20, but only images of 32 x 32 .*: start the server with --resize or --jpeg'
verdict $? 'an image of another size is an error that names the options for such images'
end tls
((status == 0))
verdict $? 'a server over TLS ends with status 0'

refused() {  # refused NAME PATTERN OPTION...
  run timeout 60 "$LOCKSTEP" serve m=model.h5 --port 0 --threads 1 "${@:3}"
  ((status == 2)) && says "$2" && ! says '^listening' && ! says 'version 1'
  verdict $? "$1"
}
chmod 644 other.key
refused 'a key that others can read is an error' 'other.key: is not for its owner alone' \
  --tls-cert other.crt --tls-key other.key
chmod 600 other.key
refused 'a key of another certificate is an error that names both, before any model is read' \
  'one.crt and other.key: cannot be used for TLS: .*do not match' \
  --tls-cert one.crt --tls-key other.key
refused 'a file that is no certificate is named' 'pack.log: holds no CERTIFICATE in the form PEM' \
  --tls-cert pack.log --tls-key one.key
cp one.crt swapped && chmod 600 swapped
refused 'a certificate in place of the key is named' 'swapped: holds no PRIVATE KEY in the form' \
  --tls-cert one.crt --tls-key swapped
sed '2,$s/[A-Za-z]/x/g' one.crt >damaged.crt
refused 'a damaged certificate is an error that names the files' \
  'damaged.crt and one.key: cannot be used for TLS' --tls-cert damaged.crt --tls-key one.key
refused 'a certificate that is not there is named' 'nowhere.crt: No such file' \
  --tls-cert nowhere.crt --tls-key one.key
refused 'a certificate without its key is an error' 'give --tls-cert and --tls-key together' \
  --tls-cert one.crt
refused 'a size that the network does not take is an error that names both' \
  'makes images of 16 x 16, but the network takes 32 x 32 .*: give --resize 32x32' --resize 16

# ---- few descriptors -----------------------------------------------------------------------------
(ulimit -n 64 && exec "$LOCKSTEP" serve m=model.h5 --port 0 --threads 1 --grace-s 0) >few.log 2>&1 &
server=$!
until_it 600 grep -q '^listening at' few.log
at=$(sed -n 's/^listening at \(http.*\)\/$/\1/p' few.log) port=${at##*:}
grep -q -- '--connections 512 do not fit: .* open 64 files .* It takes 32 connections' few.log
verdict $? 'connections that do not fit the limit of open files are said at the start, and fewer'
"$python" -c 'import socket, sys, time
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(100)]
print("filled", flush=True)
time.sleep(600)' "$port" >filled.out 2>&1 &
filling=$!
until_it 200 grep -q '^filled' filled.out
touch model.h5
happens 300 grep -q 'm: version 2' few.log
verdict $? 'while silent connections have all places a model is still loaded'
kill $filling 2>/dev/null
wait $filling 2>/dev/null
end few
((status == 0))
verdict $? 'it ends with status 0 then'

# ---- many clients, slow clients ------------------------------------------------------------------
start plain --batch 4
run "$python" "$support/hostile/strict.py" "$port"
grep '^PASS ' <<<"$said"
verdict $status 'what a proxy may understand otherwise gets 400, and what is right is answered'
run "$python" "$support/clients/doors.py" hostile "$port" m 10
((status == 0)) && says 'closed: silent, drip, half, slow body, flood$'
verdict $? 'silence, dripping headers and bodies, half bodies and floods get 4xx or no answer'
run "$python" "$support/clients/doors.py" patient "$port" m 16000 100
((status == 0)) && says '^answered: 30[0-9]* bytes in '
verdict $? 'a request over a slow link, twice as long as a silence may be, is answered'
run "$python" "$support/clients/doors.py" crowd "$port" m 450 "$server"
((status == 0)) && says '^answered all next to 450 idle connections'
verdict $? 'next to 450 idle connections busy ones are answered, in less than 50 MB more'
end plain
((status == 0))
verdict $? 'after all this the server ends with status 0'
