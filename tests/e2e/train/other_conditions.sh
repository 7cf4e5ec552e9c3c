#!/bin/bash
# What a run has saved, used again under other conditions: its configuration for another model,
# image size, precision or backend, and its checkpoint on another machine. It starts; what was
# measured for the first run is kept where it fits, measured again elsewhere, and a line says which.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
if ! grep -q avx512bw /proc/cpuinfo; then
  echo "SKIP saved configurations under other conditions: this processor has no AVX-512"
  exit 0
fi
pack_small
"$LOCKSTEP" pack --from shapes --out larger --train-rows 250 --val-rows 53 --resize 16 \
  >>pack.log 2>&1
cache=.cache/lockstep/convolutions.json
list=32x32@4x4:f # of ResNet-20 on 8 x 8; no measurement gives it alone
chosen() { sed -n 's/^winograd = "\(.*\)"$/\1/p' "$1/decisions.toml"; }
measured() { (($(grep -c "^convolutions by Winograd's algorithm" <<<"$said") == 1)); }

run "$LOCKSTEP" train --data.train small/train --data.val small/val --batch 50 --epochs 2 \
  --stop-after 2 --out sought
python3 - <<END
import json
known = json.load(open("$cache"))
json.dump({key: "$list" for key in known}, open("$cache", "w"))
END
run "$LOCKSTEP" train --data.train small/train --data.val small/val --batch 50 --epochs 2 \
  --stop-after 2 --out first
((status == 3)) && [[ $(chosen first) == "$list" ]]
verdict $? 'the first run has a list of convolutions among its decisions'

# another NAME OPTION...: the configuration of the first run, with other options, in a new run.
another() {
  run "${with[@]}" "$LOCKSTEP" train --config first/config.toml --stop-after 2 --out "$1" "${@:2}"
  ((status == 3)) && ! says 'may differ' && [[ $(chosen "$1") != "$list" ]]
}
with=()
another model --model resnet18 && measured
verdict $? "another model takes the configuration, and measures its own convolutions"
another size --data.train larger/train --data.val larger/val && measured &&
  grep -q '^train = "larger/train"' size/config.toml
verdict $? 'so does another image size'
with=(env ONEDNN_MAX_CPU_ISA=AVX2)
another old_cpu && measured
verdict $? 'so does a machine with another instruction set'
with=(taskset -c "$(taskset -cp $$ | sed 's/.*[ ,-]//')")
another one_core --threads 1 && measured
verdict $? 'so does a machine with another number of cores'
with=()
another clock --backend clock --clock.row-ms 0.1 && ! measured && [[ ! $(chosen clock) ]]
verdict $? 'a rehearsal takes the configuration, and chooses no convolutions'
if grep -q avx512_bf16 /proc/cpuinfo; then
  another bf16 --precision bf16 && measured
  verdict $? 'another precision takes the configuration, and measures its convolutions'
  cp -r first precise
  run "$LOCKSTEP" resume precise --precision bf16 --stop-after 3
  ((status == 3)) && measured && [[ $(chosen precise) != "$list" ]] &&
    says 'the result may differ from an uninterrupted run.s: precision \(fp32, now bf16\)'
  verdict $? 'a run that resumes in another precision measures again, and says so'
else
  echo 'SKIP other precisions: this processor has no AVX512-BF16'
fi

# resumed NAME: a copy of the first run continues with its list, and says once what has changed.
resumed() {
  cp -r first "$1"
  run "${with[@]}" "$LOCKSTEP" resume "$1" --stop-after 3
  ((status == 3)) && ! measured && [[ $(chosen "$1") == "$list" ]] && says 'resuming from .* step 2'
}
with=(env ONEDNN_MAX_CPU_ISA=AVX2)
resumed other_cpu && says 'may differ from an uninterrupted run.s: backend \(.*avx512.*now .*avx2'
verdict $? 'a resume on another instruction set keeps what fits, and says that the bits may differ'
with=(taskset -c "$(taskset -cp $$ | sed 's/.*[ ,-]//')")
resumed fewer && { says 'may differ .* backend \(.* 2 threads.*, now .* 1 thread,' ||
  [[ $(nproc) == 1 ]]; }
verdict $? 'so does one on fewer cores'
with=(unshare --uts bash -c 'hostname elsewhere && exec "$@"' -)
if "${with[@]}" true 2>/dev/null; then
  resumed moved && ! says 'may differ' && grep -q '"hosts":\["elsewhere"\]' moved/metrics.jsonl
  verdict $? 'a resume on another host of the same kind has the same bits, and no warning'
else
  echo 'SKIP a resume on another host: this user may not give itself a host name'
fi
