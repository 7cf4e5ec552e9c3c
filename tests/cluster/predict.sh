#!/bin/bash
# jobs/predict.sbatch: tasks of an array on several nodes predict one data set; some of them are
# killed. Nodes have separate process numbers, so a lost worker is noticed by its heartbeat.
# waits for Slurm
source "$(dirname "$0")/../support/cluster.bash"
jobs=$(realpath "$support/../../jobs")
cluster 3 --cpus 4 --mem 8000
export LOCKSTEP
"$LOCKSTEP" pack --from shapes --out set --train-rows 200 --val-rows 4000 >pack.log || cat pack.log
"$LOCKSTEP" train --data.train set/train --model resnet44 --batch 50 --epochs 1 --threads 2 \
  --out run >run.log 2>&1 || cat run.log
how=(run set/val --batch 32 --piece-rows 64 --threads 1 --csv)
run "$LOCKSTEP" predict "${how[@]}" --out one
verdict $status 'one worker predicts all rows'

pieces() { find "$1/parts" -name 'part-*.h5' 2>/dev/null | wc -l; }
has_pieces() { (($(pieces "$1") >= $2)); }
# workers: the numbers of the array's workers in this shell.
workers() {
  local pid
  for pid in $(pgrep -f 'lockstep predict run .*--out many'); do
    [[ $(readlink "/proc/$pid/exe") != "$LOCKSTEP" ]] || echo "$pid"
  done
}
some_work() { mapfile -t found < <(workers) && ((${#found[@]} >= 4)); }
ended() { [[ ! $(squeue --noheader --job "$id" 2>/dev/null) ]]; }

id=$(sbatch --parsable --array=0-5 --gpus-per-node=0 --cpus-per-task=1 --mem=1000 \
  --output=task-%a.out "$jobs/predict.sbatch" "${how[@]}" --out many --stale-s 3)
until_it 1200 some_work
until_it 600 has_pieces many 4
kill -KILL "${found[0]}" "${found[2]}"
at_the_kill=$(pieces many)
happens 1800 ended
said=$(cat task-*.out)
((at_the_kill < 63)) && cmp one/predictions.h5 many/predictions.h5 &&
  cmp one/predictions.csv many/predictions.csv
verdict $? 'an array of workers gives the bits of one, though two of them are killed'

# A program in its place: of three tasks the last, whose number is the array's, is asked to end.
cat >task.sh <<'END'
#!/bin/bash
echo began >>"ran-$SLURM_ARRAY_TASK_ID"
trap 'exit 3' TERM
while [[ ! -e over ]]; do sleep 0.2; done
END
chmod +x task.sh
all_began() { (($(cat ran-? 2>/dev/null | wc -l) == 3)); }
states() { squeue -h -j "$1" -o %T | paste -sd' '; }
waits_again() { [[ $(states "${id}_2") == PENDING ]]; }
id=$(LOCKSTEP=./task.sh sbatch --parsable --array=0-2 --gpus-per-node=0 --cpus-per-task=1 \
  --mem=100 --output=asked-%a.out "$jobs/predict.sbatch")
until_it 600 all_began
scancel --signal=TERM "${id}_2"
happens 600 waits_again
others="$(states "${id}_0") $(states "${id}_1")"
scancel "${id}_2"
touch over
happens 600 ended
said="$others; $(cat ran-? asked-?.out)"
[[ $others == 'RUNNING RUNNING' ]] && all_began
verdict $? "an array's last task that is requeued is requeued alone"

id=$(sbatch --parsable --nodes=2 --array=0 --ntasks=4 --gpus-per-node=0 --cpus-per-task=1 \
  --mem=4000 --output=step.out "$jobs/predict.sbatch" "${how[@]}" --out step)
happens 1800 ended
said=$(cat step.out)
cmp one/predictions.h5 step/predictions.h5 && (($(grep -c 'rows in 63 pieces' step.out) == 1))
verdict $? 'so do the tasks of one step, of which one speaks'
