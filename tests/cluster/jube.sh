#!/bin/bash
# lockstep's benchmark by JUBE on a cluster: by srun in an allocation, and each configuration as a
# job; a rank that is killed is an error in both. ReFrame's check by srun, in the same allocation.
# waits for Slurm
# ci
root=$PWD
source "$(dirname "$0")/../support/cluster.bash"
source "$root/tests/support/clients/clients.bash"
command -v jube >/dev/null || skip_all 'jube is not here (jobs/setup.sh test)'
cluster 2 --cpus 4 --mem 8000
export LOCKSTEP
# study NAME TAG...: as a user starts it; `said` is its summary and table.
study() {
  run jube run --hide-animation "$root/jobs/jube/lockstep.xml" -o "$1" -t "${@:2}"
  said+=$'\n'$(jube result "$1" 2>&1)
  [[ -e $1/000000/result/csv.dat ]]
}
shows() { python3 "$support/benchmark.py" jube "$1/000000/result/csv.dat" "$1/000000" "$2"; }

# The allocation ends with the script.
salloc --quiet -N2 --ntasks-per-node=2 --no-shell --job-name=bench 2>salloc.log
SLURM_JOB_ID=$(squeue --noheader --name=bench --format=%A)
export SLURM_JOB_ID SLURM_NNODES=2
study srun srun && says 'train \| +3 \| +0 \| +0 \| +0 \| +3 ' && shows srun 1,2,4 &&
  says '\| +4 \| +2 \| +64 \|'
verdict $? 'JUBE shows what lockstep measured by srun on two nodes'

cat >killed <<'END'
#!/bin/bash
if [[ $SLURM_PROCID == 1 && $SLURM_NTASKS == 4 ]]; then
  (until grep -qs 'computing on' stdout job.out; do sleep 0.05; done; kill -KILL $$) 2>/dev/null &
fi
exec "$REAL" "$@"
END
chmod +x killed
REAL=$LOCKSTEP LOCKSTEP=./killed study lost srun
says 'train \| +3 \| +0 \| +0 \| +1 \| +2 ' && shows lost 1,2 &&
  grep -q 'Killed' lost/000000/000002_train/work/stderr
verdict $? 'a rank that was killed on a node is an error of JUBE, whose row has no figure'

if "$python" -c 'import reframe' 2>/dev/null; then
  run "$python" -c 'from reframe.frontend.cli import main; main()' \
    -C "$root/jobs/reframe/settings.py" -c "$root/jobs/reframe/lockstep_check.py" \
    --system=allocation --keep-stage-files --report-file=report.json -n 'LockstepTrain%ranks=4' -r
  ((status == 0)) && python3 "$support/benchmark.py" reframe report.json stage 4
  verdict $? 'ReFrame reports what lockstep measured by srun on two nodes'
else
  echo "SKIP ReFrame reports what lockstep measured by srun: $python lacks it (make test-clients)"
fi
scancel "$SLURM_JOB_ID"
unset SLURM_JOB_ID SLURM_NNODES

REAL=$LOCKSTEP LOCKSTEP=$PWD/killed study jobs sbatch
says 'train \| +3 \| +0 \| +0 \| +1 \| +2 ' && shows jobs 1,2
verdict $? 'JUBE awaits a job for each configuration; one in which a rank was killed is an error'
