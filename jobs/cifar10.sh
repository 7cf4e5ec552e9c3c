#!/bin/sh
# Packs CIFAR-10 from a folder of class folders (train/ and test/) or from its binary files, and
# trains ResNet-20 on it with the recipe in jobs/configs/cifar10.toml:
#
#   jobs/cifar10.sh FOLDER
#
# RANKS (2), SEEDS ("1"), DATA (data/cifar10; packed once), LOCKSTEP (build/lockstep) and MPIRUN
# (mpirun --bind-to none --oversubscribe) may be set. More than one seed makes more than one run,
# and a last line with all their top-1.
set -eu

[ $# -eq 1 ] || { echo 'usage: jobs/cifar10.sh FOLDER' >&2; exit 2; }
source=$(realpath "$1")
cd "$(dirname "$0")/.."
data=${DATA:-data/cifar10}
lockstep=${LOCKSTEP:-build/lockstep}
mpirun="${MPIRUN:-mpirun --bind-to none --oversubscribe} -np ${RANKS:-2}"

# This lockstep may not read what an older one packed.
if [ ! -d "$data/train" ] ||
    "$lockstep" info "$data/train" 2>&1 | grep -q 'pack the data again'; then
  $mpirun "$lockstep" pack "$source" --out "$data" --force
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
reached=
for seed in ${SEEDS:-1}; do
  # A pipe would hide the training's status. The log is shown while it grows.
  : >"$log"
  tail -f "$log" & shown=$!
  status=0
  $mpirun "$lockstep" train --config jobs/configs/cifar10.toml --data.train "$data/train" \
    --data.val "$data/val" --seed "$seed" >"$log" 2>&1 || status=$?
  sleep 1
  kill $shown
  [ $status -eq 0 ] || exit $status
  reached="$reached $(sed -n 's/^done:.*validation top-1 \([0-9.]*\) %.*/\1/p' "$log")"
done
echo "top-1 of seed(s) ${SEEDS:-1}:$reached"
