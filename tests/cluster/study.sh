#!/bin/bash
# A scaling study on the clock backend, as a job array: from one sbatch to the report.
# nightly
# waits for Slurm
source "$(dirname "$0")/../support/cluster.bash"
cluster 2 --cpus 8 --mem 8000
export LOCKSTEP
"$LOCKSTEP" pack --from shapes --out shapes --train-rows 600 --val-rows 60 --resize 8 >pack.log 2>&1

run "$LOCKSTEP" scaling plan --out clock --ranks 2,4,8 --ranks-per-node 4 --batch 64 \
  --batch-per-rank 8 \
  --backend clock --clock.row-ms 2 --clock.step-ms 20 --repetitions 1 --steps 8 --warm-up 2 \
  --threads 1 \
  --data.train shapes/train --array
((status == 0)) && sbatch -W -o 'study-%a.out' clock/study.sbatch >sbatch.log 2>&1
verdict $? 'the job array of a study on the clock backend ends well'

run cat study-*.out
says '0 still missing' && says '^c +[12]\.[0-9]* ms' && [[ -s clock/report.html &&
  -s clock/rate.svg ]] &&
  (($(ls clock/points | grep -c '^synthetic.*json$') == 6 &&
    $(ls -d clock/points/real-* | wc -l) == 6))
verdict $? 'its last task writes the report, with the pace of the clock as c'
