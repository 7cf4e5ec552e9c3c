#!/bin/bash
# What lockstep why says of runs that really ended in these ways.
# waits for ranks to be missed
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
train=("$LOCKSTEP" train --data.train small/train --threads 1 --batch 48 --backend clock
  --clock.step-ms 20 --audit.every-steps 0 --checkpoint.every-steps 5)

# is RUN ENDING PATTERN: what why says of the run.
is() {
  run "$LOCKSTEP" why --json "$1"
  ((status == 0)) && says "^  \"ending\": \"$2\",$" &&
    run "$LOCKSTEP" why "$1" && ((status == 0)) && says "^$2: " && says "$3"
}
has_checkpoint() { compgen -G "$1/checkpoints/step-*.h5" >/dev/null; }
# begin RUN COMMAND...: in the background, until it has a checkpoint.
begin() {
  ${mpirun:-} "${@:2}" --out "$1" --epochs 1000 >"$1.log" 2>&1 &
  process=$!
  until_it 600 has_checkpoint "$1"
}

begin ran "${train[@]}"
is ran running 'step [0-9]+ is done'
verdict $? 'a run that goes is running'

# other_user COMMAND...: runs it as a user who may only read.
other_user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
law='who may read the lock of a run that goes sees that it goes, and who may not is told so'
chmod a+rx .
if other_user "$LOCKSTEP" why --help >/dev/null 2>&1 && other_user test -r ran/.lock; then
  run other_user "$LOCKSTEP" why ran
  ((status == 0)) && says '^running: ' && chmod 600 ran/.lock &&
    run other_user "$LOCKSTEP" why ran && ((status == 0)) &&
    says '^unknown: .*whether it still runs is not known: ran/.lock: Permission denied' &&
    ! says 'resume'
  verdict $? "$law"
else
  echo "SKIP $law: no other user can run lockstep from here"
fi

kill -TERM "$process"
wait "$process"
is ran stopped 'by a signal' && says 'resume auto continues from ran/checkpoints/step-[0-9]*.h5'
verdict $? 'a run that was asked to stop was stopped, and can be resumed'

run "${train[@]}" --out planned --stop-after 2
((status == 3)) && is planned stopped 'after step 2 by stop-after'
verdict $? 'a run that a key stopped was stopped'

run "${train[@]}" --out done --epochs 1
((status == 0)) && is done finished 'after step 5' && ! says resume
verdict $? 'a run that finished has finished'

# A sacct on PATH: of an array whose tasks ended at $ENDED.
mkdir bin && printf '#!/bin/bash\nexit 1\n' >bin/squeue && cat >bin/sacct <<'END'
#!/bin/bash
[[ "$*" == *' -j 4711_2 -o JobIDRaw,JobID,State,End' ]] &&
  printf '%s|%d\n' '4712|4711_0|NODE_FAIL' $ENDED '4711|4711_2|TIMEOUT' $ENDED
END
chmod +x bin/*
cp -r planned task && sed -i '1s/"job":"[^"]*"/"job":"4711_2"/' task/metrics.jsonl
ended=$(($(date +%s) + 5))
PATH=$PWD/bin:$PATH ENDED=$ended is task 'out of time' 'by stop-after' &&
  PATH=$PWD/bin:$PATH ENDED=$ended run "$LOCKSTEP" report task --text && says '^out of time: ' &&
  PATH=$PWD/bin:$PATH ENDED=$((ended + 7200)) is task stopped 'by stop-after'
verdict $? "of an array, the state of the run's own task counts, and only if both ended together"

begin killed "${train[@]}"
kill -KILL "$process"
wait "$process" 2>/dev/null
is killed killed 'its records end after step [0-9]+ without a word' &&
  says 'killed/checkpoints/step'
verdict $? 'a process that was killed left no word'

mpirun="mpirun --oversubscribe --bind-to none -np 3"
begin lost "${train[@]}" --liveness.timeout-s 2
rank_pids "$process"
kill -KILL "${pids[2]}"
wait "$process"
is lost 'lost rank' '1 of 3 ranks missing: rank 2 on '
verdict $? 'a rank that was killed is a lost rank'

begin stopped_rank "${train[@]}" --liveness.timeout-s 2
rank_pids "$process"
kill -STOP "${pids[1]}"
wait "$process"
kill -KILL "${pids[1]}" 2>/dev/null
is stopped_rank 'lost rank' 'rank 1 on .*it is stopped'
verdict $? 'a rank that somebody stopped is a lost rank, and why says that it is stopped'

run "$LOCKSTEP" train --data.train small/train --threads 1 --batch 48 --optim.lr 1000000 \
  --epochs 9 --out wild
((status != 0)) && is wild diverged 'training (has )?diverged' && says 'smaller --optim.lr'
verdict $? 'a loss that is no number is a run that diverged'

cp -r small/train damaged
python3 - <<'PY'
import glob, os
path = sorted(glob.glob("damaged/*.h5"))[0]
with open(path, "r+b") as file:
    file.seek(os.path.getsize(path) // 2)
    file.write(b"\xa5" * 4096)
PY
run "$LOCKSTEP" train --data.train damaged --threads 1 --batch 48 --out rotten
((status != 0)) && is rotten 'bad data' 'damaged/'
verdict $? 'damaged rows are bad data'

mkdir empty
run "$LOCKSTEP" why empty
((status == 2)) && says "empty is not a run's folder" && run "$LOCKSTEP" why none &&
  ((status == 2)) &&
  mkdir -p begun/checkpoints && is begun 'never began' 'no rank of it has begun'
verdict $? 'a folder without a run is an error; a run without records never began'

# Two starts of a job that made no step; $1 is how Slurm ended the first.
third_start() {
  rm -rf again && mkdir -p again/generations
  printf 'step 0\nhost n\njob 4711\n' | tee again/generations/000001 >again/generations/000002
  printf '#!/bin/bash\nprintf "4711|4711|%%s\\n" %s FAILED\n' "$1" >bin/sacct
  PATH=$PWD/bin:$PATH SLURM_JOB_ID=4711 SLURM_RESTART_COUNT=2 SLURM_JOB_END_TIME=9999999999 \
    run "${train[@]}" --out again --resume auto --epochs 1
}
third_start FAILED
((status == 2)) && says 'job 4711 was started twice from step 0' && third_start PREEMPTED &&
  ((status == 0))
verdict $? "a job's third start without progress ends, unless Slurm preempted one of the others"

cp -r killed bare && rm bare/metrics.jsonl && is bare unknown 'records are missing or damaged' &&
  says 'continues from bare/checkpoints' && cp -r done noise &&
  head -c 3000 /dev/urandom >noise/metrics.jsonl && is noise finished 'after step 5' &&
  says 'warning: .*metrics.jsonl: .*not records of lockstep'
verdict $? 'a run whose records are gone or damaged has begun, if a checkpoint or summary says so'
