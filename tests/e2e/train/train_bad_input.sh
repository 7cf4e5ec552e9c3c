#!/bin/bash
# What a user can do wrong with `lockstep train`: each mistake is an error that names it, with
# status 2, and nothing is written.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
"$LOCKSTEP" pack --from shapes --out shapes --train-rows 40 --val-rows 20 >pack.log 2>&1 ||
  cat pack.log

# refuses LAW PATTERN RANKS OPTION...: status 2 and this message (an extended regular expression).
refuses() {
  local start=()
  (($3 == 1)) || start=(ranks "$3")
  run "${start[@]}" "$LOCKSTEP" train --out run "${@:4}"
  ((status == 2)) && says "$2" && [[ ! -e run ]]
  verdict $? "$1"
}
data=(--data.train shapes/train)

refuses 'an unknown option is an error that names it' 'optim.learnrate' 1 "${data[@]}" \
  --optim.learnrate 1
refuses 'a value that is not a number is an error that names the key' "epochs: 'ten'" 1 \
  "${data[@]}" --epochs ten
refuses 'a missing configuration file is an error that names it' 'none.toml: No such file' 1 \
  --config none.toml
printf '[data]\ntrain = "shapes/train"\n[optim]\nlearning-rate = 0.1\n' >unknown.toml
refuses 'an unknown key in a file is an error that gives the line' \
  "unknown.toml, line 4: unknown key 'optim.learning-rate'" 1 --config unknown.toml
printf 'epochs = 3\nepochs = 4\n' >twice.toml
refuses 'a key that appears twice is an error that gives the line' \
  "twice.toml, line 2: 'epochs = 4': .*redefine.*'epochs'" 1 \
  --config twice.toml
refuses 'a training without a training set says which key is missing' 'data.train is missing' 1
refuses 'a missing data set is an error that names it' 'nowhere' 1 --data.train nowhere
refuses 'an unknown model is an error that names it' 'resnet21' 1 "${data[@]}" --batch 20 \
  --model resnet21
refuses 'a batch that contradicts the batch per rank is an error that names both' \
  'batch = 20 .*batch-per-rank = 8 .* 16' 2 "${data[@]}" --batch 20 --batch-per-rank 8
refuses 'a global batch that the ranks cannot share is an error' 'batch = 1 .*2 x 1 = 2' 2 \
  "${data[@]}" --batch 1
refuses 'a batch larger than the data set is an error' 'batch of 128 rows is larger than the data set.s 40.*--batch.*--data.keep-last' 2 \
  "${data[@]}"
refuses 'a micro-batch of which batch norm sees one value a channel is an error with the remedy' \
  'batch = 4 and accumulate = 4 on 1 rank .*layer4.0.bn1.*use --accumulate 2' 1 "${data[@]}" \
  --model resnet18 --batch 4 --accumulate 4
refuses 'so is a last row alone' \
  'data.keep-last = true and batch = 39 .*last batch 1 row.*leave out data.keep-last' 1 \
  "${data[@]}" --model resnet18 --batch 39 --data.keep-last
refuses 'and both are errors of a rehearsal, too' 'batch = 1 and .*use --batch 2 or more' 1 \
  "${data[@]}" --model resnet18 --batch 1 --backend clock --clock.row-ms 1
refuses 'many times as many threads as cores are an error that names both' \
  'threads = 1000: this rank has [0-9]+ core' 1 "${data[@]}" --batch 20 --threads 1000
unlike=(bash -c '((OMPI_COMM_WORLD_RANK == 0)) || export ONEDNN_MAX_CPU_ISA=SSE41; exec "$@"' -
  "$LOCKSTEP")
run ranks 2 "${unlike[@]}" train --out run "${data[@]}" --batch 20 --threads 1 --winograd false
((status == 2)) && [[ ! -e run ]] &&
  says 'different orders.*on rank 0, but .*on rank 1; set ONEDNN_MAX_CPU_ISA'
verdict $? 'ranks of unlike processors are told so before they sum, with the remedy'
refuses 'a precision that this backend lacks is an error' 'fp16' 1 "${data[@]}" --batch 20 \
  --precision fp16
refuses 'a missing checkpoint is an error that names it' 'none.h5: No such file' 2 \
  "${data[@]}" --batch 20 --resume none.h5
mkfifo pipe.h5 pipe.toml
refuses_pipe() {  # refuses_pipe LAW COMMAND...: at once, though no process ever writes to the pipe
  run timeout -s KILL 60 "$LOCKSTEP" "${@:2}"
  ((status == 2)) && says 'error: pipe.(h5|toml): is a pipe, and not a regular file' &&
    [[ ! -e run ]]
  verdict $? "a pipe in place of $1 is an error that names it"
}
refuses_pipe 'a configuration' train --out run --config pipe.toml
refuses_pipe 'a data set' train --out run --data.train pipe.h5 --batch 20
refuses_pipe 'a checkpoint' train --out run "${data[@]}" --batch 20 --resume pipe.h5
refuses_pipe 'a checkpoint to measure' eval pipe.h5 --data shapes/val
refuses_pipe 'what is to be described' info pipe.h5
refuses_pipe 'a list' pack pipe.toml --from list --out run
ln -s loop loop
run "$LOCKSTEP" info loop
((status == 2)) && says '^error: loop: Too many levels of symbolic links$'
verdict $? 'a link that leads to itself is an error that names it'
echo 'a text' >text.h5
refuses 'a text file named .h5 in place of a checkpoint is an error' \
  'text.h5: not a lockstep checkpoint' 1 \
  "${data[@]}" --batch 20 --resume text.h5

for key in data.pad data.cutout; do
  refuses "a $key as large as the images is an error that gives both sizes" \
    "$key = 32 .*shapes/train .*32 x 32" 1 \
    "${data[@]}" --batch 20 --$key 32
done

for run in 1 2; do
  "$LOCKSTEP" train --out 'both-{n}' "${data[@]}" --batch 20 --epochs 1 \
    --threads 1 >both$run.log 2>&1 &
done
wait
said=$(cat both1.log both2.log)
[[ -e both-1/summary.json && -e both-2/summary.json && ! -e both-3 ]]
verdict $? 'two runs that begin at once have separate directories'

run "$LOCKSTEP" train --out diverged "${data[@]}" --batch 20 --optim.lr 1e6 --epochs 20 \
  --checkpoint.every-epochs 0
((status == 1)) && says 'the loss is (not a number|infinite) at step [0-9]+' &&
  ! says 'earlier checkpoints'
verdict $? 'a training that diverges ends at the step where its loss is not a number'

law='a full disk ends the run and is named, and the checkpoint before it stays valid'
mkdir full
if mount -t tmpfs -o size=3m tmpfs full 2>/dev/null; then
  run "$LOCKSTEP" train --out full/run "${data[@]}" --batch 20 --epochs 9
  ((status == 1)) && says 'full/run/checkpoints/.*No space left' &&
    "$LOCKSTEP" info full/run/checkpoints/step-00000002.h5 >info.log
  verdict $? "$law"
  umount full
else
  echo "SKIP $law: no small file system can be mounted here"
fi
