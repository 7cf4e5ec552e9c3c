#!/bin/bash
# seconds: 700
# jobs/*.sbatch, as they are, on a cluster: each job ends in the state that Slurm should show, and what is to go on does.
# The jobs run side by side; what each needs of the others' nodes is nothing.
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
source "$repo/tests/support/cluster.bash"
cluster 8 --cpus 96 --gpus-per-node 12 --mem 256000 --conf SlurmdTimeout=120 --conf KillWait=8
pack_small
export LOCKSTEP
train=(--data.train small/train --threads 1 --optim.lr 0.01 --audit.every-steps 0 --batch 24)

# submit NAME OPTION... SCRIPT ARGUMENT...: its number in `id`, its output in NAME.out, its run in NAME.
submit() { id=$(RUN=$1 sbatch --parsable --output="$1.out" "${@:2}"); }
field() {  # field ID NAME: asked again when slurmctld is too busy to answer
  local job=$1 shown
  until_it 30 eval 'shown=$(scontrol show job "$job" 2>/dev/null)'
  grep -o "$2=[^ ]*" <<<"$shown" | head -n 1 | cut -d= -f2
}
state() { field "$1" JobState; }
ended() { [[ $(state "$1") =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)$ ]]; }
saw() { tr '\r' '\n' <"$1.out" 2>/dev/null | grep -aE -- "$2" >/dev/null; }
steps() { grep -ao '^{"step":[0-9]*' "$1/metrics.jsonl" 2>/dev/null | cut -d: -f2; }
steps_are() { [[ $(steps "$1") == "$(seq "$2")" ]]; }  # each from 1 to the last, once
within() {                                             # within SECONDS COMMAND...
  local tenths
  for ((tenths = 0; tenths < $1 * 10; tenths += 3)); do
    "${@:2}" && return
    sleep 0.3
  done
  return 1
}
# row WHAT HOW ID: a line of the table of endings, which is the lines with | of this script's log.
row() { printf '| %s | %s | %s | %s | %s |\n' "$1" "$2" "$(state "$3")" "$(field "$3" ExitCode)" "$(field "$3" Restarts)"; }
has_checkpoint() { compgen -G "$1/checkpoints/step-*.h5" >/dev/null; }
judged() {  # judged ID NAME: what is shown when the law does not hold
  said="job $1: $(state "$1"), exit code $(field "$1" ExitCode), $(field "$1" Restarts) restart(s)
$(tr '\r' '\n' <"$2.out" | grep -av '^epoch')"
}

# What $STRIKE names comes over this rank in the job's first start, when there is a checkpoint: KILL or STOP.
cat >struck <<'END'
#!/bin/bash
if ((${SLURM_RESTART_COUNT:-0} == 0)) && [[ $STRIKES == *" ${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID} "* ]]; then
  (until compgen -G "$RUN/checkpoints/step-*.h5" >/dev/null; do sleep 0.01; done
    while kill "-$STRIKE" $$; do sleep 0.1; done) 2>/dev/null &  # again and again: Slurm lets the stopped go on
fi
exec "$REAL" "$@"
END
chmod +x struck
# strike SIGNAL RANKS SUBMIT...: submits a job whose ranks are struck.
strike() { STRIKE=$1 STRIKES=" $2 " REAL=$LOCKSTEP LOCKSTEP=./struck "${@:3}"; }
small=(--ntasks-per-node=2 --cpus-per-task=1 "$repo/jobs/single-node.sbatch" "${train[@]}" --checkpoint.every-steps 20)

# Ranks that are all stopped can neither heed the signal before the time limit nor end each other.
limit=(--nodelist="$node6" --time=1 --signal=B:USR1@40)
STUCK_AFTER=1000 strike STOP '0 1' submit hard "${limit[@]}" "${small[@]}" --epochs 30
hard=$id
STUCK_AFTER=2 strike STOP '0 1' submit stuck "${limit[@]}" "${small[@]}" --epochs 30
stuck=$id
# They have to be stopped before Slurm's signal, so that they begin before the others do.
within 20 has_checkpoint hard && within 20 has_checkpoint stuck

strike KILL 1 submit killed --nodelist="$node1" "${small[@]}" --epochs 60
killed=$id

# A rank that is killed, again and again, before the first checkpoint.
cat >killed-early <<'END'
#!/bin/bash
"$REAL" "$@" &
trap : TERM  # lockstep itself heeds it
while ((SLURM_PROCID == 0)) && kill -0 $! 2>/dev/null; do
  (($(ls fatal/generations 2>/dev/null | wc -l) > ${SLURM_RESTART_COUNT:-0})) && kill -KILL $!
  sleep 0.2
done
wait $!
END
chmod +x killed-early
REAL=$LOCKSTEP LOCKSTEP=./killed-early submit fatal --nodelist="$node1" "$repo/jobs/single-node.sbatch" "${train[@]}" \
  --epochs 100000 --checkpoint.every-epochs 0
fatal=$id

# Steps over a slow network take as long on any machine: longer, all together, than a job may before Slurm signals.
mini shape "$node3" delay=30ms
submit timed --time=1 --signal=B:USR1@40 --nodelist="$node1,$node3" --ntasks-per-node=1 --gpus-per-node=1 \
  "$repo/jobs/multi-node.sbatch" "${train[@]}" --epochs 10
timed=$id
mini shape "$node4" delay=30ms  # so that it does not end before its node is lost
RANKS=2 submit lost --exclude="$node1,$node3,$node6,$node7,$node8" --gpus-per-node=2 "$repo/jobs/resilient.sbatch" \
  "${train[@]/24/25}" --epochs 60 --checkpoint.every-steps 20 --liveness.timeout-s 5
lost=$id
submit multi --nodelist="$node1,$node6" "$repo/jobs/multi-node.sbatch" "${train[@]}" --epochs 1
multi=$id
submit typo --nodelist="$node1" --ntasks-per-node=1 "$repo/jobs/single-node.sbatch" "${train[@]}" --epocs 1
typo=$id

# A node is lost: first only the ranks notice, then Slurm.
within 180 eval '(($(steps lost | wc -l) > 25))'
mini kill-node "$node5"
within 180 saw lost "start 1, on 2 node\(s\): $node2 $node4" && within 120 saw lost 'batch 25 = 4 rank'
judged "$lost" lost
says '2 of 6 ranks missing' && says 'batch 25 = 6 rank\(s\) x 1 micro-batch\(es\) x 5 or 4 rows' &&
  says 'batch 25 = 4 rank\(s\) x 1 micro-batch\(es\) x 7 or 6 rows' &&
  [[ $(state "$lost") == RUNNING && $(field "$lost" Restarts) == 0 ]]
verdict $? 'resilient.sbatch: the nodes that are left go on from the last checkpoint, with the same global batch, which they cannot share evenly'
scontrol update NodeName="$node5" State=DOWN Reason=lost
mini shape "$node4"

within 180 ended "$multi"
judged "$multi" multi
row 'done' 'nothing' "$multi"
[[ $(state "$multi") == COMPLETED ]] && steps_are multi 10 && says 'batch 24 = 8 rank' &&
  [[ $(grep -o '"host": "[^"]*"' multi/binding.json | sort | uniq -c | awk '{ print $1 }') == $'4\n4' ]]
verdict $? 'multi-node.sbatch: one rank for each GPU of two nodes, COMPLETED'

within 180 ended "$typo"
judged "$typo" typo
row 'bad input' 'a key that is none' "$typo"
[[ $(state "$typo") == FAILED && $(field "$typo" ExitCode) == 2:0 && $(field "$typo" Restarts) == 0 ]]
verdict $? 'a training that fails makes its job FAILED, with its status, and is not started anew'

# A node that is lost, a job that is cancelled, ranks of mpirun: beside what follows.
submit down --exclude="$node1,$node2,$node3,$node4,$node5,$node6" "${small[@]}" --epochs 150
down=$id
within 120 eval 'on=$(squeue -h -t R -j "$down" -o %N) && [[ $on ]]'
submit gone --no-requeue --nodelist="$on" "${small[@]}" --epochs 100000
gone=$id
submit cancelled --nodelist="$node1" "${small[@]}" --epochs 100000
cancelled=$id
mpirun="mpirun --bind-to none -np 2 ./struck train ${train[*]} --checkpoint.every-steps 20 --epochs 1000 --out"
for run in broken badly; do
  printf '%s\n' '#!/bin/bash' "$mpirun $run $([[ $run == broken ]] || echo --epocs)" >"$run.sh"
done
strike KILL 1 submit broken --nodelist="$node1" --ntasks=2 broken.sh
broken=$id
strike KILL x submit badly --nodelist="$node1" --ntasks=2 badly.sh
badly=$id

within 120 has_checkpoint down && within 120 has_checkpoint gone
scontrol update NodeName="$on" State=DOWN Reason=lost
within 120 saw cancelled 'first step done' && scancel "$cancelled"

within 180 ended "$fatal"
judged "$fatal" fatal
row 'a rank lost in each start, before any checkpoint' 'kill -9' "$fatal"
[[ $(state "$fatal") == FAILED && $(field "$fatal" Restarts) == 2 ]] && says 'was started twice from step 0'
verdict $? 'a job that loses a rank is requeued, and after two starts without progress it is FAILED'

within 180 ended "$lost"
judged "$lost" lost
row 'node lost, resilient.sbatch' 'node killed, then DOWN in Slurm' "$lost"
[[ $(state "$lost") == COMPLETED && $(field "$lost" Restarts) == 1 ]] && steps_are lost 600 &&
  [[ $(grep -c 'going on from' lost.out) == 2 ]]
verdict $? 'resilient.sbatch: when Slurm ends the job because of the node, it goes on, and each step is done once'

within 240 ended "$timed"
judged "$timed" timed
row 'time limit' 'steps that take longer' "$timed"
[[ $(state "$timed") == COMPLETED ]] && (($(field "$timed" Restarts) >= 1)) && steps_are timed 100 &&
  ranks 2 "$LOCKSTEP" train "${train[@]}" --epochs 10 --out undisturbed >undisturbed.out 2>&1 &&
  [[ $(tensors timed/checkpoints/step-00000100.h5) == "$(tensors undisturbed/checkpoints/step-00000100.h5)" ]]
verdict $? 'a job that reaches its time limit is requeued, and ends with the weights of an undisturbed run'

# The rest of the table: what Slurm says of each job in the end.
ends() {  # ends ID NAME WHAT HOW STATE EXIT_CODE RESTARTS LAW: within its time
  within 180 ended "$1"
  judged "$1" "$2"
  row "$3" "$4" "$1"
  [[ $(state "$1") == "$5" && $(field "$1" ExitCode) == $6 && $(field "$1" Restarts) == $7 ]]
}
ends "$killed" killed 'a rank lost behind a checkpoint' 'kill -9 (srun --kill-on-bad-exit=1)' COMPLETED 0:0 1 &&
  says 'going on from killed/checkpoints' && steps_are killed 600
verdict $? 'a job that loses a rank is requeued, and goes on from its checkpoint: no step is missing or done twice'
ends "$broken" broken 'a rank of mpirun lost' 'kill -9, a script that only calls mpirun' FAILED 137:0 0
verdict $? "mpirun's status of a rank that was killed makes a job FAILED"
ends "$badly" badly 'bad input under mpirun' 'an option that is none' FAILED 2:0 0
verdict $? "lockstep's status reaches Slurm through mpirun"
ends "$down" down 'node DOWN (NODE_FAIL)' 'scontrol update State=DOWN' COMPLETED 0:0 1 && says 'going on from down/checkpoints' &&
  steps_are down 1500
verdict $? 'a job whose node fails is started anew by Slurm, and goes on'
ends "$gone" gone 'node DOWN, --no-requeue' 'scontrol update State=DOWN' NODE_FAIL '*' 0
verdict $? 'a job whose node fails and that may not be requeued is NODE_FAIL'
ends "$cancelled" cancelled 'scancel' 'scancel' CANCELLED '*' 0 && says 'stopped behind step'
verdict $? 'a job that is cancelled leaves a checkpoint and is CANCELLED, not started anew'
ends "$stuck" stuck 'time limit, ranks stuck' 'kill -STOP of all ranks; USR1 40 s before the limit' COMPLETED 0:0 '[1-9]' &&
  ! grep -q 'stopped behind' <<<"${said%%DUE TO JOB REQUEUE*}" && says 'going on from stuck/checkpoints' && steps_are stuck 300
verdict $? 'ranks that are stuck when the time is nearly over: the job is requeued, and goes on from its last checkpoint'
STEPS=10 sbatch -W --array=0-1 --ntasks-per-node=1 --gpus-per-node=1 --exclude="$node3,$node5,$on" --output=scaling-%a.out \
  "$repo/jobs/scaling.sbatch" "${train[@]}" --epochs 9 >sbatch.log 2>&1
status=$?
said=$("$LOCKSTEP" scaling runs/scaling-* 2>&1; cat sbatch.log scaling-*.out)
((status == 0)) && says '^1 +1 +24 +9 .* 100 %$' && says '^2 +2 +24 +9 '
verdict $? 'scaling.sbatch: a job array trains on 1, 2, ... ranks, and lockstep scaling compares them'

ends "$hard" hard 'time limit strikes' 'kill -STOP of all ranks, and nobody requeues' TIMEOUT '*' 0
verdict $? 'a job that the time limit ends is TIMEOUT, never COMPLETED'
submit hard --nodelist="$node6" "${small[@]}" --epochs 30
ends "$id" hard 'the same, submitted again' 'nothing' COMPLETED 0:0 0 && says 'going on from hard/checkpoints' && steps_are hard 300
verdict $? 'submitted again with the same $RUN, it goes on from its last checkpoint'

known=$(sbatch --help | grep -oE -- '--[a-z][a-z0-9-]+' | sort -u)
{ echo '#!/bin/bash'; sed 's/^/#SBATCH /' <<<"$known"; } >all.sbatch
run "$LOCKSTEP" lint all.sbatch
(($(wc -l <<<"$known") > 60)) && ! says 'knows no'
verdict $? "lint knows all of sbatch's options"
same=0
for option in --mem=1.5G --mem=16GB --time=4h --time=1-2:30 --signal=B:USR1@9 --signal=USR1@x --nodes=x --nodes=1-2 \
  --ntasks=two --ntask=2 --gpus-per-node=1; do
  printf '%s\n' '#!/bin/bash' "#SBATCH $option" "trap : USR1" "srun lockstep train" >one.sbatch
  refused=0 named=0
  sbatch --test-only one.sbatch >/dev/null 2>&1 || refused=1
  [[ $("$LOCKSTEP" lint one.sbatch) == *'one.sbatch:2: error'* ]] && named=1
  ((refused == named)) || { said="$option: sbatch $refused, lint $named"; same=1; }
done
verdict $same 'lint finds an error in those options that sbatch refuses'
