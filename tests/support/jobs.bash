# What scripts share that submit jobs/*.sbatch, unchanged, to the mini cluster. They source it and
# start the cluster by `job_cluster N`; then they run in its shell, next to a small data set.
source "$(dirname "${BASH_SOURCE[0]}")/cluster.bash"
jobs=$(realpath "$support/../../jobs")
train=(--data.train small/train --threads 1 --optim.lr 0.01 --audit.every-steps 0 --batch 24)
# What is tested is how jobs end and start, so steps only wait; in make test-all they compute.
pace=(--backend clock --clock.step-ms 20)
! nightly || pace=()
# Two ranks on one node: what most jobs are.
small=(--ntasks-per-node=2 --cpus-per-task=1 "$jobs/single-node.sbatch" "${train[@]}" "${pace[@]}" \
  --checkpoint.every-steps 20)

job_cluster() {
  cluster "$1" --cpus 96 --gpus-per-node 12 --mem 256000 --conf SlurmdTimeout=120 --conf KillWait=8
  pack_small
  export LOCKSTEP
  make_struck
}

# make_struck: what strike() starts. It is written before any job: a script that is open for writing
# cannot be started.
make_struck() {
  cat >struck <<'END_OF_SCRIPT'
#!/bin/bash
if ((${SLURM_RESTART_COUNT:-0} == 0)) &&
    [[ $STRIKES == *" ${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID} "* ]]; then
  (until compgen -G "$RUN/checkpoints/step-*.h5" >/dev/null; do sleep 0.05; done
    while kill "-$STRIKE" $$; do sleep 0.1; done) 2>/dev/null &
fi
exec "$REAL" "$@"
END_OF_SCRIPT
  chmod +x struck
}

# submit NAME OPTION... SCRIPT ARGUMENT...: its number in `id`, its output in NAME.out, its run in
# NAME.
submit() { id=$(RUN=$1 sbatch --parsable --output="$1.out" "${@:2}"); }

# look_at ID: `shown` is what Slurm says of the job; asked again when slurmctld is too busy.
look_at() {
  local tries
  for ((tries = 0; tries < 30; ++tries)); do
    shown=$(scontrol show job "$1" 2>/dev/null) && return
    nap 0.1
  done
}
# shown_field NAME: the first value of this name in `shown`.
shown_field() { [[ $shown =~ $1=([^[:space:]]*) ]] && echo "${BASH_REMATCH[1]}"; }
field() {  # field ID NAME
  local shown
  look_at "$1"
  shown_field "$2"
}
state() { field "$1" JobState; }
ended() {
  local shown
  look_at "$1"
  [[ $shown =~ JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)[[:space:]] ]]
}
# saw NAME PATTERN: in its output
saw() { tr '\r' '\n' <"$1.out" 2>/dev/null | grep -aE -- "$2" >/dev/null; }
has_checkpoint() { compgen -G "$1/checkpoints/step-*.h5" >/dev/null; }
steps() { grep -ao '^{"step":[0-9]*' "$1/metrics.jsonl" 2>/dev/null | cut -d: -f2; }
more_than() { (($(steps "$1" | wc -l) > $2)); }  # more_than NAME STEPS: it has done more
steps_are() { [[ $(steps "$1") == "$(seq "$2")" ]]; }  # each from 1 to the last, once

# judged ID NAME: what is shown when the law does not hold.
judged() {
  local shown
  look_at "$1"
  said="job $1: $(shown_field JobState), exit code $(shown_field ExitCode), "
  said+="$(shown_field Restarts) restart(s)
$(tr '\r' '\n' <"$2.out" | grep -av '^epoch')"
}

# ends ID NAME WHAT HOW STATE EXIT_CODE RESTARTS: within its time the job ends like that (patterns).
# Prints a line of the table of endings, which is the lines with | of these scripts' logs.
ends() {
  local shown got
  happens 2400 ended "$1"
  judged "$1" "$2"
  look_at "$1"
  got=("$(shown_field JobState)" "$(shown_field ExitCode)" "$(shown_field Restarts)")
  printf '| %s | %s | %s | %s | %s |\n' "$3" "$4" "${got[@]}"
  [[ ${got[0]} == $5 && ${got[1]} == $6 && ${got[2]} == $7 ]]
}

# strike SIGNAL RANKS SUBMIT...: submits a job whose ranks get this signal, KILL or STOP, in its
# first start, when there is a checkpoint. Again and again: Slurm lets stopped processes continue.
strike() {
  STRIKE=$1 STRIKES=" $2 " REAL=$LOCKSTEP LOCKSTEP=./struck "${@:3}"
}
