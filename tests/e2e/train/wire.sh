#!/bin/bash
# `comm.wire`: gradients travel in fewer bits. Runs say so, resume with the same bits, and are not
# mixed with others.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
train=("$LOCKSTEP" train --data.train small/train --data.val small/val --batch 16 --epochs 2
  --threads 1 --comm.bucket-mb 0.1 --checkpoint.every-steps 4 --checkpoint.keep 20)

declare -A says_what=([bf16]='travel as bf16, and running statistics as fp32'
  [fp16]='travel as fp16, and running statistics as fp32'
  [int8]='travel as int8 with a scale for each 256 .* is added in the next step')
last=checkpoints/step-00000032.h5
run ranks 2 "${train[@]}" --out fp32
tensors fp32/$last >fp32.tensors
for wire in bf16 fp16 int8; do
  run ranks 2 "${train[@]}" --comm.wire $wire --out $wire
  ((status == 0)) && says "exchange '$wire': gradients ${says_what[$wire]}" &&
    tensors $wire/$last >$wire.tensors && ! cmp -s fp32.tensors $wire.tensors
  verdict $? "a run with $wire gradients says so, and its weights are not those of fp32"
  run "$LOCKSTEP" info $wire/$last
  says "exchange '$wire'"
  verdict $? "info names the exchange $wire of a checkpoint"

  mpirun --oversubscribe --bind-to none -np 2 "${train[@]}" --comm.wire $wire --out $wire-cut \
    >cut.log 2>&1 &
  mpirun=$!
  until_it 900 test -e $wire-cut/checkpoints/step-00000008.h5
  rank_pids $mpirun
  kill -KILL "${pids[1]}"
  wait $mpirun
  run ranks 2 "${train[@]}" --comm.wire $wire --out $wire-cut --resume auto
  ((status == 0)) && tensors $wire-cut/$last | cmp - $wire.tensors
  verdict $? "a run with $wire gradients whose rank was killed resumes with the same bits"
done

refused() {  # refused NAME PATTERN RANKS OPTION...
  run ranks "$3" "${train[@]}" "${@:4}"
  ((status == 2)) && says "$2"
  verdict $? "$1"
}
refused 'a resume with other gradients is an error that names both and the key' \
  "step-.* was written with the exchange 'int8', but this run has 'exact': .*comm.wire" \
  2 --out int8 --resume auto --epochs 3
refused 'a resume of int8 on another number of ranks is an error that says what to do' \
  "exchange 'int8' is of 2 ranks, and here are 3: continue with 2 ranks" \
  3 --comm.wire int8 --out int8 --resume auto --epochs 3 --batch 18
refused 'int8 with one rank is an error that names both keys' \
  'comm.wire = int8 .* ranks = 1' 1 --comm.wire int8 --out one
refused 'int8 with fp16 is an error that names both keys' \
  'comm.wire = int8 .* precision = fp16' 2 --comm.wire int8 --precision fp16 --out both
refused 'a wire that does not exist is named, with those that do' \
  'comm.wire.*int4.*fp32, bf16, fp16' 2 --comm.wire int4 --out none
[[ ! -e one && ! -e both && ! -e none ]]
verdict $? 'what is refused makes no folder'
run ranks 1 "${train[@]}" --comm.wire bf16 --out alone
((status == 0)) && run ranks 1 "${train[@]}" --out exact && tensors alone/$last >alone.tensors &&
  tensors exact/$last | cmp - alone.tensors
verdict $? 'a rank alone rounds nothing: a scaling study may begin with it'
