#!/bin/bash
# The program for 64-bit Arm, built here and emulated, packs the same bytes as x86's and trains to
# the same losses and weights. `make test-arm` runs all unit tests on three processors.
# nightly
# computes
# seconds: 2400
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"
build=$repo/build/aarch64/build
arm=$build/lockstep
debian() { (cd "$repo" && env -u MPICXX tests/debian/debian aarch64 "$@"); }
emulated=("$repo/tests/debian/debian" aarch64 run)

python=/usr/bin/python3
law='it builds without a warning'
run debian run true
((status != 77)) || { echo "SKIP the program for 64-bit Arm: $(tail -n 1 <<<"$said")"; exit 0; }
run env -u MAKEFLAGS -u MAKELEVEL -u MPICXX make -C "$repo" --no-print-directory \
  CROSS=aarch64 CUDA=0 build/aarch64/build/lockstep no-mpi-built
((status == 0)) && ! says 'warning'
verdict $? "$law"
[[ $status == 0 ]] || exit 0
run readelf -h "$arm"
says 'Machine: +AArch64'
verdict $? 'it is for that processor'
run "${emulated[@]}" "$arm" --version
says '^lockstep [0-9.]+ \(build [0-9a-f]+, neon\)$'
verdict $? 'it names the instruction set that it needs'

# pack FOLDER COMMAND...: shapes; JPEGs, which are encoded; and these again, decoded and resampled.
pack() {
  local to=$1
  shift
  run "$@" pack --from shapes --out "$to/shapes" --train-rows 96 --val-rows 16 --resize 24 &&
    ((status == 0)) &&
    run "$@" pack --from shapes --jpeg --out "$to/jpegs" --train-rows 24 --val-rows 8 &&
    ((status == 0)) &&
    run "$@" pack --repack "$to/jpegs" --out "$to/again" --resize 40x28
  ((status == 0))
}
mkdir x86 arm
pack x86 "$LOCKSTEP"
verdict $? 'x86 packs'
pack arm "${emulated[@]}" "$arm"
verdict $? 'Arm packs'
run diff -r x86 arm
((status == 0)) && (($(find arm -name '*.h5' | wc -l) >= 6))
verdict $? 'the shards are the same, byte for byte: generated, encoded, decoded and resampled'

# train RUN JOB COMMAND...: two ranks that meet and add over TCP, three steps of ResNet-20.
mkdir -m 700 cards
train() {
  local r
  for r in 0 1; do
    env LOCKSTEP_RENDEZVOUS_DIR="$PWD/cards" SLURM_JOB_ID="$2" SLURM_STEP_ID=0 SLURM_PROCID=$r \
      SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=$r SLURM_NODEID=0 \
      SLURM_STEP_NUM_NODES=1 SLURM_STEP_TASKS_PER_NODE=2 "${@:3}" train --model resnet20 \
      --data.train x86/shapes/train --batch 16 --threads 1 --winograd false --stop-after 3 \
      --checkpoint.every-steps 3 --out "$1" >"$1.$r.log" 2>&1 &
  done
  wait
  said=$(cat "$1".?.log)
  says 'stopped after step 3'
}
train on-x86 1 "$LOCKSTEP-without-mpi"
verdict $? 'two ranks on x86 train over TCP'
train on-arm 2 "${emulated[@]}" "$arm-without-mpi"
verdict $? 'two ranks on Arm train over TCP'
says 'oneDNN [0-9.]+ has only reference code for convolutions on this processor'
verdict $? 'a start there says that its cores are for tests and data'
# Measured: 6.6e-8 and 7.8e-5. With SSE4.1, x86's own losses are 1.5e-3 away, and weights 0.016.
run "$python" "$support/compare_runs.py" on-x86 on-arm 3 1e-6 2e-4
verdict $status 'losses agree to 1e-6, and weights to 2e-4, with direct convolutions of x86'
echo "  $said"
