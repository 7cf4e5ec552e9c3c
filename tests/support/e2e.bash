# What end-to-end scripts share: they source it and run in the empty folder $WORK.
set -uo pipefail
support=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
cd "$WORK"
# What is measured on this machine is measured once for all trainings of a script.
export XDG_CACHE_HOME=$WORK/.cache

said='' status=0

# run COMMAND...: keeps its output in `said` and its status in `status`.
run() {
  said=$("$@" 2>&1 | tr -d '\0')
  status=$?
}

# says PATTERN: the last command's output has it (an extended regular expression).
says() { grep -Eq -- "$1" <<<"$said"; }

# verdict STATUS NAME: the law NAME holds when STATUS is 0; otherwise this shows the last output.
verdict() {
  if (($1 == 0)); then
    echo "PASS $2"
  else
    printf '%s\nended with status %s\nFAIL %s\n' "$said" "$status" "$2"
  fi
}

# ranks N COMMAND...: starts ranks as users do; more ranks than cores are normal here.
ranks() { mpirun --oversubscribe --bind-to none -np "$@"; }

# nightly: true when all tests run, including those that repeat what others show.
nightly() { [[ ${TIER:-test} == all ]]; }

# at_once MOST FUNCTION...: calls them at the same time, at most MOST at once, each in a separate
# shell. Then shows their output, in this order. They mostly wait. ONLY="name ..." calls some of
# them.
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

# rank_pids MPIRUN: sets `pids` to its ranks' processes, by rank: process numbers may start over.
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

# first_step LOG: waits until the training that writes LOG has done its first step; else shows the
# log.
first_step() { until_it 900 grep -q 'first step done' "$1" || cat "$1"; }

# finish RUN: waits for the launcher, process `mpirun`, which writes RUN.log; `seconds` is its
# duration.
finish() {
  local began=$SECONDS
  wait $mpirun
  status=$?
  seconds=$((SECONDS - began))
  said=$(tr -d '\0' <"$1.log")
}

# thrice COMMAND...: three tries for what can fail by chance on a busy machine; a real error fails
# in each. tests/run counts the lines RETRIED and prints their number at its end.
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

# without_times RUN: its metrics, except what depends on the clock, the memory, and how often it was
# started.
without_times() {
  sed -E '/^\{"kind":"(start|end|ranks|checkpoint)"/d; s/,?"[a-z_]*(_ms|_per_s|_bytes)":[0-9.e+-]+//g' "$1/metrics.jsonl"
}
