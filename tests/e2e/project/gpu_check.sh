#!/bin/bash
# gpu-check itself, in a bundle whose programs are small scripts: it must not say that all is well
# when a test program has died, or has not run.
# ci
# waits for a section that runs out of time
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"

mkdir -p bundle/bin bundle/share
cp "$repo/tests/gpu/gpu-check" bundle/
cp "$repo"/tests/gpu/*.bash bundle/share/
echo libraries= >bundle/env.sh
echo 'bundle of some-commit' >bundle/made
# mpirun --oversubscribe --bind-to none -np N PROGRAM ...
printf '%s\n' '#!/bin/sh' 'shift 5' 'exec "$@"' >bundle/mpirun
cat >tests.sh <<'END'
#!/bin/bash
[[ $FAKE != missing ]] || exit 127
[[ $FAKE != empty ]] || exit 0
printf 'TEST one\nPASS one\n'
[[ $FAKE != slow ]] || sleep 60
printf 'TEST two\n'
[[ $FAKE != dies ]] || kill -SEGV $$
[[ $FAKE != hangs ]] || exit 124
[[ $FAKE != skips ]] || echo 'SKIPPED: no second GPU'
printf 'PASS two\n'
[[ $FAKE != status ]] || exit 7
END
gzip -c tests.sh >bundle/bin/gpu_tests.gz
cat >bundle/lockstep <<'END'
#!/bin/bash
case "$*" in
  --version) echo 'lockstep of some build' ;;
  topo) echo "${TOPO:-no device}" ;;
  *'bench train'*'--json'*)
    echo "$*" >>"$ASKED"
    json=$(sed 's/.*--json \([^ ]*\).*/\1/' <<<"$*")
    plans=$(sed -n 's/.*--tune-cache \([^ ]*\).*/\1/p' <<<"$*")
    [[ -z $plans ]] || printf 'lockstep plans 1\n0\tcard\tconv1\teng7\n' >"$plans"
    printf '%s\n' '{"images_per_s": 100.5,' '"step_ms": 2.5, "first_step_s": 1,' \
      '"floor_ms": 2.0, "floor_reached": 0.8, "tape": [' \
      '{ "name": "conv1", "ms": 1.0, "engine": "eng4{k2=1}", "floor_ms": 0.9 },' \
      '{ "name": "bn1", "ms": 1.5, "floor_ms": 0.5 }]}' >"$json" ;;
  pack*) exit 1 ;;
esac
END
chmod +x bundle/lockstep bundle/mpirun
export ASKED=$WORK/asked BACKEND=cpu

# check FAKE SECTIONS [VARIABLE=...]: runs gpu-check with its files in out/.
check() {
  local fake=$1 sections=$2
  shift 2
  rm -rf out
  run env FAKE="$fake" SECTIONS="$sections" OUT="$WORK/out" "$@" bundle/gpu-check
}

check good parity
[[ $status == 0 ]] && says '^PASS two, on 1 rank' && says '^2 passed, 0 failed' &&
  [[ $(cd out/gpu-check && find . -type f | sort | paste -sd' ') == \
    './report.json ./report.txt ./results.tgz' ]] &&
  grep -q parity.log <(tar tzf out/gpu-check/results.tgz) &&
  python3 -m json.tool out/gpu-check/report.json >/dev/null
verdict $? 'gpu-check puts all that it found into three files'

check dies parity
[[ $status == 1 ]] && says '^FAIL two, on 1 rank.s.: ended without a verdict' &&
  says '^FAIL parity on 1 rank.*signal 11' && says '^1 passed, 2 failed'
verdict $? 'a GPU test that dies by a signal is a failure, although others passed'

check hangs parity
[[ $status == 1 ]] && says '^FAIL parity on 1 rank.*a test that hung' && ! says 'ran out of'
verdict $? "a test that hung is not mistaken for a section's end"

wrong=
for fake in status empty missing; do
  check $fake parity
  [[ $status == 1 ]] && says '^FAIL' || wrong+=" $fake"
done
[[ -z $wrong ]]
verdict $? "a test program's status counts, and one without tests fails$wrong"

check skips parity
[[ $status == 0 ]] && says '^NOTE skipped: two: no second GPU' && says '^1 passed, 0 failed'
verdict $? 'a skipped test is shown with its reason, and does not count as passed'

check status ranks
[[ $status == 1 ]] && says '^FAIL nccl-2 on 2 rank.*status 7' &&
  says '^FAIL the default data set is packed'
verdict $? "the status of NCCL's tests and a data set that cannot be packed are failures"

check slow 'parity speed' BUDGET_S=21
[[ $status == 1 ]] && says '^PASS one' &&
  says '^FAIL parity on 1 rank.*no time was left for the rest' &&
  says '^FAIL speed: no time was left' &&
  grep -q parity.log <(tar tzf out/gpu-check/results.tgz)
verdict $? 'a section ends in time, and its results are kept'

: >"$ASKED"
check good speed
[[ $status == 0 ]] && says '^NOTE resnet20-8-fp32-graph-tune: 100.5 images/s' &&
  says 'engine: 1 eng4.k2=1' &&
  says 'slow: 1.5 ms, at best 0.5: bn1' && ! says 'slow: .*conv1' &&
  says 'tuned: 1 eng7' && [[ -s bundle/plans.txt ]] &&
  grep -q -e '--fuse-norms false --graph false --tune false --steps' "$ASKED" &&
  grep -q -e '--graph true --tune true --tune-cache [^ ]* --steps' "$ASKED" &&
  grep -q -e '--graph true --tune false --steps' "$ASKED" &&
  grep -q -e '--graph false --tune false --steps .* --layers' "$ASKED"
verdict $? 'speed is measured with and without each way to run a step, with engines and slow steps'

check good speed CASES='resnet50|fp16'
[[ $status == 1 ]] && says '^FAIL speed has a verdict' && ! says 'resnet20'
verdict $? 'CASES= selects the cases, and a selection of none is no success'

check good parity BACKEND=cuda
[[ $status == 1 ]] && says '^FAIL there is a GPU'
verdict $? 'without a GPU gpu-check fails'
check good parity BACKEND=cuda TOPO='CUDA device 0: some card'
[[ $status == 0 ]] && says '^CUDA device 0' && says '^ldconfig: ' &&
  says '^bundle of some-commit'
verdict $? 'the report names the device, the bundle and the libraries'

run env SECTIONS=nonsense OUT="$WORK/out" bundle/gpu-check
[[ $status == 2 ]] && says 'no section is called "nonsense"'
verdict $? 'an unknown section is an error'
run env BUDGET_S=10min OUT="$WORK/out" bundle/gpu-check
[[ $status == 2 ]] && says 'BUDGET_S="10min" is not a number'
verdict $? 'a budget that is no number is an error'
