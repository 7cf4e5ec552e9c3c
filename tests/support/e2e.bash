# What end-to-end scripts share: they source it and stand in the empty folder $WORK.
set -uo pipefail
support=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
cd "$WORK"

said='' status=0

# run COMMAND...: keeps what it says in `said` and how it ends in `status`.
run() {
  said=$("$@" 2>&1 | tr -d '\0')
  status=$?
}

# says PATTERN: the last command said so (an extended regular expression).
says() { grep -Eq -- "$1" <<<"$said"; }

# verdict STATUS NAME: the law NAME holds when STATUS is 0; else what was said is shown.
verdict() {
  if (($1 == 0)); then
    echo "PASS $2"
  else
    printf '%s\nended with status %s\nFAIL %s\n' "$said" "$status" "$2"
  fi
}

# ranks N COMMAND...: as users start it; more ranks than cores are normal here.
ranks() { mpirun --oversubscribe --bind-to none -np "$@"; }

# nightly: true where all tests run, also those that repeat what others show.
nightly() { [[ ${TIER:-test} == all ]]; }

# at_once MOST FUNCTION...: calls them at the same time, at most that many, each in a separate shell, and
# then shows what they said, in this order. They mostly wait. ONLY="name ..." calls some of them.
at_once() {
  local most=$1 one
  shift
  [[ ! ${ONLY:-} ]] || set -- $ONLY
  for one in "$@"; do
    while (($(jobs -rp | wc -l) >= most)); do wait -n; done
    "$one" >"$one.verdicts" 2>&1 &
  done
  wait
  for one in "$@"; do cat "$one.verdicts"; done
}

# rank_pids MPIRUN: `pids` are its ranks' processes, by rank: numbers of processes may begin anew.
rank_pids() {
  local pid rank
  pids=()
  for pid in $(ps -o pid= --ppid "$1"); do
    rank=$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
    [[ ! $rank ]] || pids[rank]=$pid
  done
}

# until_it TENTHS COMMAND...: tries the command ten times a second until it succeeds.
until_it() {
  local left
  for ((left = $1; left > 0; left--)); do
    "${@:2}" && return
    sleep 0.1
  done
  return 1
}

# first_step LOG: waits until the training that writes it has done one, or shows why not.
first_step() { until_it 900 grep -q 'first step done' "$1" || cat "$1"; }

# finish RUN: waits for the launcher, process `mpirun`, that writes RUN.log; `seconds` is how long it took.
finish() {
  local began=$SECONDS
  wait $mpirun
  status=$?
  seconds=$((SECONDS - began))
  said=$(tr -d '\0' <"$1.log")
}

# thrice COMMAND...: what chance can make fail on a busy machine has three tries; what is wrong fails in
# each. tests/run counts the lines RETRIED and says their number at its end.
thrice() {
  local tries
  for tries in 1 2 3; do
    "$@" && return
    ((tries == 3)) || echo "RETRIED $1"
  done
  return 1
}

# pack_small: 250 images of 8 x 8 pixels in 3 shards as small/train, 53 as small/val.
pack_small() {
  "$LOCKSTEP" pack --from shapes --out small --train-rows 250 --val-rows 53 --resize 8 \
    --rows-per-shard 100 >pack.log 2>&1 || cat pack.log
}

# tensors CHECKPOINT: names and checksums of everything that a run has learned.
tensors() { "$LOCKSTEP" info --json "$1" | grep -E '"(name|crc32c)"'; }

# without_times RUN: its metrics, but for what depends on the clock.
without_times() { sed -E 's/"[a-z_]*(_ms|_per_s)":[0-9.e+-]+,?//g' "$1/metrics.jsonl"; }
