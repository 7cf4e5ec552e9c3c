#!/bin/bash
# seconds: 400
# jobs/*.sbatch, as they are, on a cluster: each job ends in the state that Slurm should show, and what is to go on does.
# The jobs run side by side; what each needs of the others' nodes is nothing.
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
source "$repo/tests/support/cluster.bash"
cluster 6 --cpus 96 --gpus-per-node 12 --mem 256000 --conf SlurmdTimeout=120 --conf KillWait=2
pack_small
export LOCKSTEP
train=(--data.train small/train --threads 1 --optim.lr 0.01 --audit.every-steps 0 --batch 24)

# submit NAME OPTION... SCRIPT ARGUMENT...: its number in `id`, its output in NAME.out, its run in NAME.
submit() { id=$(RUN=$1 sbatch --parsable --output="$1.out" "${@:2}"); }
field() { scontrol show job "$1" | grep -o "$2=[^ ]*" | head -n 1 | cut -d= -f2; }
state() { field "$1" JobState; }
ended() { [[ $(state "$1") =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)$ ]]; }
saw() { tr '\r' '\n' <"$1.out" 2>/dev/null | grep -aEq -- "$2"; }
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
judged() {  # judged ID NAME: what is shown when the law does not hold
  said="job $1: $(state "$1"), exit code $(field "$1" ExitCode), $(field "$1" Restarts) restart(s)
$(tr '\r' '\n' <"$2.out" | grep -av '^epoch')"
}

# Steps over a slow network take as long on any machine: longer, all together, than a job may before Slurm signals.
mini shape "$node3" delay=30ms
submit timed --time=1 --signal=B:USR1@40 --nodelist="$node1,$node3" --ntasks-per-node=1 --gpus-per-node=1 \
  "$repo/jobs/multi-node.sbatch" "${train[@]}" --epochs 10
timed=$id
RANKS=2 submit lost --exclude="$node1,$node3,$node6" --gpus-per-node=2 "$repo/jobs/resilient.sbatch" \
  "${train[@]}" --batch 25 --epochs 60 --checkpoint.every-steps 20 --liveness.timeout-s 5
lost=$id
submit multi --nodelist="$node1,$node6" "$repo/jobs/multi-node.sbatch" "${train[@]}" --epochs 1
multi=$id
submit typo --nodelist="$node1" "$repo/jobs/single-node.sbatch" "${train[@]}" --epocs 1
typo=$id

within 60 ended "$multi"
judged "$multi" multi
[[ $(state "$multi") == COMPLETED ]] && steps_are multi 10 && says 'batch 24 = 8 rank' &&
  [[ $(grep -o '"host": "[^"]*"' multi/binding.json | sort | uniq -c | awk '{ print $1 }') == $'4\n4' ]]
verdict $? 'multi-node.sbatch: one rank for each GPU of two nodes, COMPLETED'

within 30 ended "$typo"
judged "$typo" typo
[[ $(state "$typo") == FAILED && $(field "$typo" ExitCode) == 2:0 && $(field "$typo" Restarts) == 0 ]]
verdict $? 'a training that fails makes its job FAILED, with its status, and is not started anew'

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

# A node is lost: first only the ranks notice, then Slurm.
within 60 eval '(($(steps lost | wc -l) > 60))'
mini kill-node "$node5"
within 60 saw lost "start 1, on 2 node\(s\): $node2 $node4" && within 30 saw lost 'batch 25 = 4 rank'
judged "$lost" lost
says '2 of 6 ranks missing' && says 'batch 25 = 6 rank\(s\) x 1 micro-batch\(es\) x 5 or 4 rows' &&
  says 'batch 25 = 4 rank\(s\) x 1 micro-batch\(es\) x 7 or 6 rows' &&
  [[ $(state "$lost") == RUNNING && $(field "$lost" Restarts) == 0 ]]
verdict $? 'resilient.sbatch: the nodes that are left go on from the last checkpoint, with the same global batch, which they cannot share evenly'
scontrol update NodeName="$node5" State=DOWN Reason=lost

within 90 ended "$fatal"
judged "$fatal" fatal
[[ $(state "$fatal") == FAILED && $(field "$fatal" Restarts) == 2 ]] && says 'was started twice from step 0'
verdict $? 'a job that loses a rank is requeued, and after two starts without progress it is FAILED'

within 90 ended "$lost"
judged "$lost" lost
[[ $(state "$lost") == COMPLETED && $(field "$lost" Restarts) == 1 ]] && steps_are lost 600 &&
  [[ $(grep -c 'going on from' lost.out) == 2 ]]
verdict $? 'resilient.sbatch: when Slurm ends the job because of the node, it goes on, and each step is done once'

within 120 ended "$timed"
judged "$timed" timed
[[ $(state "$timed") == COMPLETED ]] && (($(field "$timed" Restarts) >= 1)) && steps_are timed 100 &&
  ranks 2 "$LOCKSTEP" train "${train[@]}" --epochs 10 --out undisturbed >undisturbed.out 2>&1 &&
  [[ $(tensors timed/checkpoints/step-00000100.h5) == "$(tensors undisturbed/checkpoints/step-00000100.h5)" ]]
verdict $? 'a job that reaches its time limit is requeued, and ends with the weights of an undisturbed run'

STEPS=10 sbatch -W --array=0-1 --ntasks-per-node=1 --gpus-per-node=1 --exclude="$node3,$node5" --output=scaling-%a.out \
  "$repo/jobs/scaling.sbatch" "${train[@]}" --epochs 9 >sbatch.log 2>&1
status=$?
said=$("$LOCKSTEP" scaling runs/scaling-* 2>&1; cat sbatch.log scaling-*.out)
((status == 0)) && says '^1 +1 +24 +9 .* 100 %$' && says '^2 +2 +24 +9 '
verdict $? 'scaling.sbatch: a job array trains on 1, 2, ... ranks, and lockstep scaling compares them'

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
