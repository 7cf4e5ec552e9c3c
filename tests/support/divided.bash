# For laws of trainings that ranks share in parts: shards, stages, tiles. After e2e.bash.

# newest RUN: its newest checkpoint.
newest() { compgen -G "$1/checkpoints/step-*.h5" | sort | tail -n 1; }

# kill_second RUN COMMAND...: kills the second of two ranks once RUN has a checkpoint; true where
# the run then ends with an error, in time.
kill_second() {
  mpirun --oversubscribe --bind-to none -np 2 "${@:2}" --out "$1" >"$1.log" 2>&1 &
  mpirun=$!
  first_step "$1.log"
  until_it 900 compgen -G "$1/checkpoints/step-*.h5" >/dev/null
  rank_pids $mpirun
  kill -KILL "${pids[1]}"
  finish "$1"
  ((status != 0 && seconds < 30))
}

# refused_with 'KEY = VALUE' RANKS COMMAND...: each of the options in the array `unfit` is an error
# next to that key, in one line, and nothing is written to `none`.
refused_with() {
  local option
  for option in "${unfit[@]}"; do
    # shellcheck disable=SC2086
    run ranks "$2" "${@:3}" $option --out none
    ((status == 2)) && [[ ! -e none ]] &&
      says "error: $1 and .* do not fit together: .*; leave one of them out" || return 1
  done
}

# over_tcp RANKS COMMAND...: the same by the program without MPI, whose ranks know each other by
# Slurm's variables. `status` is rank 0's, and `said` of all. Ends the script where that is missing.
over_tcp() {
  local program=$LOCKSTEP-without-mpi first r
  if [[ ! -x $program ]]; then
    echo 'SKIP over TCP: make usual-tests links a program without MPI'
    exit 0
  fi
  mkdir -m 700 cards
  for ((r = 1; r < $1; ++r)); do tcp_rank $r "$1" "$program" "${@:3}" >"$r.log" 2>&1 & done
  run tcp_rank 0 "$1" "$program" "${@:3}"
  first=$status
  wait
  status=$first
  said+=$(cat ./[0-9]*.log)
}
tcp_rank() {
  env LOCKSTEP_RENDEZVOUS_DIR="$PWD/cards" SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID="$1" \
    SLURM_NTASKS="$2" SLURM_STEP_NUM_TASKS="$2" SLURM_LOCALID="$1" SLURM_NODEID=0 \
    SLURM_STEP_NUM_NODES=1 SLURM_STEP_TASKS_PER_NODE="$2" "${@:3}"
}
