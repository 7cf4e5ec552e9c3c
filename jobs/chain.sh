#!/bin/bash
# For sites that requeue no job: submits a chain of jobs that continue one training, each after the
# one before has ended, however it did: by its time limit, or with a lost node. When the training is
# done, or fails, the jobs that have not begun are cancelled.
#
#   jobs/chain.sh 5 --time=24:00:00 jobs/multi-node.sbatch --model resnet50 ...
#
# After the number come sbatch's options, one of the scripts single-node.sbatch and
# multi-node.sbatch, and lockstep train's options. All jobs have one $RUN, and one name, $CHAIN:
# scancel --name cancels all of them.
set -euo pipefail
refuse() {
  echo "jobs/chain.sh: $1" >&2
  exit 2
}
if (($# < 2)) || [[ ! $1 =~ ^[1-9][0-9]{0,2}$ ]]; then
  refuse 'how many jobs (1 to 999), then what sbatch takes'
fi
jobs=$1
shift
for word; do
  [[ $word != -J* && $word != --job-name* ]] ||
    refuse "$word: the jobs' name is chosen here; RUN= names the run's folder"
done
export CHAIN
CHAIN=lockstep-$(date +%Y%m%d-%H%M%S)-$$
export RUN=${RUN:-runs/$CHAIN}
after=()
for ((job = 1; job <= jobs; ++job)); do
  id=$(sbatch --parsable --no-requeue --job-name="$CHAIN" "${after[@]}" "$@") || exit
  id=${id%%;*}
  echo "job $job of $jobs: $id"
  after=(--dependency="afterany:$id")
done
