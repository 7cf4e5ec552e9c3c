#!/bin/bash
# A bundle brings its own glibc and loader to a system that is older than its programs: Debian 11,
# glibc 2.31, with none of the packages that lockstep needs.
# ci
# computes
# seconds: 300
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"

law='a bundle trains on 2 ranks on a system with glibc 2.31, with the bits that it has here'
run "$repo/tests/debian/debian" bullseye root
((status != 77)) || { echo "SKIP $law: $(tail -n 1 <<<"$said")"; exit 0; }

# What is in there sees the repository, in whose build folder all this is.
place=$repo/build/bullseye/$$
mkdir -p "$place"
trap 'rm -rf "$place" "$WORK"' EXIT
cd "$place"
mkdir with without cards theirs && chmod 700 cards
cp -l "$LOCKSTEP" with/lockstep && cp -l "$LOCKSTEP-without-mpi" without/lockstep
run "$repo/jobs/bundle.sh" "$PWD/with" "$PWD/bundle"
((status == 0)) && run "$repo/jobs/bundle.sh" "$PWD/without" "$PWD/bare"
# CUDA's, as on a machine that has them
for library in $(ldd "$LOCKSTEP" | awk '$1 ~ /^lib(cudnn|nccl)\./ { print $3 }'); do
  cp -L "$library" theirs/
done

inside() {
  run "$repo/tests/debian/debian" bullseye run bash -c "cd '$place'; LD_LIBRARY_PATH=$place/theirs
    [[ ! \$(echo theirs/*) =~ so ]] || export LD_LIBRARY_PATH; $1"
}
training='--model resnet20 --data.train small/train --data.val small/val --batch 32 --threads 1
  --stop-after 6 --checkpoint.every-steps 6'
inside "getconf GNU_LIBC_VERSION
  bundle/lockstep pack --from shapes --out small --train-rows 128 --val-rows 32 --resize 16 &&
  bundle/mpirun --oversubscribe -np 2 bundle/lockstep train ${training//$'\n'/ } --out theirs_run"
here=$said
run ranks 2 "$LOCKSTEP" train $training --out ours_run
said="$here
$said"
says '^glibc 2\.31$' && tensors theirs_run/checkpoints/step-00000006.h5 >theirs.tensors &&
  [[ -s theirs.tensors ]] && tensors ours_run/checkpoints/step-00000006.h5 | cmp - theirs.tensors
verdict $? "$law"

slurm='SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_NODEID=0
  SLURM_STEP_NUM_NODES=1 SLURM_STEP_TASKS_PER_NODE=2'
inside "export LOCKSTEP_RENDEZVOUS_DIR=$place/cards ${slurm//$'\n'/ }
  for rank in 1 0; do
    SLURM_PROCID=\$rank SLURM_LOCALID=\$rank \
      bare/lockstep train ${training//$'\n'/ } --out bare_run &
  done; wait; ls bare"
says 'stopped after step 6' && ! says mpirun &&
  tensors bare_run/checkpoints/step-00000006.h5 | cmp - theirs.tensors
verdict $? 'a bundle without MPI does, whose ranks Slurm starts, over TCP'

inside 'bundle/lockstep predict theirs_run small/val --out predicted --csv --threads 1'
theirs=$(cat predicted/predictions.csv)
run "$LOCKSTEP" predict ours_run small/val --out predicted_here --csv --threads 1
[[ $theirs && $theirs == "$(cat predicted_here/predictions.csv)" ]]
verdict $? 'it predicts as it does here'

inside 'bundle/lockstep serve m=theirs_run --port 8123 --threads 1 >served.log 2>&1 & server=$!
  for i in {1..200}; do curl -sf localhost:8123/v2/health/ready && break; sleep 0.1; done
  curl -s localhost:8123/v2/models/m; kill $server; wait $server; echo "ended with $?"'
says '"shape":\[-1,16,16,3\]' && says '^ended with 0$'
verdict $? 'it serves'

inside 'PATH=$PWD/bundle:$PATH
  lockstep scaling plan --model resnet20 --data.size 16 --ranks 1 --batch 8 --steps 3 \
    --repetitions 1 --out study && lockstep scaling run study --launcher mpirun'
says '1 run done' || says '[1-9][0-9]* runs done'
verdict $? 'it starts itself'

inside "bundle/lockstep train --recipe nothing; bundle/lockstep train ${training//$'\n'/ } \
  --out told --notify 'ldd --version'"
says 'there are cifar10-200' && says 'GLIBC 2\.31'
verdict $? 'it has its recipes, and the programs that it starts are those of the machine'
