#!/bin/bash
# A search whose workers are on machines with their own kernels, on a real NFS server, which is
# killed with replies on their way; one of the machines is lost. The trainings only write their
# curves. GUESTS, WORKERS (of each) and TRIALS may be more.
# nightly
# computes
# seconds: 1800
script=$(realpath "$0")
source "$(dirname "$0")/../support/cluster.bash"
source "$support/../cluster/nfs/nfs.bash"
nfs_inside "$script"
guests=${GUESTS:-3} workers=${WORKERS:-4} trials=${TRIALS:-90}
trainer=$support/recorded_training.bash
nfs_up
printf '[optim.lr]\nlow = 0.001\nhigh = 1\nlog = true\n' >space.toml
plan() {
  run "$LOCKSTEP" search plan space.toml --trials "$trials" --data.train d --data.val d --epochs 9 \
    "$@" && ((status == 0)) || stop_here
}
has_results() { (($(ls "export/$1/results" | wc -l) >= $2)); }

# on_guests NAME STRIKES: workers on guests. The server is killed so often, every second time with
# lost replies, and the first guest after the third time.
on_guests() {
  local id k
  pids=()
  python3 "$nfs/appeared.py" "export/$1/results" >"$1.appeared" &
  until_it 100 watches $!
  for ((id = 1; id <= guests; ++id)); do
    guest "$id" "for k in \$(seq $workers); do
      '$LOCKSTEP' search run /mnt/shared/$1 --trainer '$trainer' --stale-s 5 \\
        >/mnt/work/$1-$id-\$k.log 2>&1 &
      pids+=(\$!)
    done
    for pid in \${pids[@]}; do
      wait \$pid
      echo worker \$pid: \$?
    done"
    pids+=("$guest")
  done
  for ((k = 1; k <= $2; ++k)); do
    until_it 9000 has_results "$1" $((trials * k / ($2 + 1)))
    nfs_strike $( ((k % 2)) && echo lost)
    ((k != 3)) || kill -KILL "${pids[0]}"
  done
  for k in "${pids[@]}"; do wait "$k"; done
  for ((id = 1; id <= guests; ++id)); do ip link del "tap$id"; done
  said=$(tail -n 3 guest-*.log)
  (($(cat guest-*.log | tr -d '\r' | grep -cE '^worker [0-9]+: 0$') == (guests - 1) * workers))
}
watches() { grep -q ^inotify /proc/$1/fdinfo/*; } 2>/dev/null
# replayed NAME: of the guest that was lost, results may not have been told.
replayed() {
  local legs
  legs=$(ls "export/$1/results" | wc -l)
  run python3 "$nfs/replay.py" "export/$1" "$1.appeared" $((legs - workers)) "$1"-*.log
  return "$status"
}

plan --out export/quick
on_guests quick 6 2>/dev/null
verdict $? 'workers on NFS end with the search, also if the server was killed'
replayed quick
verdict $? 'each leg has one result, told once, and what was chosen follows from the results'
echo "    $said; $(wc -l <relay.log) lost replies; the server's ends:" $(sort server.log | uniq -c)
[[ -s relay.log ]]
verdict $? 'replies were lost on their way'

plan --out one --mode sync
run "$LOCKSTEP" search run one --trainer "$trainer"
plan --out export/sync --mode sync
graceless=false nfs_conf
nfs_strike
on_guests sync 3 2>/dev/null
verdict $? 'so they do if the server gives its clients time to come back'
replayed sync && [[ $("$LOCKSTEP" search show export/sync) == "$("$LOCKSTEP" search show one)" ]]
verdict $? 'in step, the table is that of one worker, byte for byte'
echo "    $said"
