#!/bin/sh
# Fetches the headers of cudnn-frontend (MIT licence), cuDNN's graph API for C++:
#
#   jobs/cudnn_frontend.sh FOLDER        makes FOLDER/include
#
# They come from NVIDIA's wheel on PyPI, pinned by version and checksum. Only its headers are used.
# They are the same in every wheel of a version, so one wheel serves any machine and any Python.
# Nothing is installed into Python.
set -eu

version=1.32.0
sha256=c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0

[ $# -eq 1 ] || { echo 'usage: jobs/cudnn_frontend.sh FOLDER' >&2; exit 2; }
folder=$1
work=$folder.$$
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"

if ! said=$(python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" \
  --only-binary :all: --python-version 3.11 --implementation cp \
  --platform manylinux_2_28_x86_64 "nvidia-cudnn-frontend==$version" 2>&1); then
  echo "$said" | tail -n 3
  echo "cudnn-frontend $version could not be fetched with pip. Without a network, unpack its wheel"
  echo 'or source elsewhere and set CUDNN_FRONTEND=folder; or build without GPUs: CUDA=0'
  exit 1
fi >&2
wheel=$(echo "$work"/*.whl)
echo "$sha256  $wheel" | sha256sum --check --quiet ||
  { echo "$wheel is not the wheel whose checksum is pinned here" >&2; exit 1; }

python3 -m zipfile -e "$wheel" "$work/wheel"
mkdir "$work/kept"
mv "$work/wheel/include" "$work/kept/include"
mv "$work"/wheel/*.dist-info/licenses "$work/kept/licenses"
touch "$work/kept/include/cudnn_frontend.h"
rm -rf "$folder"
mv "$work/kept" "$folder"
