#!/bin/bash
# Traps that this machine can have for real: what train, preflight, doctor and lint say of them, and
# that the line which they name cures them.
# ci
# computes
source "$(dirname "${BASH_SOURCE[0]}")/../../support/e2e.bash"
pack_small
train=("$LOCKSTEP" train --data.train small/train --batch 50 --epochs 1)
unset OMP_PLACES OMP_PROC_BIND GOMP_CPU_AFFINITY

if (($(nproc) > 1)); then
  export OMP_PROC_BIND=true OMP_PLACES=cores
  run "${train[@]}" --out bound
  ((status == 0)) && says ', 1 thread$|, 1 thread,' &&
    says '^warning: OMP_PLACES and OMP_PROC_BIND .*: unset OMP_PLACES OMP_PROC_BIND \[openmp-bind'
  verdict $? 'a rank that OpenMP bound to one core says so before it trains, with the line to write'
  line=$(sed -n 's/^warning: OMP_.*: \(unset .*\) \[openmp.*/\1/p' <<<"$said")
  run bash -c "$line"$'\n''exec "$@"' bash "${train[@]}" --out free
  ((status == 0)) && says ", $(nproc) threads" && ! says openmp-binding
  verdict $? 'after that line it has all cores'
  unset OMP_PLACES OMP_PROC_BIND
fi

export ONEDNN_DEFAULT_FPMATH_MODE=BF16
run ranks 2 "${train[@]}" --out two
((status == 0)) && (($(grep -c 'warning: .*\[onednn-precision' <<<"$said") == 1))
verdict $? 'several ranks of a node say a trap once'
run "${train[@]}" --out checked --preflight.check true
((status == 0)) && (($(grep -c '\[onednn-precision' <<<"$said") == 1))
verdict $? 'a preflight at the start says it in place of the start'
UCX_TLS=sm run "$LOCKSTEP" preflight --json nodes.json
says 'warning: ONEDNN_DEFAULT_FPMATH_MODE=BF16 .*: unset ONEDNN_DEF' && says '\[ucx-self' &&
  grep -q 'ucx-self' nodes.json && grep -q onednn-precision nodes.json
verdict $? 'preflight says what may be right elsewhere, too, and writes it into its file'
UCX_TLS=sm run "${train[@]}" --out perhaps
((status == 0)) && ! says ucx-self
verdict $? 'a training says only what is certain'
unset ONEDNN_DEFAULT_FPMATH_MODE

printf '%s\n' '#!/bin/bash' '#SBATCH --nodes=1 --time=60 --mem=0' \
  'export ONEDNN_DEFAULT_FPMATH_MODE=BF16' \
  'srun --mpi=pmix --kill-on-bad-exit=1 lockstep train --data.train d --out r' >job.sbatch
run "$LOCKSTEP" lint job.sbatch
says '^job.sbatch:3: warning: ONEDNN_DEFAULT_FPMATH_MODE=BF16 .*\[onednn-precision\]$'
verdict $? 'lint says it of a script'
