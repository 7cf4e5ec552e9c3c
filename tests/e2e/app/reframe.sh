#!/bin/bash
# lockstep's benchmark as a check of ReFrame: the report has lockstep's own figures, a slow step
# fails the performance stage, a lost rank the sanity stage.
# computes
# ci
# clients
root=$PWD
source "$(dirname "$0")/../../support/e2e.bash"
source "$root/tests/support/clients/clients.bash"
clients_or_skip 'ReFrame reports what lockstep measured' reframe
export LOCKSTEP
# check OPTION...: runs what they choose of the committed checks; `report.json` has what it found.
check() {
  rm -rf stage output report.json
  run "$python" -c 'from reframe.frontend.cli import main; main()' \
    -C "$root/jobs/reframe/settings.py" -c "$root/jobs/reframe/lockstep_check.py" --system=here \
    --keep-stage-files --report-file=report.json -r "$@"
}
fails_in() { says 'Ran 1/1 test case' && says "Failing phase: $1" && ((status == 1)); }

check -n LockstepTrain -S steps=5
((status == 0)) && python3 "$support/benchmark.py" reframe report.json stage 1,2,4
verdict $? 'ReFrame reports what lockstep measured on 1, 2 and 4 ranks, and what follows from it'
check -n LockstepRehearsal -S steps=5
((status == 0)) && python3 "$support/benchmark.py" reframe report.json stage 64
verdict $? 'ReFrame reports what lockstep measured on 64 ranks that wait'

# A step that only waits takes what it should, but for the machine's other work.
waits=(-n 'LockstepTrain%ranks=2' -S compute=clock -S steps=5 -S expect_step_ms=400)
in_time() {
  check "${waits[@]}" -S more='--clock.step-ms 400 --warm-up 0'
  says 'Ran 1/1 test case' && ((status == 0))
}
thrice in_time
verdict $? 'a step as long as expected passes'
check "${waits[@]}" -S more='--clock.step-ms 480 --warm-up 0'
fails_in performance && says 'step_ms'
verdict $? 'steps that take 20 % longer fail the performance stage'

cat >killed <<'END'
#!/bin/bash
if [[ $OMPI_COMM_WORLD_RANK == 1 ]]; then
  (until grep -q 'computing on' rfm_job.out; do sleep 0.05; done; kill -KILL $$) 2>/dev/null &
fi
exec "$REAL" "$@"
END
chmod +x killed
REAL=$LOCKSTEP LOCKSTEP=./killed check -n 'LockstepTrain%ranks=2' -S steps=1000
fails_in sanity && says 'the launcher ended with status' &&
  grep -q 'signal 9' stage/here/default/builtin/*/rfm_job.err
verdict $? 'a rank that was killed fails the sanity stage'
mpicxx -x c -O1 -shared -fPIC -o broken.so "$support/preloads/broken_sums.c" -ldl
cat >broken <<END
#!/bin/bash
exec env LD_PRELOAD="$PWD/broken.so" "\$REAL" "\$@"
END
chmod +x broken
REAL=$LOCKSTEP LOCKSTEP=./broken check -n 'LockstepTrain%ranks=2'
fails_in sanity && says 'the launcher ended with status 1' &&
  grep -q "the loss of the benchmark's rows is" stage/here/default/builtin/*/rfm_job.err
verdict $? 'a sum whose bits were flipped on the way fails the sanity stage'
