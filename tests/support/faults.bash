# What scripts share that break a training on the mini cluster, in addition to cluster.bash: each
# scenario has two separate nodes, so that several run at the same time (at_once).
source "$(dirname "${BASH_SOURCE[0]}")/cluster.bash"
train=(train --batch 16 --threads 1 --optim.lr 0.05 --optim.decay constant --epochs 100000
  --audit.every-steps 0 --checkpoint.every-epochs 0)
every=20  # steps, a checkpoint
mpi=pmix  # how srun connects the ranks; none: they meet over TCP
rows=(--data.train small/train)

# on K: sets $a and $b to the nodes of the K-th scenario; ranks 0 and 1 will be on $a.
on() {
  local first=node$((2 * $1 - 1)) second=node$((2 * $1))
  a=${!first} b=${!second}
}

note_ends

# begin RUN OPTION...: starts two ranks on each of the two nodes, so that srun does not react when
# one is lost; returns when they have written a checkpoint. `step` is srun's process. RUN.ends will
# hold when and how each rank ended. The run's directory is `run_dir`, or has the name of the run.
begin() {
  run_name=$1
  run_dir=${run_dir:-$1}
  : >"$1.ends" >"$1.log"
  NOTE_END=$PWD/$1.ends srun -J "$1" -w "$a,$b" -N2 --ntasks-per-node=2 --mpi=$mpi \
    --kill-on-bad-exit=0 bash -c "$noted" - "$LOCKSTEP" "${train[@]}" "${rows[@]}" \
    --checkpoint.every-steps $every --checkpoint.background false --out "$run_dir" \
    "${@:2}" >"$1.log" 2>&1 &
  step=$!
  until_it 1200 has_checkpoint
}
# has_checkpoint [RUN]: without a name, the run that has begun.
has_checkpoint() { compgen -G "${1:-$run_dir}/checkpoints/step-*.h5" >/dev/null; }

# rank_pid RANK: its process in the scenario's run.
rank_pid() {
  local pid
  for pid in $(alive "$run_dir"); do
    grep -qzx "SLURM_PROCID=$1" "/proc/$pid/environ" && echo "$pid" && return
  done
  return 1
}

# strike COMMAND...: runs the command that breaks something, and notes the time.
strike() {
  struck=$EPOCHREALTIME
  "$@"
}

# ranks_ended RANKS: true when that many of the four have ended: one on its own at least, the others
# too or killed by srun, which PMIx told of the first.
ranks_ended() { [[ -s $run_name.ends ]] && (($(alive "$run_dir" | wc -l) <= 4 - $1)); }

since_strike() { awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $struck }"; }

# ended RANKS SECONDS: that many ranks have ended within this time after the strike, with status 4
# (or `with`), except those that srun was faster to kill. `took` is when the last one had ended.
with=4
ended() {
  happens $(($2 * 10)) ranks_ended "$1"
  took=$(awk -v struck="$struck" '$3 > last { last = $3 } END { printf "%.1f", last - struck }' \
    "$run_name.ends")
  says_so_far
  ranks_ended "$1" && grep -q "^[0-9] $with " "$run_name.ends" &&
    ! grep -qvE "^[0-9] ($with|137) " "$run_name.ends" &&
    awk -v took="$took" -v most="$2" 'BEGIN { exit !(took <= most) }'
}

says_so_far() { said="after $took s: $(cat "$run_name.ends") $(tr -d '\0' <"$run_name.log")"; }
# told PATTERN: it was said, or is within 10 s: srun passes on the last words of ranks that have
# ended.
told() { happens 100 now_says "$1"; }
now_says() {
  says_so_far
  says "$1"
}

# newest: prints the step of the run's newest checkpoint, which must be whole.
newest() {
  local file
  file=$(ls "$run_dir"/checkpoints/step-*.h5 | tail -n 1)
  "$LOCKSTEP" info "$file" >/dev/null || return
  file=${file%.h5}
  echo $((10#${file##*step-}))
}

# reached: prints the last step that is done, by the metrics and by the post-mortem's report of the
# steps in progress.
reached() {
  local told
  told=$(cat "$run_dir"/post-mortem*.json 2>/dev/null)
  { steps_done; awk '$1 == "\"step\":" { print $2 - 1 }' <<<"$told"; } | sort -n | tail -n 1
}

# lost_steps: sets `lost` to the number of steps to repeat; fails when it is more than the interval.
# (Checkpoints in the background would be postponed on a slow disk.)
lost_steps() {
  local from to
  from=$(newest) && to=$(reached) || return
  lost=$((to > from ? to - from : 0))
  said+=$'\n'"reached step $to, newest checkpoint $from"
  ((lost <= every))
}

# row FAULT HOW SECONDS MESSAGE LOST: prints a line of the table of faults; the table is the lines
# with | in the logs of these tests.
row() { printf '| %s | %s | %s | %s | %s | %s |\n' "$@" "$(why_in_a_word)"; }
why_in_a_word() { "$LOCKSTEP" why "$run_dir" 2>&1 | sed -n '1s/:.*//p'; }

# error_line: the run's first error, without the part after the missing ranks.
error_line() {
  tr -d '\0' <"$run_name.log" | grep -m 1 -oE '^(rank [0-9]+: )?error: .*' |
    sed 's/; rank [0-9]* is in .*//; s/^.*error: //'
}

# steps_done: the last step of the scenario's run that its metrics show.
steps_done() {
  local line
  line=$(tr -d '\0' <"$run_dir/metrics.jsonl" | grep -o '^{"step":[0-9]*,' | tail -n 1)
  line=${line#*:}
  echo "${line%,}"
}
# median_step FIRST LAST: milliseconds that one of these steps took.
median_step() {
  tr -d '\0' <"$run_dir/metrics.jsonl" | grep '^{"step"' | sed -n "$1,$2p" | python3 -c '
import json, statistics, sys
steps = [json.loads(line) for line in sys.stdin]
def total(step):
    return sum(v for k, v in step.items() if k.endswith("_ms") and k != "time_ms")


print("%.0f" % statistics.median(map(total, steps)))'
}
goes_on_to() { (($(steps_done) >= $1)); }

# asked_to_end: the run is told to end, and does, with a checkpoint and the status for that.
asked_to_end() {
  scancel --name="$run_name" --signal=USR1
  wait $step
  said=$(tr -d '\0' <"$run_name.log")
  happens 20 ranks_ended 4
  says 'stopped after step [0-9]+ on a signal' && ! grep -qv '^[0-9] 3 ' "$run_name.ends"
}

# What is left of the run's processes ends. While the network is cut, Slurm itself may lose the word
# that a task has ended; then srun would wait forever.
over() {
  scancel --name="$run_name"
  # srun of Slurm 22.05 may stay; it has a child, which must not be the only one to end.
  try_for 200 step_is_over || { pkill -KILL -P $step; kill -KILL $step; }
  wait $step 2>/dev/null
}
step_is_over() { ! kill -0 $step 2>/dev/null; }
