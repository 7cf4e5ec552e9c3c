#!/bin/sh
# Fetches what GPU builds for 64-bit Arm (GH200, GB200) link, into a folder:
#
#   jobs/cuda_aarch64.sh FOLDER          makes FOLDER/include and FOLDER/lib (900 MB are fetched)
#   make CROSS=aarch64 CUDA=1 CUDA_TARGET=FOLDER CUDNN_HOME=FOLDER NCCL_HOME=FOLDER
#
# CUDA's runtime, cuDNN and NCCL come from NVIDIA's wheels on PyPI, pinned by version and checksum.
# nvcc, and the headers that all processors share, are this machine's. On a machine with Arm
# processors its own toolkit has all of it.
set -eu

[ $# -eq 1 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1
work=$folder.$$
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/kept/include" "$work/kept/lib"

while read -r package version sha256; do
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 --dest "$work" \
    "$package==$version"
  wheel=$(echo "$work"/*.whl)
  echo "$sha256  $wheel" | sha256sum --check --quiet ||
    { echo "$package is not the wheel whose checksum is pinned here" >&2; exit 1; }
  python3 -m zipfile -e "$wheel" "$work/wheel"
  for kind in include lib; do cp -r "$work"/wheel/nvidia/*/$kind/. "$work/kept/$kind"; done
  rm -rf "$work/wheel" "$wheel"
done <<'END'
nvidia-cuda-runtime 13.0.96 ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55
nvidia-cudnn-cu13 9.28.1.4 759b6a4919951ed8ec603dec97b96f6a6396c8269b95b3d345526e2471fb433d
nvidia-nccl-cu13 2.32.3 a5bee92b2f4af218c109f8d221c3c9adcc752b94ae0ffcb0ed5abf9341a7724c
END
rm -rf "$folder"
mv "$work/kept" "$folder"
