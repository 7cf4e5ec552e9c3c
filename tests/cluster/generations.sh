#!/bin/bash
# Slurm starts a job anew on another node while its old processes, on a node that is cut off, train
# on and write into the same directory: the old start makes room for the new one.
source "$(dirname "$0")/../support/cluster.bash"
cluster 2 --conf SlurmdTimeout=6 --conf MessageTimeout=5
pack_small

cat >batch.sh <<END
#!/bin/bash
echo "start \${SLURM_RESTART_COUNT:-0} on \$(hostname)"
srun --mpi=pmix '$LOCKSTEP' train --data.train small/train --batch 16 --threads 1 --optim.lr 0.01 \
  --epochs 1000000 --checkpoint.every-epochs 0 --checkpoint.every-steps 40 --out run --resume auto
echo "ended on \$(hostname) with \$?"
END
sbatch -N1 -n2 --requeue --open-mode=append -o job.log batch.sh >sbatch.log 2>&1

wait_for() {  # wait_for SECONDS PATTERN: in the job's output
  local tenths
  for ((tenths = 0; tenths < $1 * 10; tenths++)); do
    said=$(tr -d '\0' <job.log 2>/dev/null)
    says "$2" && return
    sleep 0.1
  done
  return 1
}

wait_for 30 'first step done' && first=$(sed -n 's/^start 0 on //p' job.log)
sleep 1
mini cut "$first"
wait_for 90 'start 1 on' && wait_for 60 'going on from run/checkpoints/step-[0-9]+' &&
  wait_for 30 "was started anew on .* by job [0-9]+ while this start, generation 1, was still at work"
verdict $? 'the old start ends when it sees the new one, which goes on from its last checkpoint'

wait_for 10 "ended on $first with [1-9]"
from=$(sed -n 's/.*going on from run.checkpoints.step-0*\([0-9]*\).*/\1/p' job.log | tail -n 1)
for _ in $(seq 100); do
  newest=$(ls run/checkpoints/step-*.h5 | tail -n 1 | sed 's/.*step-0*\([0-9]*\).h5/\1/')
  ((newest > from + 80)) && break
  sleep 0.1
done
said="from $from, newest $newest
$(tr -d '\0' <job.log)"
((newest > from + 80)) && (($(tr -d '\0' <run/metrics.jsonl | grep -o '^{"step":[0-9]*,' | sort | uniq -d | wc -l) == 0))
verdict $? 'the new one alone writes from then on: no step stands twice in its metrics'
scancel -u root
mini mend "$first"
exit 0
