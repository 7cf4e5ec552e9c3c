#!/bin/bash
# How Slurm sees the end of scripts that call lockstep; the scripts for several nodes and for a
# scaling study; and lint, compared with what sbatch itself says about a script.
# seconds: 300
# waits for Slurm, which runs one job after the other
source "$(dirname "$0")/../../support/jobs.bash"
job_cluster 2

submit multi "$jobs/multi-node.sbatch" "${train[@]}" --epochs 1
multi=$id
submit typo --ntasks-per-node=1 "$jobs/single-node.sbatch" "${train[@]}" --epocs 1
typo=$id
printf '%s\n' '#!/bin/bash' "mpirun --bind-to none -np 2 $LOCKSTEP train ${train[*]} --out badly --epocs" >badly.sh
submit badly --ntasks=2 badly.sh
badly=$id

ends "$multi" multi 'done' 'nothing' COMPLETED '*' '*' && steps_are multi 10 &&
  says 'batch 24 = 8 rank' &&
  [[ $(grep -o '"host": "[^"]*"' multi/binding.json | sort | uniq -c | awk '{ print $1 }') == \
    $'4\n4' ]]
verdict $? 'multi-node.sbatch: one rank for each GPU of two nodes, COMPLETED'

ends "$typo" typo 'bad input' 'an unknown key' FAILED 2:0 0
verdict $? 'a training that fails makes its job FAILED, with its status, and is not started again'
ends "$badly" badly 'bad input under mpirun' 'an unknown option' FAILED 2:0 0
verdict $? "lockstep's status reaches Slurm through mpirun"

STEPS=10 sbatch -W --array=0-1 --ntasks-per-node=1 --gpus-per-node=1 --output=scaling-%a.out \
  "$jobs/scaling.sbatch" "${train[@]}" --epochs 9 >sbatch.log 2>&1
status=$?
said=$("$LOCKSTEP" scaling runs/scaling-* 2>&1; cat sbatch.log scaling-*.out)
((status == 0)) && says '^1 +1 +24 +9 .* 100 %$' && says '^2 +2 +24 +9 '
verdict $? \
  'scaling.sbatch: a job array trains on 1, 2, ... ranks, and lockstep scaling compares the runs'

known=$(sbatch --help | grep -oE -- '--[a-z][a-z0-9-]+' | sort -u)
{ echo '#!/bin/bash'; sed 's/^/#SBATCH /' <<<"$known"; } >all.sbatch
run "$LOCKSTEP" lint all.sbatch
(($(wc -l <<<"$known") > 60)) && ! says 'has no option'
verdict $? "lint knows all of sbatch's options"
same=0
for option in --mem=1.5G --mem=16GB --time=4h --time=1-2:30 --signal=B:USR1@9 --signal=USR1@x \
    --nodes=x --nodes=1-2 \
  --ntasks=two --ntask=2 --gpus-per-node=1; do
  printf '%s\n' '#!/bin/bash' "#SBATCH $option" "trap : USR1" "srun lockstep train" >one.sbatch
  refused=0 named=0
  sbatch --test-only one.sbatch >/dev/null 2>&1 || refused=1
  [[ $("$LOCKSTEP" lint one.sbatch) == *'one.sbatch:2: error'* ]] && named=1
  ((refused == named)) || { said="$option: sbatch $refused, lint $named"; same=1; }
done
verdict $same 'lint finds an error in exactly those options that sbatch refuses'
