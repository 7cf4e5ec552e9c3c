#!/bin/bash
# The program that MPI=none builds: ranks that srun starts meet over TCP, and compute the same bits.
# Slurm's variables are set by hand.
# ci
# computes
source "$(dirname "${BASH_SOURCE[0]}")/../../support/e2e.bash"
program=$LOCKSTEP-without-mpi
[[ -x $program ]] || { echo 'SKIP a program without MPI: make usual-tests links it'; exit 0; }

run ldd "$program"
((status == 0)) && says libhdf5 && ! says 'libmpi|libopen-|libpmix'
verdict $? 'it needs no library of MPI'

run "$program" pack --from shapes --out small --train-rows 128 --val-rows 32 --resize 16
training=(train --model resnet20 --data.train small/train --data.val small/val --batch 32
  --threads 1 --winograd false --stop-after 6 --checkpoint.every-steps 6)
run ranks 4 "$LOCKSTEP" "${training[@]}" --out with
((status == 3))
verdict $? 'four ranks train over MPI'

mkdir -m 700 cards
rank() {  # rank R COMMAND...
  env LOCKSTEP_RENDEZVOUS_DIR="$PWD/cards" SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID="$1" \
    SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID="$1" SLURM_NODEID=0 \
    SLURM_STEP_NUM_NODES=1 SLURM_STEP_TASKS_PER_NODE=4 "${@:2}"
}
for r in 1 2 3; do rank $r "$program" "${training[@]}" --out without >"$r.log" 2>&1 & done
run rank 0 "$program" "${training[@]}" --out without
mine=$status
wait
said+=$(cat ./?.log)
((mine == 3)) && tensors with/checkpoints/step-00000006.h5 >with.tensors && [[ -s with.tensors ]] &&
  tensors without/checkpoints/step-00000006.h5 | cmp - with.tensors
verdict $? 'four ranks without MPI have the weights of four over MPI, bit for bit'

run ranks 2 "$program" "${training[@]}" --out alone
((status == 2)) && says 'built without MPI' && [[ ! -e alone ]]
verdict $? 'mpirun, which cannot join its ranks, gets an error that says so'

run ranks 1 "$program" "${training[@]}" --out alone
says 'stopped after step 6' && [[ -e alone/checkpoints/step-00000006.h5 ]]
verdict $? 'mpirun of one rank trains'
