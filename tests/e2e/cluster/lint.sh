#!/bin/bash
# lockstep lint and lockstep scaling on files. tests/cluster/jobs/jobs_endings.sh compares lint with
# Slurm itself.
# waits
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"

for script in "$repo"/jobs/*.sbatch; do
  run "$LOCKSTEP" lint "$script"
  ((status == 0)) && says ': 0 errors, 0 warnings$'
  verdict $? "lint finds nothing in jobs/$(basename "$script")"
done

cat >bad.sbatch <<'END'
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=2
#SBATCH --time=12h
srun build/lockstep train --data.train "$DATA" --out runs/a
END
run "$LOCKSTEP" lint bad.sbatch "$repo/jobs/single-node.sbatch"
((status == 2)) && says '^bad.sbatch:2: error: 4 tasks on a node share 2 GPU' &&
  says '^bad.sbatch:3: error: "12h" is not a time limit' && says '^bad.sbatch: warning: no --mem' &&
  says '^bad.sbatch:4: warning: srun without --mpi' && says '^bad.sbatch: 2 errors, [0-9]+ warn'
verdict $? 'lint names file, line and remedy, and its status is 2 when there are errors'

run "$LOCKSTEP" lint --json bad.sbatch
((status == 2)) && [[ $(python3 -c '
import json, sys
report, = json.load(sys.stdin)
lines = [f["line"] for f in report["findings"] if f["severity"] == "error"]
print(report["file"], report["errors"], lines)' <<<"$said") == 'bad.sbatch 2 [2, 3]' ]]
verdict $? 'lint --json reports the same for programs'

# Slurms of other years: all that lint asks is the version of srun.
mkdir -p slurm
answers() {
  printf '#!/bin/sh\n%s\n' "$1" >slurm/srun && chmod +x slurm/srun
  PATH=$PWD/slurm:$PATH run "$LOCKSTEP" lint cores.sbatch
}
sed 's/ --cpus-per-task="$SLURM_CPUS_PER_TASK"//' "$repo/jobs/single-node.sbatch" >cores.sbatch
answers 'echo slurm 22.05.8' && ((status == 2)) && says 'error: srun .*becomes 1' &&
  answers 'echo slurm 24.11.5' && ((status == 0)) && says ': 0 errors, 0 warnings$' &&
  answers 'exit 1' && ((status == 0)) && says 'warning: srun .*there the'
verdict $? 'a srun without --cpus-per-task is wrong only where this machine has such a Slurm'

# What a user mistypes, in a script that is right otherwise.
good() {  # good LINE...: the script's lines after the directives
  printf '%s\n' '#!/bin/bash' '#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8' \
    '#SBATCH --mem=0 --time=12:00:00 --signal=B:USR1@120' "trap 'kill -USR1 \$step' USR1" "$@"
}
good 'srun --mpi=pmix --kill-on-bad-exit=1 -c8 build/lockstep train --model resnet51 --epoch 90 --batch-size 256 \' \
  '  --data-train x --optim.Lr 0.1 --epochs many --share-gpu &' 'step=$!' 'wait $step' \
  'exit $?' >typing.sbatch
run "$LOCKSTEP" lint typing.sbatch
((status == 2)) && says '^typing.sbatch: 6 error' && says ':5: error: .*resnet51.*resnet50' &&
  says "error: .*'epoch'.*epochs" && says "error: .*'batch-size'" &&
  says "error: .*'data-train'.*data.train" &&
  says "error: .*'optim.Lr'.*optim.lr" && says "error: .*'many'"
verdict $? "lint checks lockstep's options, values and models against its own keys"

good 'LAUNCH="srun --mpi=pmix --kill-on-bad-exit=1 -c8"' 'start() { $LAUNCH "$LOCKSTEP" "$@"; }' \
  'for lr in 1 2; do' '  start train --optim.lr $lr --out runs/one &' 'done' >loop.sbatch
run "$LOCKSTEP" lint loop.sbatch
((status == 2)) && says ':8: error: .*does not wait' && says ':8: error: .*in this folder'
verdict $? 'lint finds a start in a function, through a variable, in a loop'

good 'srun --mpi=pmix --kill-on-bad-exit=1 -c8 build/lockstep train --config x.toml --out runs/one || true' \
  'scontrol requeue $SLURM_JOB_ID' 'cat >x.toml <<END' '[optim]' 'rl = 0.1' 'END' \
  'cd nowhere' >more.sbatch
run "$LOCKSTEP" lint more.sbatch
((status == 2)) && says ':6: error: .*for ever' && says ':8: error: .*optim.rl' &&
  says ':11: error: .*no folder nowhere'
verdict $? \
  'lint finds an endless requeue, a bad key in a here-document, and a folder that is not there'

cat >most.sbatch <<'SCRIPT'
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8
#SBATCH --mem=0 --time=12:00:00 --signal=B:USR1@120
#SBATCH --array=0-3 --output=nowhere/%j.out
trap 'kill -USR1 $step' USR1
export CUDA_VISIBLE_DEVICES=0
rates=(0.1 0.2 0.3)
srun --mpi=pmix --kill-on-bad-exit=1 -c8 build/lockstep train --threads 9 \
  --data.train "$DATA" --optim.lr ${rates[$SLURM_ARRAY_TASK_ID]} --out runs/$SLURM_ARRAY_TASK_ID &
step=$!
wait $step
exit $?
SCRIPT
run "$LOCKSTEP" lint most.sbatch
((status == 2)) && says '^most.sbatch: 4 error' && says ':4: error: .*no folder nowhere' &&
  says ':4: error: .*rates has 3 values' &&
  says ':6: error: .*the 4 ranks of a node see 1 GPU' && says ':8: error: --threads 9 on the 8 core'
verdict $? 'lint finds a missing folder, an array that is too long, a GPU for all ranks, and more threads than cores'

# What such scripts are made of, all of it right.
mkdir logs
cat >right.sbatch <<'SCRIPT'
#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8
#SBATCH --mem=0 --time=12:00:00 --signal=B:USR1@120
#SBATCH --array=1-3%2
#SBATCH --requeue --open-mode=append
#SBATCH --output=logs/%x-%A-%a.out
# srun build/lockstep train --epoch 90 is only a comment
set -uo pipefail
module purge; module load openmpi/4.1 cuda/12
source ~/.bashrc
cd "$SLURM_SUBMIT_DIR"
mkdir -p scratch/work && cd scratch/work || exit 1
cd -
rates=(0.1 0.2 0.3)
rate=${rates[$((SLURM_ARRAY_TASK_ID - 1))]}
declare -A widths=([small]=1 [large]=2)
width=${widths[small]}
seeds=(
  1 2
  3 4  # more than the array has
)
seed=${seeds[$SLURM_ARRAY_TASK_ID]}
say() { echo "$(date +%T) $*"; }
say "rate $rate, width $width"
if [[ ! -d data/train ]]; then
  say "no data"
  exit 2
fi
export OMP_NUM_THREADS=1
CUDA_VISIBLE_DEVICES= nvidia-smi -L || true
cat >"runs/$SLURM_ARRAY_TASK_ID.toml" <<END
[optim]
lr = $rate
label-smoothing = 0.1
END
cat >notes.txt <<'END'
[this is = not TOML
cd nowhere
END
time_is_up() {
  kill -USR1 "$step"
}
trap time_is_up USR1
launcher=(srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK")
train() {
  "${launcher[@]}" "${LOCKSTEP:-build/lockstep}" train "$@" &
  step=$!
  wait "$step"
  status=$?
  while ((status == 138)); do
    wait "$step"
    status=$?
  done
}
for epochs in 10 90; do
  train --config "runs/$SLURM_ARRAY_TASK_ID.toml" --model resnet50 --data.train data/train \
    --epochs $epochs --threads 8 --batch=2048 --data.flip --preflight --seed "$seed" \
    --out "runs/$SLURM_ARRAY_TASK_ID" --resume auto
  ((status == 0)) || break
done
case $status in
  3 | 4) scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" ;;
esac
exit "$status"
SCRIPT
run "$LOCKSTEP" lint right.sbatch
((status == 0)) && says '^right.sbatch: 0 errors, 0 warnings$'
verdict $? 'lint finds nothing in a right script with arrays, here-documents, functions, loops, modules and a trap'

# What a training reads: seen from the folder in which lint runs.
mkdir -p configs
"$LOCKSTEP" pack --from shapes --out data/flowers --train-rows 200 --val-rows 8 --resize 32 \
  >pack.log || cat pack.log
printf '[data]\ntrain = "data/flowers/train"\nval = "data/flowers/vaal"\n' >configs/near.toml
printf '[optim]\nrl = 0.1\n' >configs/wrong.toml
started() { # started OPTION...: a script that starts a training with them, in its line 6
  good 'cd "$SLURM_SUBMIT_DIR"' \
    "srun --mpi=pmix --kill-on-bad-exit=1 -c8 build/lockstep train --out runs/\$SLURM_JOB_ID $* &" \
    'step=$!' 'wait $step' 'exit $?' >files.sbatch
  run "$LOCKSTEP" lint files.sbatch
}
started --data.train data/flowers/train --config configs/near.toml
((status == 2)) && says '^files.sbatch: 1 error, 0 warnings$' &&
  says '^files.sbatch:6: error: data/flowers/vaal: cannot be read: No such file' &&
  started --config configs/far.toml --data.train data/flowers/trian --init runs/old &&
  ((status == 2)) && says '^files.sbatch: 3 errors' &&
  says ': cannot read configs/far.toml: No such' &&
  says ': data/flowers/trian: cannot be read: No such' && says ': cannot read runs/old: No such' &&
  started --config configs/wrong.toml && ((status == 2)) &&
  says ':6: error: configs/wrong.toml, line 2: .*optim.rl' &&
  started --data.train data/flowers/train --data.val data/flowers/train && ((status == 0))
verdict $? 'lint finds a --config and data that are not there, and a wrong key in a --config'

started --config '"$HOME/x.toml"' --data.train '"$SLURM_SUBMIT_DIR/data/none"' '"$@"'
((status == 2)) && says '^files.sbatch: 1 error' && says 'data/none: cannot be read: No such' &&
  says ':6: note: not checked, because only the job knows it: .HOME/x.toml, .@ ' &&
  started --data.train '"$DATA"' && ((status == 0)) && says 'note: .*: .DATA ' &&
  says '^files.sbatch: 0 errors, 0 warnings$'
verdict $? 'lint says which files it could not check'

good 'build/lockstep pack "$TMPDIR/raw" --out data/made --resize 64' 'cp -r data/made moved' \
  'srun --mpi=pmix --kill-on-bad-exit=1 -c8 build/lockstep train --out runs/a --data.train data/made/train --data.val moved/val &' \
  'step=$!' 'wait $step' 'exit $?' >made.sbatch
run "$LOCKSTEP" lint made.sbatch
((status == 0)) && says ':7: note: not checked, .*: data/made/train, moved/val '
verdict $? 'lint takes nothing for missing that the script may make first'

run "$LOCKSTEP" lint absent.sbatch
((status == 2)) && says 'absent.sbatch: no such file' && mkdir folder &&
  run "$LOCKSTEP" lint folder
((status == 2)) && says 'folder: is a folder: name batch scripts'
verdict $? 'lint names what is missing or no file'

# A run's files as training leaves them: RANKS ranks on HOSTS hosts, steps of MS after slow first
# ones.
run_of() {  # run_of NAME RANKS HOSTS MS
  mkdir -p "$1"
  echo 'batch = 64' >"$1/config.toml"
  for ((i = 0; i < $2; i++)); do echo "{\"rank\": $i, \"host\": \"h$((i % $3))\"}"; done |
    paste -sd, | sed 's/.*/[&]/' >"$1/binding.json"
  for ((i = 1; i <= 20; i++)); do
    echo "{\"step\":$i,\"epoch\":1,\"loss\":1,\"lr\":1,\"data_ms\":0,"\
"\"forward_ms\":$((i < 3 ? 900 : $4 - 5)),"\
"\"backward_ms\":2,\"exposed_comm_ms\":2,\"update_ms\":1}"
  done >"$1/metrics.jsonl"
}
run_of four 4 2 16
run_of one 1 1 40
run "$LOCKSTEP" scaling four one
((status == 0)) && says '^1 +1 +64 +18 +40\.0 +2\.0 +1600 +1\.00 +100 %$' &&
  says '^4 +2 +64 +18 +16\.0 +2\.0 +4000 +2\.50 +62 %$'
verdict $? 'scaling compares runs with the one on the fewest ranks, and leaves out the warm-up'
head -n 1 one/metrics.jsonl >few && mv few one/metrics.jsonl
run "$LOCKSTEP" scaling four one
((status == 2)) && says 'one/metrics.jsonl: 1 step is too few'
verdict $? 'scaling names a run that is too short'
echo '[{"rank": 0}]' >one/binding.json
run "$LOCKSTEP" scaling four one
((status == 2)) && says 'one/binding.json: entry 1: it has no "host"'
verdict $? "scaling names files that another program wrote"
run "$LOCKSTEP" scaling four nowhere
((status == 2)) && says 'nowhere: there is no run'
verdict $? 'scaling names a missing run'
