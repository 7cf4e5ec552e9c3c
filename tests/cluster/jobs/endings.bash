# Makes the endings of named_endings.sh for real: each function ends some runs in one way, and notes
# their kind in the file truth. In addition to faults.bash.

# so KIND RUN: this is how the run really ended.
so() { echo "$1=$2" >>truth; }
begun() { grep -q '"kind":"start"' "$1/metrics.jsonl"; } 2>/dev/null
# train_here RANKS RUN OPTION...: a training of this machine; returns when it has a checkpoint, or
# at another condition, `ready`. Sets `process` and, by rank, `pids`.
train_here() {
  local launcher=()
  (($1 == 1)) || launcher=(mpirun --mca odls_base_sigkill_timeout 4 --oversubscribe --bind-to none
    -np "$1")
  env --default-signal=INT,HUP "${launcher[@]}" "${train[@]}" "${rows[@]}" --out "$2" "${@:3}" \
    >"${2//\//-}.log" 2>&1 &
  process=$! pids=($!)
  until_it 1200 "${ready:-has_checkpoint}" "$2"
  (($1 == 1)) || rank_pids $process
}
# on_nodes RUN NODES RANKS OPTION...: as train_here, with that many ranks on each of these nodes
# (with commas between them).
on_nodes() {
  run_dir=$1 run_name=$1
  srun -J "$1" -w "$2" -N"$(tr , '\n' <<<"$2" | wc -l)" --ntasks-per-node="$3" --mpi="$mpi" \
    --kill-on-bad-exit=0 "${train[@]}" "${rows[@]}" --out "$1" "${@:4}" >"$1.log" 2>&1 &
  step=$!
  until_it 1200 "${ready:-has_checkpoint}" "$1"
}
# ends_alone: waits for what train_here has started; for two minutes at most.
ends_alone() {
  happens 1200 is_over || kill -KILL "$process" "${pids[@]}"
  wait "$process" 2>/dev/null
}
is_over() { ! kill -0 "$process" 2>/dev/null; }
none_alive() { [[ ! $(alive "$1") ]]; }
a_moment() { sleep "$((RANDOM % 2)).$((RANDOM % 10))"; }
# broken KIND RUN NODES RANKS COMMAND...: a run as on_nodes, which the command ends.
broken() {
  on_nodes "$2" "$3" "$4" "${for_ever[@]}" "${clock[@]}" --liveness.timeout-s 5
  a_moment
  strike "${@:5}"
  happens 600 none_alive "$2"
  over
  so "$1" "$2"
}

finished() {
  local n
  for n in 1 2 3; do
    run ranks $n "${train[@]}" "${rows[@]}" --out finished$n --epochs $n --seed $n
    so finished finished$n
    train_here 1 again$n "${for_ever[@]}" "${clock[@]}"
    kill -KILL "$process"
    wait "$process" 2>/dev/null
    run ranks $n "${train[@]}" "${rows[@]}" --out again$n --resume auto --epochs 10 \
      --checkpoint.every-steps 5 --optim.lr 0.001 "${clock[@]}"
    so finished again$n
  done
}

stopped() {
  local one
  for one in TERM USR1 INT HUP; do
    train_here 1 stopped$one "${for_ever[@]}"
    kill -$one "$process"
    wait "$process"
    so stopped stopped$one
  done
  for one in 0 1; do
    train_here 2 stopped_rank$one "${for_ever[@]}" "${clock[@]}"
    kill -USR1 "${pids[one]}"
    wait "$process"
    so stopped stopped_rank$one
  done
  run "${train[@]}" "${rows[@]}" --out planned --epochs 9 --stop-after 7
  so stopped planned
}

out_of_time() {
  local one
  for one in 4 6 8; do
    SLURM_JOB_ID=99999$one SLURM_JOB_END_TIME=$(($(date +%s) + one + 3)) \
      "${train[@]}" "${rows[@]}" --out limit$one "${for_ever[@]}" --walltime.margin-s 3 \
      >limit$one.log 2>&1
    so 'out of time' limit$one
  done
}
time_limit() {
  SLURM_TIMELIMIT=1 on_nodes slurm_limit "$node1" 2 "${for_ever[@]}" "${clock[@]}"
  wait $step
  so 'out of time' slurm_limit
}
# Its first step does not end within Slurm's patience.
deaf=(--epochs 9 --backend clock --clock.step-ms 200000)
hard_limit() {
  SLURM_TIMELIMIT=1 ready=begun on_nodes hard_limit "$node2" 2 "${deaf[@]}"
  wait $step
  so 'out of time' hard_limit
}

preempted() {
  local one
  for one in 3 4 5 6; do
    local node=node$one
    SLURM_PARTITION=low on_nodes preempted$one "${!node}" $((one % 2 + 1)) "${for_ever[@]}" \
      "${clock[@]}"
    a_moment
    srun -p high --exclusive -w "${!node}" -N1 true >high$one.log 2>&1
    happens 600 none_alive preempted$one
    wait $step
    so preempted preempted$one
  done
}
preempted_deaf() {
  SLURM_PARTITION=low ready=begun on_nodes preempted7 "$node7" 1 "${deaf[@]}"
  srun -p high --exclusive -w "$node7" -N1 true >high7.log 2>&1
  happens 600 none_alive preempted7
  wait $step
  so preempted preempted7
}

# A limit at what the process has already: its next large request fails, at the latest for a
# checkpoint.
out_of_memory() {
  local one n kb
  train=("${train[@]/#25/16}")  # rows
  for one in 1 2 3 4 5; do
    n=$((one % 2 + 1))
    # A larger rate makes some of these trainings diverge before that.
    train_here $n memory$one "${for_ever[@]/#0.001/0.00001}" --seed $one --model resnet18
    a_moment
    kb=$(awk '/^VmSize/ { print $2 }' "/proc/${pids[0]}/status")
    [[ $kb ]] || stop_here "memory$one has ended: $(tail -n 20 memory$one.log)"
    prlimit --pid "${pids[0]}" --as=$((kb * 1024))
    ends_alone
    so 'out of memory' memory$one
  done
}

# The kernel ends the rank that writes checkpoints, for lack of memory of its control group, at the
# first one: later ones use its memory again.
killed_for_memory() {
  local one group=/sys/fs/cgroup/memory/lockstep-$BASHPID limit=memory.limit_in_bytes
  [[ -d ${group%/*} ]] || group=/sys/fs/cgroup/lockstep-$BASHPID limit=memory.max
  train=("${train[@]/#25/8}")
  for one in 6 7; do
    mkdir "$group" && echo 16M >"$group/$limit" || return
    ready=begun train_here 2 memory$one "${for_ever[@]/#5/60}" "${clock[@]}" --seed $one \
      --model resnet18
    echo "${pids[0]}" >"$group/cgroup.procs"
    ends_alone
    until_it 100 rmdir "$group"
    so 'out of memory' memory$one
  done
}

lost_rank() {
  local n one
  for n in 2 3 4; do
    for one in 0 $((n - 1)); do
      train_here $n lost$n-$one "${for_ever[@]}" "${clock[@]}"
      a_moment
      kill -KILL "${pids[one]}"
      wait "$process"
      so 'lost rank' lost$n-$one
    done
  done
}
held_rank() {
  train_here 2 held_rank "${for_ever[@]}" "${clock[@]}" --liveness.timeout-s 3
  kill -STOP "${pids[1]}"
  wait "$process"
  kill -KILL "${pids[1]}" 2>/dev/null
  so 'lost rank' held_rank
}
crash() { broken 'lost rank' crash "$node8,$node9" 2 mini kill-node "$node9"; }
crash_of_the_first() { broken 'lost rank' crash0 "$node10,$node11" 1 mini kill-node "$node10"; }
cut_off() { broken network cut_off "$node12,$node13" 2 mini cut "$node13"; }
unplugged() { broken network unplugged "$node14,$node15" 1 mini cut --carrier "$node15"; }
a_link() { broken network a_link "$node16,$node17,$node18" 1 mini cut "$node17" "$node18"; }
a_link_of_tcp() {
  mpi=none
  broken network tcp_link "$node19,$node20,$node21" 1 mini cut "$node20" "$node21"
}
small_packets() {
  broken network small_packets "$node22,$node23" 1 mini exec "$node23" ip link set eth0 mtu 600
}

frozen() {
  local one all=()
  for one in 1 2 3; do
    train_here 2 ice/run$one "${for_ever[@]}" --seed $one --comm.deadline-s $((4 + one))
    all+=($process)
  done
  fsfreeze -f ice
  kill -USR1 "${all[@]}"
  for one in 1 2 3; do
    until_it 600 grep -aq 'does the file system of the run answer' ice-run$one.log
  done
  fsfreeze -u ice
  wait "${all[@]}"
  for one in 1 2 3; do so 'file system' ice/run$one; done
}
failing_disk() {
  local one
  for one in EIO ESTALE; do
    run on_disk small/train error=$one:when=80+ "${train[@]}" "${rows[@]}" --out disk$one \
      "${for_ever[@]}"
    so 'file system' disk$one
  done
  run strace -f -qq --seccomp-bpf -o /dev/null -e trace=write -P "$PWD/diskw/metrics.jsonl" \
    -e inject=write:error=EIO:when=9+ "${train[@]}" "${rows[@]}" --out diskw "${for_ever[@]}"
  so 'file system' diskw
}
disk_full() {
  local one
  for one in 1 2 3; do
    train_here $((one % 2 + 1)) full/run$one "${for_ever[@]}" --seed $one
    dd if=/dev/zero of=full/filler bs=64k status=none 2>/dev/null
    wait "$process"
    rm full/filler
    so 'disk full' full/run$one
  done
}

diverged() {
  local one
  for one in 1 2 3 4 5; do
    run ranks $((one % 2 + 1)) "${train[@]}" "${rows[@]}" --out diverged$one --epochs 20 \
      --optim.lr ${one}00000 --seed $one
    so diverged diverged$one
  done
}

bad_data() {
  local one
  for one in 0 1 2; do
    cp -r small/train rotten$one
    python3 damage.py rotten$one/train-0000$one-*.h5
    run ranks $((one % 2 + 1)) "${train[@]}" --data.train rotten$one --out bad$one --epochs 3
    so 'bad data' bad$one
  done
  cp -r small/val rotten3
  python3 damage.py rotten3/*.h5
  run "${train[@]}" "${rows[@]}" --data.val rotten3 --out bad3 --epochs 3
  so 'bad data' bad3
  run "${train[@]}" --data.train rotten1 --out bad4 --epochs 3 --data.on-bad-row skip \
    --data.bad-rows-limit 2
  so 'bad data' bad4
  cp -r small/train shrinking
  rows=(--data.train shrinking)
  train_here 2 bad5 "${for_ever[@]}"
  truncate -s 15000 shrinking/train-00001-*.h5
  wait "$process"
  so 'bad data' bad5
}

# A bit of a rank's weights changes in its memory. With a rate of 0 they are those of a checkpoint.
disagreement() {
  local one n file
  for one in 1 2 3 4 5; do
    n=$((one % 2 + 2))
    mpirun --oversubscribe --bind-to none -np $n "$LOCKSTEP" train "${rows[@]}" --batch 24 \
      --threads 1 --epochs 100000 --audit.every-steps 5 --checkpoint.every-steps 5 --optim.lr 0 \
      --checkpoint.every-epochs 0 --seed $one --out differ$one >differ$one.log 2>&1 &
    process=$!
    until_it 1200 has_checkpoint differ$one
    rank_pids $process
    file=$(ls differ$one/checkpoints/step-*.h5 | tail -n 1)
    "$LOCKSTEP" export "$file" --to differ$one.safetensors >export.log 2>&1
    python3 "$own/flip_bit.py" "${pids[one % n]}" differ$one.safetensors ||
      stop_here 'no weights were found'
    wait $process
    so disagreement differ$one
  done
}

killed() {
  local one
  for one in 1 2 3; do
    train_here 1 killed$one "${for_ever[@]}" --seed $one
    a_moment
    kill -KILL "$process"
    wait "$process" 2>/dev/null
    so killed killed$one
  done
  train_here 2 killed4 "${for_ever[@]}" "${clock[@]}"
  kill -KILL "$process" "${pids[@]}"
  wait "$process" 2>/dev/null
  so killed killed4
  on_nodes killed5 "$node24" 2 "${for_ever[@]}" "${clock[@]}"
  kill -KILL $(alive killed5)
  happens 600 none_alive killed5
  over
  so killed killed5
}

# What the program has no name for.
unknown() {
  local one
  for one in 1 2 3; do
    train_here $((one % 2 + 1)) odd$one "${for_ever[@]}" --seed $one
    mv odd$one/checkpoints odd$one/elsewhere
    echo >odd$one/checkpoints
    wait "$process"
    rm odd$one/checkpoints
    so unknown odd$one
  done
  for one in 4 5; do
    train_here 1 odd$one "${for_ever[@]}" --seed $one
    prlimit --pid "$process" --nofile=3
    ends_alone
    so unknown odd$one
  done
}

# healthy FROM TO: nothing happened to them.
healthy() {
  local one name kind
  for ((one = $1; one < $2; ++one)); do
    name=healthy$one
    local -a command=("${train[@]}" "${rows[@]}" --out $name --seed $one)
    ((one % 2)) || command+=("${clock[@]}")
    case $((one % 5)) in
      0) run "${command[@]}" --epochs 1 ;;
      1) run "${command[@]}" --epochs 2 --stop-after $((one % 9 + 1)) ;;
      2) run ranks 2 "${command[@]}" --epochs 1 ;;
      3)
        run "${command[@]}" --epochs 2 --stop-after 3
        run "${command[@]}" --epochs 2 --resume auto
        ;;
      4)
        "${command[@]}" --epochs 100000 >$name.log 2>&1 &
        until_it 600 grep -asq 'first step done' $name.log
        kill -USR1 $!
        wait $!
        ;;
    esac
    ((one % 5 == 1 || one % 5 == 4)) && kind=stopped || kind=finished
    echo "$kind=$name" >>healthy
  done
}
healthy1() { healthy 0 34; }
healthy2() { healthy 34 67; }
healthy3() { healthy 67 100; }

