#!/bin/bash
# A job that loses a rank is requeued and resumes from its checkpoint, but not without end.
# seconds: 400
# ci
# waits for Slurm, which lets a requeued job wait
source "$(dirname "$0")/../../support/jobs.bash"
job_cluster 1

strike KILL 1 submit killed "${small[@]}" --epochs 60
killed=$id

# A rank that is killed, again and again, before the first checkpoint.
cat >killed-early <<'END'
#!/bin/bash
"$REAL" "$@" &
trap : TERM  # lockstep handles the signal itself
while ((SLURM_PROCID == 0)) && kill -0 $! 2>/dev/null; do
  (($(ls fatal/generations 2>/dev/null | wc -l) > ${SLURM_RESTART_COUNT:-0})) && kill -KILL $!
  sleep 0.2
done
wait $!
END
chmod +x killed-early
REAL=$LOCKSTEP LOCKSTEP=./killed-early submit fatal "$jobs/single-node.sbatch" "${train[@]}" \
  --epochs 100000 --checkpoint.every-epochs 0
fatal=$id

# A script that only calls mpirun, and does not requeue its job as the scripts in jobs/ do.
printf '%s\n' '#!/bin/bash' "mpirun --bind-to none -np 2 ./struck train ${train[*]} \
  --checkpoint.every-steps 20 --epochs 1000 --out broken" >broken.sh
strike KILL 1 submit broken --ntasks=2 broken.sh
broken=$id

# An srun that stays when its step is over, in the first start.
mkdir bin
cat >bin/srun <<'END'
#!/bin/bash
"$REAL_SRUN" "$@"
status=$?
((${SLURM_RESTART_COUNT:-0} > 0)) || [[ " $* " != *' train '* ]] || exec sleep infinity
exit "$status"
END
chmod +x bin/srun
for name in stays stays_resilient; do
  [[ $name == stays ]] && script=multi-node options=(--ntasks-per-node=2) ||
    script=resilient options=()
  REAL_SRUN=$(command -v srun) PATH=$PWD/bin:$PATH GONE_AFTER=3 RANKS=2 strike KILL 1 \
    submit $name --nodes=1 "${options[@]}" --cpus-per-task=1 --gpus-per-node=0 --mem=1000 \
    "$jobs/$script.sbatch" "${train[@]}" "${pace[@]}" --checkpoint.every-steps 20 --epochs 60
  printf -v "$name" %s "$id"
done

ends "$killed" killed 'a rank lost after a checkpoint' \
  'kill -9 (srun --kill-on-bad-exit=1)' COMPLETED 0:0 1 &&
  says 'resuming from killed/checkpoints' && steps_are killed 600
verdict $? 'a job that loses a rank is requeued, and resumes from its checkpoint: no step is missing or done twice'

ends "$fatal" fatal 'a rank lost in each start, before any checkpoint' 'kill -9' FAILED '*' 2 &&
  says 'was started twice from step 0'
verdict $? 'a job that loses a rank is requeued, and after two starts without progress it is FAILED'

ends "$broken" broken 'a rank of mpirun lost' \
  'kill -9, a script that only calls mpirun' FAILED 137:0 0
verdict $? "mpirun's status for a killed rank makes a job FAILED"

ends "$stays" stays 'srun stays after a rank is lost, multi-node.sbatch' \
  'an srun that does not return' COMPLETED 0:0 1 &&
  says 'the run has ended, and srun has not' && says 'resuming from stays/checkpoints' &&
  steps_are stays 600
verdict $? 'multi-node.sbatch: an srun that stays when the run has ended is killed, and the job is requeued and resumes'

ends "$stays_resilient" stays_resilient 'the same, resilient.sbatch' \
  'an srun that does not return' COMPLETED 0:0 0 &&
  says 'the run has ended, and srun has not' &&
  says 'resuming from stays_resilient/checkpoints' && steps_are stays_resilient 600
verdict $? 'resilient.sbatch: an srun that stays when the run has ended is killed, and the next start resumes'
