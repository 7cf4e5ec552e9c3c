#!/bin/bash
# computes
# README.md's commands for clusters run as written, on two nodes.
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
source "$repo/tests/support/cluster.bash"
cluster 2 --cpus 32 --gpus-per-node 4 --mem 64000

ln -s "$repo/jobs" jobs
mkdir build && ln -s "$LOCKSTEP" build/lockstep
python3 "$repo/tests/support/flowers.py" flowers 25
build/lockstep pack flowers --out data/flowers --resize 64 >pack.log 2>&1 || cat pack.log

export SBATCH_WAIT=1 SBATCH_OUTPUT=batch.out  # the test waits for the job and reads what it said
found=0
while IFS= read -r command; do
  [[ $command == s[rb]* ]] || continue
  ((++found))
  run bash -c "$command </dev/null"
  said+=$'\n'$(tr '\r' '\n' 2>/dev/null <batch.out)
  rm -f batch.out
  ((status == 0)) && says '= 8 ranks' && says '^done: 5 epoch'
  verdict $? "README.md's command works: $command"
done < <(python3 "$repo/tests/support/pages.py" commands "$repo/README.md")
said="$found commands"
((found == 3))
verdict $? 'README.md has a command for srun, one for srun with GPUs and one for sbatch'
