#!/bin/bash
# A program that was built with CUDA is one that any machine can start.
source "$(dirname "${BASH_SOURCE[0]}")/../support/e2e.bash"

if ! readelf -d "$LOCKSTEP" | grep -q 'NEEDED.*libcudnn'; then
  echo 'SKIP a program with CUDA starts without a driver: built without CUDA'
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
verdict $? 'without a driver the CPU computes, and it is said why'

run "$LOCKSTEP" train --data.train small/train --batch 32 --epochs 1 --backend cuda --out other
[[ $status == 2 && ! -e other ]] && says 'backend cuda: rank 0: this machine has no NVIDIA driver'
verdict $? 'without a driver --backend cuda is refused with the reason'

run "$LOCKSTEP" topo
says 'no CUDA device: this machine has no NVIDIA driver' && says '^CUDA 1[2-9]\.'
verdict $? 'topo says what the program was built with and that there is no driver'
