#!/bin/bash
# README.md's srun command, again and again, on two cores that two other programs keep busy: every
# start trains, and nothing else on the node stops meanwhile. LOCKSTEP_STARTS: how many of each
# kind.
# nightly
# alone
# computes
# seconds: 5400
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
source "$repo/tests/support/cluster.bash"
cluster 2 --cpus 8 --mem 8000
starts=${LOCKSTEP_STARTS:-50}
cores=$(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0))[:2], sep=",")')

mkdir build
printf '#!/bin/sh\nexec taskset -c %s "%s" "$@"\n' "$cores" "$LOCKSTEP" >build/lockstep
chmod +x build/lockstep
python3 "$repo/tests/support/flowers.py" flowers 25
build/lockstep pack flowers --out data/flowers --resize 64 >pack.log 2>&1 || cat pack.log
readme=$(python3 "$repo/tests/support/pages.py" commands "$repo/README.md" |
  grep -m 1 '^srun .* train ')

# Sleeps 0.1 s again and again, and writes by how many seconds it woke up too late at worst.
cat >sleeper.py <<'END'
import os, sys, time
worst = 0.0
while True:
    began = time.monotonic()
    time.sleep(0.1)
    late = time.monotonic() - began - 0.1
    if late > worst:
        worst = late
        with open(sys.argv[1] + ".new", "w") as file:
            print(f"{worst:.2f}", file=file)
        os.rename(sys.argv[1] + ".new", sys.argv[1])
END

# start_all NAME COMMAND: starts it `starts` times next to the busy loops and a sleeper.
start_all() {
  local name=$1 i began trained=0 seconds=() failed='' figures worst pid others=()
  for i in 1 2; do
    taskset -c "$cores" bash -c 'while :; do :; done' &
    others+=($!)
  done
  rm -f late
  taskset -c "$cores" python3 sleeper.py late &
  others+=($!)
  until_it 300 test -s late
  for ((i = 0; i < starts; ++i)); do
    began=$EPOCHREALTIME
    run bash -c "$2 --epochs 1 --out runs/$i </dev/null"
    seconds+=("$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $began }")")
    if ((status == 0)) && says '= 8 ranks' && says '^done: 1 epoch'; then
      ((++trained))
    elif [[ ! $failed ]]; then
      failed="start $i, status $status: $said"
    fi
    rm -rf runs
  done
  kill "${others[@]}"
  wait "${others[@]}" 2>/dev/null
  worst=$(cat late)
  figures=$(printf '%s\n' "${seconds[@]}" | sort -n |
    awk '{ s[NR] = $1 } END { printf "%s s, at most %s s", s[int((NR + 1) / 2)], s[NR] }')
  echo "| $name | $trained of $starts trained | a start took $figures | a sleeper was late by $worst s |"
  said=$failed
  ((trained == starts))
  verdict $? "$name: every start on busy cores trains"
  said="late by $worst s"
  awk "BEGIN { exit !($worst <= 1) }"
  verdict $? "$name: a program that sleeps next to the starts is never late by more than 1 s"
}

[[ $readme == 'srun --mpi=pmix -N 2 -n 8 build/lockstep train '* ]]
verdict $? 'README.md has the command that this script repeats'
mpirun="mpirun --oversubscribe -np 8 build/lockstep ${readme#*build/lockstep }"
unset OMPI_MCA_mpi_yield_when_idle
start_all 'srun --mpi=pmix' "$readme"
start_all 'srun --mpi=none' "${readme/--mpi=pmix/--mpi=none}"
start_all 'mpirun --oversubscribe' "$mpirun"
export OMPI_MCA_mpi_yield_when_idle=1
start_all 'mpirun --oversubscribe, OMPI_MCA_mpi_yield_when_idle=1' "$mpirun"

# A site's file of overrides takes precedence over the environment.
override=/etc/openmpi/openmpi-mca-params-override.conf
if [[ -d ${override%/*} && ! -e $override ]]; then
  cp -r "${override%/*}" etc
  echo 'mpi_yield_when_idle = 1' >"etc/${override##*/}"
  unset OMPI_MCA_mpi_yield_when_idle
  export etc=$PWD/etc folder=${override%/*} command=$mpirun
  start_all "mpirun --oversubscribe, yields in a site's file of overrides" \
    'unshare --mount bash -c "mount --bind \"\$etc\" \"\$folder\" && \$command \$*" -'
fi
