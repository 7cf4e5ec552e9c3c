#!/bin/bash
# lockstep lint on the commands of lockstep in a script: it says what each of them would say itself.
# computes
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"

"$LOCKSTEP" pack --from shapes --out data --train-rows 40 --val-rows 8 --resize 8 >pack.log ||
  cat pack.log
tiny=(--data.train data/train --model resnet20 --epochs 1)
"$LOCKSTEP" train "${tiny[@]}" --batch 20 --out runs/a >train.log 2>&1 || cat train.log

# script RANKS WORD...: a sound script, but for the command of lockstep that RANKS ranks run.
script() {
  local ranks=$1 alone=--kill-on-bad-exit=1
  shift
  [[ $1 != predict && $1 != serve ]] || alone=
  printf '%s\n' '#!/bin/bash' "#SBATCH --nodes=1 --ntasks-per-node=$ranks --cpus-per-task=8" \
    '#SBATCH --mem=0 --time=12:00:00 --signal=B:USR1@120' "trap 'kill -USR1 \$step' USR1" \
    "srun --mpi=pmix $alone -c8 build/lockstep $* &" 'step=$!' 'wait $step' 'exit $?'
}

judged='' differs=''
# refused RANKS WORD...: the program refuses the command, and lint says so in the same words, and
# nothing else.
refused() {
  local ranks=$1 why
  shift
  script "$ranks" "$@" >one.sbatch
  if ((ranks == 1)); then run "$LOCKSTEP" "$@"; else run ranks "$ranks" "$LOCKSTEP" "$@"; fi
  why=$(sed -n 's/^.*error: //p' <<<"$said" | head -n 1)
  [[ $why ]] && ((status != 0)) || differs+="not refused ($status): $*"$'\n'
  run "$LOCKSTEP" lint one.sbatch
  [[ $said == "one.sbatch:5: error: $why [lockstep]"*"one.sbatch: 1 error, "* ]] ||
    differs+="$* ends with: $why"$'\n'"lint: $said"$'\n'
  judged+=x
}
files() { find data runs -printf '%p %T@ %s\n' | sort; }
files >before
to=(--out runs/b)
refused 1 train --epochs 2 "${to[@]}"
refused 1 trian "${tiny[@]}"
refused 1 train "${tiny[@]}" "${to[@]}" --recipe nosuch
refused 2 train "${tiny[@]}" "${to[@]}" --batch 20 --comm.wire int8 --sync.every 8
refused 1 train "${tiny[@]}" "${to[@]}" --batch 20 --optim.beta2 0.9
refused 2 train "${tiny[@]}" "${to[@]}" --batch 20 --batch-per-rank 3
refused 1 train "${tiny[@]}" "${to[@]}" --batch 20 --optim.decay step
refused 1 train "${tiny[@]}" "${to[@]}" --batch 20 --optim.warmup-epochs 50
refused 4 train "${tiny[@]}" "${to[@]}" --batch 2
refused 1 train "${tiny[@]}" "${to[@]}" --seed 1 --seed 2
refused 1 train "${tiny[@]}" "${to[@]}" --resume nosuch.h5
refused 1 train "${tiny[@]}" --batch 20 --out /proc/x
refused 1 train "${tiny[@]}" --batch 20 --out runs/a
refused 1 train "${tiny[@]}" "${to[@]}" --precision fp8
refused 1 train "${tiny[@]}" "${to[@]}" --learning-rate 0.1
refused 1 train "${tiny[@]}" "${to[@]}" --batch 20 --data.pad 8
refused 1 train "${tiny[@]}" "${to[@]}" --batch 20 --init data/train
refused 1 train --data.train data/trian "${to[@]}"
refused 1 train "${tiny[@]}" "${to[@]}" --config nosuch.toml
refused 1 eval runs/nosuch
refused 1 eval runs/a --precision fp99
refused 1 eval runs/a --data data/nosuch
refused 1 resume runs/nosuch
refused 1 resume runs/a --recipe cifar10-he
refused 1 predict runs/a data
refused 1 predict runs/a --out p
refused 1 serve runs/nosuch
refused 1 serve runs/a --tls-cert x.pem
refused 1 pack nosuch --out made
refused 1 pack data --out made --jpeg --resize 8
refused 1 scaling run st/nosuch
refused 1 scaling fit st/nosuch
refused 1 resume runs/a --optim.rule lamb
refused 1 preflight --layers
refused 1 scaling plan --ranks 1,2 --out data --batch 64
refused 1 simulate --machine nosuch.toml
refused 1 export runs/nosuch --to x.onnx
refused 1 why runs/nosuch
refused 1 bench train --model resnet51
refused 2 bench comm --verb all-reduce --verb all-gether
refused 1 bench comm --verb all-reduce
refused 1 pack --from shapes --train-rows 40 --val-rows 8 --resize 8 --out data
refused 1 resume runs/a --epochs 2 --model resnet56
said=$differs$(diff before <(files) && echo "${#judged} commands")
[[ $said == '43 commands' && ! -e made && ! -e p ]]
verdict $? 'lint says of each command that lockstep refuses what lockstep says'

# sound RANKS WORD...: lint finds nothing in it.
differs=''
sound() {
  script "$@" >one.sbatch
  run "$LOCKSTEP" lint one.sbatch
  ((status == 0)) && says '^one.sbatch: 0 errors, 0 warnings$' || differs+="$* : $said"$'\n'
}
sound 4 train "${tiny[@]}" "${to[@]}" --batch 20 --optim.rule lamb --optim.beta2 0.9
sound 4 train "${tiny[@]}" --batch '"$BATCH"' --optim.decay step --optim.milestones '"$EPOCHS"'
sound 4 train "${tiny[@]}" --optim.rule '"$RULE"' --optim.beta2 0.9 --out 'runs/$SLURM_JOB_ID'
sound 2 train --data.train '"$DATA/train"' "${to[@]}" --comm.wire int8
sound 4 train "${to[@]}" --optim.beta2 0.9 '"$@"'
sound 4 train --recipe '"$RECIPE"' --data.train data --out 'runs/$SLURM_JOB_ID' --resume auto
sound 1 resume runs/a --epochs 3
sound 1 resume '"$RUN"' --epochs 3
sound 2 eval runs/a --data data/val --batch '"$BATCH"' '>eval.log' '2>&1'
sound 2 predict runs/a data/val --out p --csv --precision bf16
sound 1 serve runs/a other=runs/a --port '"$PORT"' --token-file '"$HOME/token"'
sound 1 pack '"$TMPDIR"' --out made --resize 32
sound 1 bench train --model resnet50 --batch 64 --steps 5
said=$differs
[[ ! $differs ]]
verdict $? 'lint finds nothing in sound commands, with variables and without'

# What an earlier command of the script makes is there when a later one needs it.
script 1 train "${tiny[@]}" "${to[@]}" --batch 20 | sed 's/^exit/& /;$d' >made.sbatch
printf '%s\n' 'srun --mpi=pmix --kill-on-bad-exit=1 -c8 build/lockstep eval runs/b --data data/val >log 2>&1' \
  'status=$?' 'build/lockstep export runs/b --to b.onnx' 'exit $status' >>made.sbatch
run "$LOCKSTEP" lint made.sbatch
((status == 0)) && says ':8: note: not checked, .*: runs/b ' && says '0 errors'
verdict $? "lint takes an earlier training's run for one that will be there"

printf '%s\n' '#!/bin/bash' '#SBATCH --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --mem=0' \
  '#SBATCH --time=12:00:00 --signal=B:USR1@120' "trap 'kill -USR1 \$step' USR1" \
  'srun --mpi=pmix --kill-on-bad-exit=1 build/lockstep train --data.train data/train \ ' \
  '  --batch 20 --out runs/$SLURM_JOB_ID' 'exit $?' >shell.sbatch
run "$LOCKSTEP" lint shell.sbatch
((status == 2)) && says ': 2 errors, 0 warnings$' && says ':5: error: a blank follows the back' &&
  says ':5: error: the trap for USR1 runs only when this has ended' &&
  sed -i 's/\\ $/\\/; s/JOB_ID$/& \&/; s/^exit/step=$!; wait $step; exit/' shell.sbatch &&
  run "$LOCKSTEP" lint shell.sbatch && ((status == 0)) && says ': 0 errors, 0 warnings$' &&
  sed -i 's/$/\r/' shell.sbatch && { run "$LOCKSTEP" lint shell.sbatch; ((status == 2)); } &&
  says ':1: error: the script has DOS line ends' && says ': 1 error, 0 warnings$'
verdict $? 'lint finds a blank after a backslash, a trap that srun delays, and DOS line ends'

sed 's/\r$//; s/srun .*1 build/torchrun --nproc-per-node 2 build/' shell.sbatch >other.sbatch
run "$LOCKSTEP" lint other.sbatch
((status == 2)) && says ':5: error: torchrun tells .* start ranks by srun or mpirun' &&
  ! says 'no start of lockstep'
verdict $? 'lint names a launcher that is not one of lockstep'
