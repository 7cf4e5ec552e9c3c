#!/bin/bash
# The command line and the launcher's variables are taken as they were meant, or the error names
# what is wrong: with status 2, before anything is written.
# waits for ranks to start
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
data=(--data.train small/train --threads 1)

# refused NAME PATTERN COMMAND...
refused() {
  run "${@:3}"
  ((status == 2)) && says "$2" && [[ ! -e run ]]
  verdict $? "$1"
}
train=("$LOCKSTEP" train --out run)

# ---- values --------------------------------------------------------------------------------------
# resolves NAME PATTERN OPTION...: trains; then two lines of the saved configuration match PATTERN.
resolves() {
  run "${train[@]}" "${data[@]}" --batch 125 "${@:3}"
  ((status == 0)) && [[ $(grep -Ec -- "$2" run/config.toml) == 2 ]]
  verdict $? "$1"
  rm -rf run
}
resolves '--key= sets an empty text and does not take the next word' '^(val = ""|epochs = 1)$' \
  --data.val= --epochs 1
resolves "--key '' sets an empty text and does not take the next word" '^(val = ""|epochs = 1)$' \
  --data.val '' --epochs 1
resolves 'a bare switch is true and does not take the next word' '^(flip = true|epochs = 1)$' \
  --data.flip --epochs 1
resolves 'a switch takes false after = or a space' '^(flip|keep-last) = false$' --epochs 1 \
  --data.flip=false --data.keep-last false
printf 'epochs = 7\n[data]\nflip = true\n' >file.toml
resolves 'the command line takes precedence over the file' '^(epochs = 1|flip = true)$' \
  --config file.toml \
  --epochs=1
refused 'an empty number is an error that names the key' "epochs: '' is not a whole number" \
  "${train[@]}" "${data[@]}" --epochs= --batch 125
refused 'an empty switch is an error that names the key' "data.flip: '' is neither true nor false" \
  "${train[@]}" "${data[@]}" --data.flip= --epochs 1
refused 'a negative count is an error that names the key' "epochs: '-1' is not a whole number" \
  "${train[@]}" "${data[@]}" --epochs=-1
refused 'a number followed by junk is an error that names the key' \
  "optim.lr: '0.1x' is not a number" \
  "${train[@]}" "${data[@]}" --optim.lr 0.1x
refused 'a configuration file without a name is an error' 'config names no file' \
  "${train[@]}" --config=

# refuses_count OPTION VALUE RANGE COMMAND...: the command ends at once, naming the option.
refuses_count() {
  refused "${*:4} $1 $2 is an error" "error: $1: '$2' is not a whole number from $3\$" \
    timeout 20 "$LOCKSTEP" "${@:4}" "$1" "$2"
}
refuses_count --threads -1 '0 to 1024' topo
refuses_count --ranks-per-node 0 '1 to 1024' topo
refuses_count --ranks-per-node 1000000 '1 to 1024' topo
refuses_count --threads -1 '0 to 1024' eval none.h5 --data small/val
refuses_count --warm-up -8 '0 to [0-9]+' bench train
refuses_count --steps -1 '1 to [0-9]+' bench train
refuses_count --val-rows -1 '0 to [0-9]+' pack --from shapes --out run
refuses_count --rows-per-shard 0 '1 to [0-9]+' pack --from shapes --out run
refuses_count --seed -1 '0 on' pack --from shapes --out run
refused 'bench data takes no other number of slots than train' \
  'data.slots = 1025: must lie between 1 and 1024' \
  "$LOCKSTEP" bench data small/train --data.slots 1025
refused 'nor one below zero' "data.slots: '-1' is not a whole number" \
  "$LOCKSTEP" bench data small/train --data.slots -1
refused 'other commands check a key of the configuration just as strictly' \
  "data.flip: '1x' is neither" \
  "$LOCKSTEP" bench data small/train --data.flip 1x
refused 'also where they ask about a GPU that is not here' "batch: '-8' is not a whole number" \
  "$LOCKSTEP" preflight --gpu-profile none.json --batch=-8
refused 'and options of runs have no effect on a benchmark' '--trace has no effect here' \
  "$LOCKSTEP" bench train --trace 1:2
within_20_s() { (ulimit -t 20 && exec "$@"); }  # of computing: the machine may be busy
run within_20_s "$LOCKSTEP" topo --ranks-per-node 1024 --threads 16 --json
((status == 0)) && [[ $(grep -c '"local_rank"' <<<"$said") == 1024 ]]
verdict $? 'topo plans the largest number of ranks within seconds'

# ---- names ---------------------------------------------------------------------------------------
refused 'an unknown key is named, with a similar key' \
  "unknown key 'optim.lrr'; did you mean 'optim.lr'" "${train[@]}" "${data[@]}" --optim.lrr=3
refused 'a word that belongs to no option is named' "'stray' was not expected" \
  "${train[@]}" "${data[@]}" stray
refused 'a key given twice is named' 'model: takes one value, and is given 2' \
  "${train[@]}" --model resnet20 --model resnet32
refused 'an unknown command is named' 'trian' "$LOCKSTEP" trian
refused 'without a command the commands are listed' 'Commands:' "$LOCKSTEP"

# ---- saved and read back -------------------------------------------------------------------------
out=$'new\nline "\x01"'
run "$LOCKSTEP" train --out "$out" "${data[@]}" --epochs 1 --batch 125
((status == 0)) && run "$LOCKSTEP" train --config "$out/config.toml" --resume auto --epochs 2 &&
  ((status == 0)) && run "$LOCKSTEP" eval "$out/checkpoints/step-00000004.h5" --data small/val &&
  ((status == 0)) && says '^53 rows: loss'
verdict $? 'a run whose name has control characters can be resumed and evaluated'

went=(train --out gone --epochs 1 "${data[@]}" --batch 50)
run "$LOCKSTEP" "${went[@]}" --stop-after 3
((status == 3)) && says 'stopped after step 3 as stop-after asked'
verdict $? 'a run stops after the step that was asked for'
refused 'stopping after a step that has already passed is an error' \
  'stop-after = 2, but .*step-00000003.h5 resumes after step 3' \
  "$LOCKSTEP" "${went[@]}" --resume auto --stop-after 2
run "$LOCKSTEP" "${went[@]}" --resume auto --optim.lr 0.03 && run "$LOCKSTEP" info gone
((status == 0)) && says '^resumed after step 3 with .*: optim.lr \(0.1, now 0.03\)' &&
  says '^run gone: finished, 5 steps' &&
  without_times gone | sed -n 4p | grep -Fx '{"resumed_from_step":3,"kind":"resume","changes":["optim.lr (0.1, now 0.03)"]}' >/dev/null
verdict $? 'a run that resumes with another value of a key says from which step'

# ---- metrics with lines that another program wrote -----------------------------------------------
cp gone/metrics.jsonl whole.jsonl
printf '%s\n' '{"epoch":1,"last_step":5}' '{"step":"x"}' '[1]' 'text' '' \
  '{"resumed_from_step":1,"changes":[2]}' \
  >gone/metrics.jsonl
cat whole.jsonl >>gone/metrics.jsonl
printf '{"step":7,' >>gone/metrics.jsonl
run "$LOCKSTEP" info gone
((status == 0)) && says '5 steps' && says '^  epoch 1: loss' &&
  says 'gone/metrics.jsonl: 6 lines are not records of lockstep; the first is line 1: it has no "train_loss"$'
verdict $? "lines of metrics that are not lockstep's are counted and skipped"
printf '%s\n' '{"epoch":1,"last_step":5,"train_loss":null,"train_top1":null}' >gone/metrics.jsonl
run "$LOCKSTEP" info gone
((status == 0)) && says '^  epoch 1: loss no number, top-1 no number$'
verdict $? 'a mean that was not a number is shown as such'
rm gone/metrics.jsonl
run "$LOCKSTEP" info gone
((status == 0)) && says '^run gone: finished, 5 steps'
verdict $? 'a run without metrics is described by its summary'
cp -r gone cut && rm cut/config.toml && echo '{"status":' >cut/summary.json
run "$LOCKSTEP" info cut
((status == 0)) && says 'warning: .*cut/summary.json' && says 'cut/config.toml is missing' &&
  says '^run cut: not finished' && says '^checkpoints: step-00000005.h5'
verdict $? 'a run without its configuration, and with half a summary, is described by the rest'

# ---- a product that cannot be printed ------------------------------------------------------------
unprinted() { "$LOCKSTEP" "$@" >/dev/full 2>said; (($? == 1)) &&
  grep -q '^error: the standard output cannot be written: No space left' said; }
unprinted info gone && unprinted info --json gone && unprinted why gone && unprinted topo &&
  unprinted report gone --text && unprinted --help && unprinted --version
verdict $? 'a command whose product cannot be printed has failed'
"$LOCKSTEP" info --json gone | head -n 1 >first && ((PIPESTATUS[0] == 0)) &&
  "$LOCKSTEP" train "${data[@]}" --epochs 1 --batch 50 --out unseen >/dev/full 2>&1
verdict $? 'one whose reader has left has not, nor has a training without its log'

# ---- once ----------------------------------------------------------------------------------------
once() {  # once NAME PATTERN COMMAND...
  run "${@:3}"
  ((status == 2)) && [[ $(grep -Ec -- "$2" <<<"$said") == 1 ]] &&
    ! says 'MPI_ABORT|non-zero|aborted'  # what mpirun says about a status
  verdict $? "$1"
}
once 'ranks that find the same error before MPI_Init say it once' "unknown key 'optim.lrr'" \
  ranks 3 "${train[@]}" --optim.lrr 3
once 'so they do when rank 0 starts seconds after the others' "unknown key 'optim.lrr'" \
  ranks 3 bash -c '((OMPI_COMM_WORLD_RANK > 0)) || sleep 5; exec "$@"' - "${train[@]}" --optim.lrr 3
once 'ranks that miss an option say it once' 'out is required' ranks 2 "$LOCKSTEP" pack \
  --from shapes
once 'ranks that find the same error after MPI_Init say it once' 'data.train is missing' \
  ranks 3 "${train[@]}" --batch 126
run "${train[@]}" --backend cpu --data.train nowhere
((status == 2)) && [[ $said == 'error: nowhere: '* && $(wc -l <<<"$said") == 1 ]]
verdict $? 'a single rank says its error and nothing else'

once 'info ends like this, too, though only rank 0 does something' 'none: no such file or folder' \
  ranks 3 "$LOCKSTEP" info none
once 'so does a plan' 'none.xml' ranks 2 "$LOCKSTEP" topo --hwloc none.xml
once 'so does a forecast for a GPU' 'none.json' ranks 2 "$LOCKSTEP" preflight \
  --gpu-profile none.json

without_memory() { sed 's/, [0-9.]* GB$//'; }  # a virtual machine's may change at any time
for command in "info gone" "topo --ranks-per-node 1"; do
  run ranks 3 "$LOCKSTEP" $command
  ((status == 0)) && [[ $(without_memory <<<"$said") == \
    "$("$LOCKSTEP" $command 2>&1 | without_memory)" ]]
  verdict $? "${command%% *} under mpirun says it once"
done
once 'bench data under mpirun is an error' 'measures one process, but 3 were started' \
  ranks 3 "$LOCKSTEP" bench data small/train

# ---- launcher variables --------------------------------------------------------------------------
job=(train --out run "${data[@]}" --batch 24 --epochs 1)
left_over=(env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1
  OMPI_COMM_WORLD_LOCAL_SIZE=4)
refused 'variables left over from an earlier mpirun are named, with both values' \
  'OMPI_COMM_WORLD_SIZE says 4 but MPI has a world of 1: .*unset' \
  "${left_over[@]}" "$LOCKSTEP" "${job[@]}"
refused 'a rank outside its world is an error' \
  'OMPI_COMM_WORLD_RANK=5 is not below OMPI_COMM_WORLD_SIZE=4' \
  "${left_over[@]}" OMPI_COMM_WORLD_RANK=5 "$LOCKSTEP" "${job[@]}"
refused 'junk in a launcher variable is an error' \
  'OMPI_COMM_WORLD_RANK=one: not a whole number' \
  "${left_over[@]}" OMPI_COMM_WORLD_RANK=one "$LOCKSTEP" "${job[@]}"
refused 'two ranks with the same number are an error' \
  'OMPI_COMM_WORLD_RANK says 0 but MPI has rank 1' \
  ranks 2 env OMPI_COMM_WORLD_RANK=0 "$LOCKSTEP" "${job[@]}"
refused 'a contradiction on one rank ends the others' \
  'OMPI_COMM_WORLD_RANK=9 is not below OMPI_COMM_WORLD_SIZE=2' \
  unlike_ranks "$LOCKSTEP" "${job[@]}" : env OMPI_COMM_WORLD_RANK=9 "$LOCKSTEP" "${job[@]}"
refused 'an srun that did not connect its tasks to MPI is an error that gives the line to change' \
  'SLURM_STEP_NUM_TASKS says 2 but MPI has a world of 1: .*--mpi=pmix' \
  env SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_NODEID=0 \
  SLURM_STEP_TASKS_PER_NODE=2 "$LOCKSTEP" "${job[@]}"
run env SLURM_PROCID=0 SLURM_NTASKS=4 mpirun --oversubscribe --bind-to none -np 2 "$LOCKSTEP" \
  "${job[@]}"
((status == 0)) && says '= 2 ranks x'
verdict $? "mpirun inside a batch script: the script's own variables change nothing"
