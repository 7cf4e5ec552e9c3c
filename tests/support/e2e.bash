# What end-to-end scripts share: they source it and run in the empty folder $WORK.
set -uo pipefail
support=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
cd "$WORK"
# What is measured on this machine is measured once for all trainings of a script.
export XDG_CACHE_HOME=$WORK/.cache

said='' status=0
missed=''  # what was waited for since the last verdict, and did not happen

# run COMMAND...: keeps its output in `said` and its status in `status`.
run() {
  said=$("$@" 2>&1 | tr -d '\0')
  status=$?
}

# says PATTERN: the last command's output has it (an extended regular expression).
says() { grep -Eq -- "$1" <<<"$said"; }

# verdict STATUS NAME: the law NAME holds when STATUS is 0 and everything that was waited for has
# happened; otherwise this shows the last output.
verdict() {
  if (($1 == 0)) && [[ ! $missed ]]; then
    echo "PASS $2"
  else
    printf '%s%s\nended with status %s\nFAIL %s\n' "$missed" "$said" "$status" "$2"
  fi
  missed=''
}

# ranks N COMMAND...: starts ranks as users do; more ranks than cores are normal here.
ranks() { mpirun --oversubscribe --bind-to none -np "$@"; }
# unlike_ranks COMMAND... : COMMAND...: a rank for each command. Open MPI 5.0.7 crashes when mpirun
# itself is told so.
unlike_ranks() {
  local rank=0 word
  {
    printf 'case $OMPI_COMM_WORLD_RANK in\n 0) exec'
    for word; do
      if [[ $word == : ]]; then printf ' ;;\n %d) exec' $((++rank)); else printf ' %q' "$word"; fi
    done
    printf ' ;;\nesac\n'
  } >unlike_ranks.sh
  ranks $((rank + 1)) bash unlike_ranks.sh
}

# patience SECONDS: mpirun's options that let the others report when a rank is lost. Open MPI 4
# gives them these seconds. Open MPI 5 always gives half a second, unless it leaves their end to
# them; with that option Open MPI 4 would end with status 0.
patience() {
  if [[ $(mpirun --version) == *') 4.'* ]]; then
    echo --mca odls_base_sigkill_timeout "$1"
  else
    echo --enable-recovery
  fi
}

# may_trace: whether strace is here and may trace, which on_disk needs.
may_trace() { command -v strace >/dev/null && strace -f -o /dev/null true 2>/dev/null; }
# on_disk FOLDER FAULT COMMAND...: runs the command with this fault in its reads of the rows there.
on_disk() {
  local shard shards=()
  for shard in "$1"/*.h5; do shards+=(-P "$PWD/$shard"); done
  strace -f -qq --seccomp-bpf -o /dev/null -e trace=pread64 "${shards[@]}" -e "inject=pread64:$2" \
    "${@:3}"
}

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
    ("$one"; touch "$one.ended") >"$one.verdicts" 2>&1 &
  done
  wait
  for one in "$@"; do
    cat "$one.verdicts"
    [[ -e $one.ended ]] || grep -q '^FAIL ' "$one.verdicts" ||
      echo "FAIL $one: it stopped in the middle"
  done
}

# rank_pids MPIRUN: sets `pids` to its ranks' processes, by rank: process numbers may start over.
rank_pids() {
  find_ranks "$1"
  ((${#pids[@]} > 0)) || stop_here "no rank of mpirun is left (process $1)"
}
find_ranks() {
  local children='' file pid word
  pids=()
  for file in "/proc/$1/task/"*/children; do
    { read -r word <"$file"; } 2>/dev/null || true
    children+=" ${word:-}"
  done
  for pid in $children; do
    while IFS= read -rd '' word; do
      [[ $word != OMPI_COMM_WORLD_RANK=* ]] || pids[${word#*=}]=$pid
    done 2>/dev/null <"/proc/$pid/environ"
  done
}

# nap SECONDS: as sleep, without a process: it reads from a pipe to which nothing is written.
nap() {
  [[ -p $WORK/.nap ]] || mkfifo "$WORK/.nap" 2>/dev/null
  read -rt "$1" _ <>"$WORK/.nap" || (($? > 128)) || sleep "$1"
}

# Three ways to wait for an event: each tries a command until it succeeds. Between two tries is a
# tenth of the time so far, but 50 ms at least and 200 ms at most.
# try_for TENTHS COMMAND...: false when it did not succeed within this time, in which only the naps
# count.
try_for() {
  local waited_ms=0 nap_ms nap_s most_ms=$(($1 * 100))
  while ((waited_ms < most_ms)); do
    "${@:2}" && return
    nap_ms=$((waited_ms < 500 ? 50 : waited_ms > 2000 ? 200 : waited_ms / 10))
    waited_ms=$((waited_ms + nap_ms))
    printf -v nap_s '0.%03d' $nap_ms
    nap $nap_s
  done
  return 1
}
# happens TENTHS COMMAND...: for a verdict's conditions; the next verdict fails if it is false.
happens() {
  local began=$SECONDS
  try_for "$@" && return
  missed+="waited $((SECONDS - began)) s for this, which did not happen: ${*:2}"$'\n'
  return 1
}
# until_it TENTHS COMMAND...: for what a script needs to continue; the script fails here if it is
# false.
until_it() { happens "$@" || stop_here; }

# stop_here [WHY]: a failure with its place, the newest logs and the processes; ends this shell.
stop_here() {
  local log i place=''
  printf '%s\n' "$missed${1:-}"
  for log in $(ls -t -- *.log *.out *.ends 2>/dev/null | head -n 4); do
    echo "the end of $log:"
    tail -n 25 "$log" | tr '\r' '\n' | tr -d '\0' | tail -n 25 | sed 's/^/    /'
  done
  log=$(pgrep -d , -g 0)
  ps -o pid,ppid,stat,wchan:20,time,args -p "$log" --ppid "$log" | cut -c 1-200
  for ((i = 1; i < ${#FUNCNAME[@]}; i++)); do
    place+="${place:+ < }${BASH_SOURCE[i]##*/}:${BASH_LINENO[i - 1]}"
  done
  echo "FAIL $place: what it needs did not happen"
  exit 1
}

# first_step LOG: waits until the training that writes LOG has done its first step.
first_step() { until_it 900 in_file "$1" 'first step done'; }
in_file() { [[ $(<"$1") == *"$2"* ]]; } 2>/dev/null  # in_file FILE TEXT

# finish RUN: waits for the launcher, process `mpirun`, which writes RUN.log; `seconds` is its
# duration.
finish() {
  local began=$SECONDS
  wait $mpirun
  status=$?
  seconds=$((SECONDS - began))
  said=$(tr -d '\0' <"$1.log")
}

# thrice COMMAND...: three tries, only for a law about a measurement on this machine, which others
# use, too; next to each call is why. tests/run counts the lines RETRIED and prints their number at
# its end.
thrice() {
  local tries
  for tries in 1 2 3; do
    "$@" && return
    ((tries == 3)) || echo "RETRIED $1"
  done
  return 1
}

# pack_small [ROWS]: 250 images (or ROWS) of 8 x 8 pixels as small/train, in shards of 100; 53 as
# small/val.
pack_small() {
  "$LOCKSTEP" pack --from shapes --out small --train-rows ${1:-250} --val-rows 53 --resize 8 \
    --rows-per-shard 100 >pack.log 2>&1 || cat pack.log
}

# nothing_in WHERE: a text that is equal to no other, and false: two runs that do not exist must not
# look like equal ones.
nothing_in() {
  echo "nothing in $1 $BASHPID $RANDOM"
  return 1
}

# tensors CHECKPOINT: names and checksums of everything that a run has learned.
tensors() { "$LOCKSTEP" info --json "$1" | grep -E '"(name|crc32c)"' || nothing_in "$1"; }

# same_run RUN OTHER: both have the same weights, momentum, statistics and average, also in the best
# checkpoint where there is one, and the same metrics.
same_run() {
  local one file all
  for one in "$1" "$2"; do
    all=0
    : >"$one.tensors"
    for file in "$(compgen -G "$one/checkpoints/step-*.h5" | sort | tail -n 1)" \
      "$one/checkpoints/best.h5"; do
      [[ -e $file ]] || continue
      tensors "$file" >>"$one.tensors" && ((all += 156)) || return
    done
    without_times "$one" >"$one.metrics" || return
  done
  cmp "$1.tensors" "$2.tensors" && cmp "$1.metrics" "$2.metrics" &&
    ((all > 0 && $(grep -c crc32c "$1.tensors") >= all))
}

# without_times RUN: its metrics, except what depends on the clock, the memory, and how often it was
# started.
without_times() {
  sed -E '/^\{"kind":"(start|end|ranks|checkpoint|ledger)"/d; s/,?"[a-z_]*(_ms|_per_s|_bytes)":([0-9.e+-]+|null)//g' "$1/metrics.jsonl" |
    grep . || nothing_in "$1"
}
