#!/bin/bash
# jobs/search.sbatch: an array of workers on two nodes, each with two trials next to each other; one
# worker is killed, and one task is told to stop and is requeued.
# waits for Slurm
source "$(dirname "$0")/../support/cluster.bash"
jobs=$(realpath "$support/../../jobs")
cluster 2 --cpus 4 --mem 8000
export LOCKSTEP
pack_small
cat >space.toml <<'TOML'
[optim.lr]
low = 0.003
high = 3
log = true
TOML
train=(--data.train small/train --data.val small/val --threads 1 --batch 48 --epochs 9
  --model resnet20 --model-options.width 16)
plan() {
  run "$LOCKSTEP" search plan space.toml --out "$1" --trials "$2" --mode sync \
    --ranks-per-node 2 "${train[@]}" && ((status == 0)) || stop_here
}
table() { "$LOCKSTEP" search show "$1"; }
ended() { [[ ! $(squeue --noheader --job "$id" 2>/dev/null) ]]; }
has_results() { (($(ls "$1/results" | wc -l) >= $2)); }
submit() {
  sbatch --parsable --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --mem=2000 \
    --output=task-%a.out "$@"
}

plan one 27
"$LOCKSTEP" search run one --slots 2 >one.log 2>&1 || cat one.log

plan many 27
id=$(submit --array=1-3 "$jobs/search.sbatch" many --slots auto --stale-s 5)
happens 1800 ended
said=$(cat task-*.out)
says 'nothing is left' && [[ $(table many) == "$(table one)" ]] &&
  [[ ! $(ls many/attempts) ]]
verdict $? 'the workers of an array find the table of one worker, byte for byte'

# In the batch script's node each worker has two steps at once.
side_by_side() { (($(squeue --noheader --steps --job "$id" 2>/dev/null | grep -vc batch) >= 2)); }
plan struck 100
id=$(submit --array=1-3 "$jobs/search.sbatch" struck --slots auto --stale-s 5)
happens 600 side_by_side
verdict $? 'a worker trains two trials next to each other, each in a step of its job'
until_it 900 has_results struck 10
# workers: the numbers of the first task's worker in this shell.
workers() {
  local pid
  for pid in $(pgrep -f 'lockstep search run struck'); do
    [[ $(readlink "/proc/$pid/exe") == "$LOCKSTEP" ]] &&
      grep -zqx SLURM_ARRAY_TASK_ID=1 "/proc/$pid/environ" && echo "$pid"
  done
}
mapfile -t found < <(workers)
kill -KILL "${found[0]}"
scancel --batch --signal=USR1 "${id}_2"
restarts() { scontrol show job "${id}_$1" | sed -n 's/.* Restarts=\([0-9]*\).*/\1/p'; }
requeued() { (($(restarts 2) == 1)); }
happens 600 requeued
others="$(restarts 1) $(restarts 3)"
said="restarts of tasks 1 and 3: $others"
[[ $others == '0 0' ]]
verdict $? 'a task that is told to stop is requeued, and the others are not'
happens 3000 ended
said=$(cat task-*.out; ls struck/claims 2>/dev/null)
run "$LOCKSTEP" search run struck --slots 2
((status == 0)) && says 'nothing is left' && plan again 100 &&
  "$LOCKSTEP" search run again --slots 2 >again.log 2>&1 &&
  [[ $(table struck) == "$(table again)" ]]
verdict $? 'of a search whose workers were killed and requeued no trial is lost'
