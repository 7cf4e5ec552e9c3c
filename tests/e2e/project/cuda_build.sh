#!/bin/bash
# A machine without CUDA builds for CPUs, and a program built with CUDA starts on any machine.
# ci
# waits for make
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"

# look_for_cuda VARIABLE=...: the build's first step, which says what it found.
look_for_cuda() {
  run env -u MAKEFLAGS -u MAKELEVEL make -C "$repo" --no-print-directory BUILD="$WORK/build" \
    CUDA_HOME=/nowhere CUDNN_HOME=/nowhere NCCL_HOME=/nowhere "$@" "$WORK/build/found"
  rm -rf build
}

look_for_cuda
[[ $status == 0 ]] && says 'built for CPUs only \(not found: nvcc cuDNN-9 NCCL\)'
verdict $? 'if CUDA is not found, the build is for CPUs and says what is missing'

look_for_cuda CUDA=1
[[ $status == 2 ]] && says 'not found: nvcc cuDNN-9 NCCL' && says 'CUDNN_HOME=' && says 'CUDA=0'
verdict $? 'CUDA=1 without CUDA is an error that says what is missing and how to get it'

if ! readelf -d "$LOCKSTEP" | grep -q 'NEEDED.*libcudnn'; then
  echo 'SKIP a program with CUDA starts without a driver: this one is built without CUDA'
  exit 0
fi

run readelf -d "$LOCKSTEP"
! says 'libcuda\.so' && ! says 'libcudart'
verdict $? 'a program with CUDA needs neither libcuda nor libcudart to start'

if [[ -e /proc/driver/nvidia/version ]]; then
  echo 'SKIP without a driver the CPU computes: this machine has a driver'
  exit 0
fi

pack_small
run "$LOCKSTEP" train --data.train small/train --batch 32 --epochs 1 --out run
says 'computing on the CPU: this machine has no NVIDIA driver' && says '^done: 1 epoch'
verdict $? 'without a driver the CPU computes, and a line says why'

run "$LOCKSTEP" train --data.train small/train --batch 32 --epochs 1 --backend cuda --out other
[[ $status == 2 && ! -e other ]] && says 'backend cuda: rank 0: this machine has no NVIDIA driver'
verdict $? 'without a driver --backend cuda is an error that gives the reason'

run "$LOCKSTEP" topo
says 'no CUDA device: this machine has no NVIDIA driver' && says '^CUDA 1[2-9]\.'
verdict $? 'topo says what the program was built with and that there is no driver'
