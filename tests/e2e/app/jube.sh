#!/bin/bash
# lockstep's benchmark as centres run it, by JUBE: the table has lockstep's own figures, and a rank
# that fails is an error without a figure.
# computes
# ci
root=$PWD
source "$(dirname "$0")/../../support/e2e.bash"
if ! command -v jube >/dev/null; then
  echo 'SKIP JUBE shows what lockstep measured: jube is not here (jobs/setup.sh test)'
  exit 0
fi
export LOCKSTEP
# study NAME TAG...: runs the committed file; `said` is its summary and table, `table` the CSV.
study() {
  run jube run --hide-animation "$root/jobs/jube/lockstep.xml" -o "$1" "${@:2}"
  ((status == 0)) || return
  said+=$'\n'$(jube result "$1" 2>&1)
  table=$1/000000/result/csv.dat
}

# Where this user may mount, the machine has a counter of energy, which a process moves on.
folder=class/powercap/intel-rapl:0
mkdir -p "$folder"
echo package-0 >"$folder/name"
echo 999999999999999 >"$folder/max_energy_range_uj"
cat >counts.py <<'END'
import os, sys, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
while True:
    os.pwrite(file, b"%015d\n" % int(time.monotonic() * 2e7), 0)  # 20 W
    time.sleep(0.01)
END
python3 counts.py "$folder/energy_uj" &
counts=$!
cat >metered <<END
#!/bin/bash
exec unshare --mount bash -c 'mount --bind "$PWD/class" /sys/class && exec "\$@"' - \\
  "$LOCKSTEP" "\$@"
END
chmod +x metered
metered=$LOCKSTEP
! unshare --mount mount --bind class /sys/class 2>/dev/null || metered=./metered
LOCKSTEP=$metered study cpu && says 'train \| +3 \| +0 \| +0 \| +0 \| +3 ' &&
  python3 "$support/benchmark.py" jube "$table" cpu/000000 1,2,4 &&
  { [[ $metered == "$LOCKSTEP" ]] || (($(says 'RAPL' && grep -c '[0-9],RAPL$' "$table") == 3)); }
verdict $? 'JUBE shows what lockstep measured on 1, 2 and 4 ranks: each figure, and what follows'
kill $counts

study clock -t clock && says '\| +64 \| +1 \| +1024 \|' &&
  python3 "$support/benchmark.py" jube "$table" clock/000000 64
verdict $? 'JUBE shows what lockstep measured on 64 ranks that wait'

# Rank 1 of 4 is killed when all have met: before that, Open MPI 4's mpirun may stay for ever. A
# launcher of another MPI starts each of 2 ranks alone, and both would finish.
cat >broken <<'END'
#!/bin/bash
case $OMPI_COMM_WORLD_SIZE:$OMPI_COMM_WORLD_RANK in
  2:*) unset ${!OMPI_*} ${!PMIX_*} ${!PRTE_*} ;;
  4:1)
    (until grep -q 'computing on' stdout; do sleep 0.05; done; kill -KILL $$) 2>/dev/null &
    ;;
esac
exec "$REAL" "$@"
END
chmod +x broken
REAL=$LOCKSTEP LOCKSTEP=./broken study lost
says 'train \| +3 \| +0 \| +0 \| +2 \| +1 ' &&
  python3 "$support/benchmark.py" jube "$table" lost/000000 1 &&
  says '\| +4 +(\| +){8}\|$' && grep -q 'signal 9' lost/000000/000002_train/work/stderr
verdict $? 'a rank that was killed is an error of JUBE, whose row has no figure'
says '\| +2 +(\| +){8}\|$' &&
  grep -q 'not 2 ranks in one run' lost/000000/000001_train/work/stderr
verdict $? 'ranks that were started alone are an error, and not a fast run'

run env LOCKSTEP=false jube run -e --hide-animation "$root/jobs/jube/lockstep.xml" -o stops
((status != 0))
verdict $? 'jube run -e ends at the first error, with another status than 0'
