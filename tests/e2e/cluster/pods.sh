#!/bin/bash
# Ranks that meet by an address, as in pods of Kubernetes: separate networks, processes and mounts,
# names that appear late and change, pods that are restarted; and tokens as Secrets have them.
# ci
# computes
if [[ ! ${POD_NETWORK:-} ]]; then
  # All is done in a network and with mounts of this script alone.
  if [[ $(id -u) != 0 ]] || ! unshare -n -m true 2>/dev/null || ! command -v ip >/dev/null; then
    echo 'SKIP each pod has its own network: it takes root, unshare and ip'
    exit 0
  fi
  POD_NETWORK=1 exec unshare -n -m "$0"
fi
source "$(dirname "${BASH_SOURCE[0]}")/../../support/e2e.bash"
pack_small
fixed=(train --data.train "$WORK/small/train" --batch 60 --comm.deadline-s 60
  --liveness.timeout-s 8 --checkpoint.every-steps 3)
mkdir -p /run/netns /etc/netns
mount -t tmpfs none /run/netns && mount -t tmpfs none /etc/netns
ip link set lo up
ip link add cluster type bridge && ip link set cluster up && ip addr add 10.78.0.254/24 dev cluster
names=$WORK/hosts
for i in 0 1 2 3; do
  ip netns add pod$i
  ip link add v$i type veth peer name eth0 netns pod$i
  ip link set v$i master cluster up
  ip -n pod$i link set lo up
  ip -n pod$i link set eth0 up
  mkdir -p /etc/netns/pod$i
  echo '127.0.0.1 localhost' >"$names"
  : >/etc/netns/pod$i/hosts
  mount --bind "$names" /etc/netns/pod$i/hosts
done
# addresses A0 A1 A2 A3: the last parts of the pods' addresses.
addresses() {
  local i=0 last
  for last; do
    ip -n pod$i addr flush dev eth0
    ip -n pod$i addr add 10.78.0.$last/24 dev eth0
    i=$((i + 1))
  done
}
# name LAST: from now on rank 0's name has this address only, in the file that all pods see.
name() { printf '127.0.0.1 localhost\n10.78.0.%s train-0.train\n' "$1" >"$names"; }
# pod N COMMAND...: in the background, with its own processes and mounts; its output is in pod-N.
pod() {
  JOB_COMPLETION_INDEX=$1 LOCKSTEP_WORLD=${world:-4} LOCKSTEP_MEET=train-0.train:29500 \
    LOCKSTEP_TOKEN_FILE=${token:-$WORK/token} ip netns exec pod$(($1 % 4)) \
    unshare --pid --fork --kill-child --mount-proc --uts bash -c 'hostname train-$0; exec "$@"' \
    "$1" "$LOCKSTEP" "${@:2}" >"pod-$1" 2>&1 &
  pods[$1]=$!
}
# ends: waits for all pods; their statuses in `ended`, what they said in `said`.
ends() {
  ended=''
  local i
  for i in "${!pods[@]}"; do
    wait "${pods[i]}"
    ended+=" $?"
  done
  said=$(tail -n +1 pod-*)
  status=${ended# }
  pods=()
}
kill_pod() { kill -9 "${pods[$1]}" && wait "${pods[$1]}" 2>/dev/null; }
started() { grep -qs 'first step done' "pod-$1"; }
ms() { date +%s%3N; }
newest() { compgen -G "$1/checkpoints/step-*.h5" | sort | tail -n 1; }
pods=()
printf '%032x\n' 0x5eed >token

# late: pod 0 last, and its name later still.
addresses 11 12 13 14
for i in 1 2 3; do pod $i whoami --comm.deadline-s 30; done
nap 1
pod 0 whoami --comm.deadline-s 30
nap 2
name 11
named_ms=$(ms)
ends
took_ms=$(($(ms) - named_ms))
[[ $ended == ' 0 0 0 0' ]] && says 'rank 3 of 4, .* on train-3, says LOCKSTEP_WORLD' &&
  says 'the ranks met by: TCP, without MPI' && ((took_ms < 2000))
verdict $? "ranks meet at once when rank 0's name appears (it took $took_ms ms, with their ends)"

run ranks 4 "$LOCKSTEP" "${fixed[@]}" --epochs 3 --out plain
for i in 0 1 2 3; do pod $i "${fixed[@]}" --epochs 3 --out "$WORK/pods"; done
ends
[[ $ended == ' 0 0 0 0' && $(newest plain) ]] &&
  [[ $(tensors "$(newest plain)") == "$(tensors "$(newest pods)")" ]]
verdict $? 'pods train the weights of mpirun, bit for bit'

# noise: what others send to rank 0's port before the ranks come.
pod 0 whoami --comm.deadline-s 30
noisy() {
  python3 - <<'END'
import os, socket
def connect():
    return socket.create_connection(("10.78.0.11", 29500), 1)
try:
    connect().close()
except OSError:
    raise SystemExit(1)
scans = [connect() for _ in range(50)]
http = connect()
http.sendall(b"GET / HTTP/1.1\r\nHost: train-0\r\n\r\n")
noise = connect()
try:
    noise.sendall(os.urandom(1 << 20))
except OSError:
    pass
for one in scans[:25]:
    one.close()
END
}
happens 100 noisy
for i in 1 2 3; do pod $i whoami --comm.deadline-s 30; done
ends
[[ $ended == ' 0 0 0 0' ]]
verdict $? 'scans, HTTP and noise at the port keep no rank away'

# killed: one pod is lost; all are made again, with other addresses.
for i in 0 1 2 3; do pod $i "${fixed[@]}" --out "$WORK/again" --resume auto --epochs 400; done
until_it 300 started 0
happens 300 newest again
kill_pod 2
ends
[[ $ended == ' 4 4 137 4' ]] && says 'rank 2 on train-2'
verdict $? 'the loss of a pod ends the others, which name it'
addresses 14 13 12 11
name 14
for i in 3 2 1 0; do
  pod $i "${fixed[@]}" --out "$WORK/again" --resume auto --epochs 400 --stop-after 120
done
ends
run ranks 4 "$LOCKSTEP" "${fixed[@]}" --out whole --epochs 400 --stop-after 120
status=$ended
[[ $ended == ' 3 3 3 3' && $(newest whole) == *120.h5 && $(newest again) == *120.h5 &&
  $(tensors "$(newest whole)") == "$(tensors "$(newest again)")" ]]
verdict $? 'all pods, made again with other addresses, continue to the bits of one run'

# in place: pods are started again while their former rank 0 is still there.
child_of() { read -r child _ <"/proc/$1/task/$1/children" && echo "$child"; }
for i in 0 1 2 3; do pod $i "${fixed[@]}" --out "$WORK/place" --epochs 400; done
until_it 300 started 0
run env JOB_COMPLETION_INDEX=1 LOCKSTEP_WORLD=4 LOCKSTEP_MEET=train-0.train:29500 \
  LOCKSTEP_TOKEN_FILE=token ip netns exec pod1 "$LOCKSTEP" whoami --comm.deadline-s 3
((status == 4)) &&
  says 'refused by rank 0: rank 1 is already here, from train-1, in start [0-9a-f]{8} of rank 0'
verdict $? 'a second rank 1 is told by which start of rank 0 it is not wanted, and ends in time'
old=$(child_of "${pods[0]}")
former=${pods[0]}
kill -STOP "$old"
for i in 1 2 3; do kill_pod $i; done
for i in 0 1 2 3; do pod $i "${fixed[@]}" --epochs 3 --out "$WORK/place-2"; done
nap 4
kill -CONT "$old"
wait "$former"
former_status=$?
ends
((former_status == 4)) && [[ $ended == ' 0 0 0 0' ]] &&
  [[ $(tensors "$(newest place-2)") == "$(tensors "$(newest plain)")" ]]
verdict $? 'pods that are started again in place meet when the former rank 0 is gone, and only then'

# tokens, as users and Secrets have them
with_token() {  # FILE: whether two ranks meet by it, on this machine
  for i in 0 1; do
    "$LOCKSTEP" whoami --meet localhost:29511 --world 2 --rank $i --token-file "$1" \
      --comm.deadline-s 5 >"rank-$i" 2>&1 &
    pods[i]=$!
  done
  ends
  said=$(cat rank-0 rank-1)
}
printf '%032x' 0x5eed >bare
mkdir -p secret/..2026 && cp token secret/..2026/token && chmod 644 secret/..2026/token
ln -s ..2026 secret/..data && ln -s ..data/token secret/token
chmod 400 bare
with_token bare
[[ $ended == ' 0 0' ]] && ! says 'others may read'
verdict $? 'a token needs no end of its line'
with_token secret/token
[[ $ended == ' 0 0' ]] && says 'secret/token: others may read the token \(mode 0644\)'
verdict $? "a Secret's file, a link that others may read, is a note"
printf '%031x\n' 0x5eed >short
: >empty
tr 5 x <token >letters
for file in short:'31 digits' empty:nothing letters:'other characters' none:'No such file'; do
  with_token "${file%%:*}"
  [[ $ended == ' 2 2' ]] && says "^error: ${file%%:*}: .*${file#*:}"
  verdict $? "a token's file that is wrong is named: ${file#*:}"
done
printf '%032x\n' 0xbad >other
"$LOCKSTEP" whoami --meet localhost:29512 --world 2 --rank 0 --token-file token \
  --comm.deadline-s 4 >rank-0 2>&1 &
run "$LOCKSTEP" whoami --meet localhost:29512 --world 2 --rank 1 --token-file other \
  --comm.deadline-s 3
wait $!
((status == 4)) && grep -q 'rank 1 did not come .* did not know the secret in token' rank-0 &&
  says "localhost port 29512: .*know.* secret.*\(its file here: other\)"
verdict $? 'another token keeps a rank away, and both sides name their files'

# variables of Kubeflow Trainer, and of a service called lockstep
run env PET_NNODES=4 PET_NODE_RANK=2 JOB_COMPLETION_INDEX=2 PET_MASTER_ADDR=localhost "$LOCKSTEP" \
  whoami
((status == 2)) && says 'PET_NNODES declares 4 ranks, but not the token'
verdict $? 'a declared world of four does not become four worlds of one'
run env LOCKSTEP_WORLD=4 LOCKSTEP_RANK=0 "$LOCKSTEP" train --data.train small/train --out alone
((status == 2)) && says 'the world declares 4 ranks, but not where they meet' && [[ ! -e alone ]]
verdict $? 'nor does one declared by LOCKSTEP_WORLD'
for i in 0 1; do
  PET_NNODES=2 PET_NODE_RANK=$i PET_NPROC_PER_NODE=1 PET_MASTER_ADDR=localhost \
    PET_MASTER_PORT=29513 LOCKSTEP_TOKEN_FILE=token LOCKSTEP_PORT=tcp://10.96.7.7:80 \
    "$LOCKSTEP" whoami --comm.deadline-s 10 >"pod-$i" 2>&1 &
  pods[i]=$!
done
rm -f pod-2 pod-3
ends
[[ $ended == ' 0 0' ]] && says 'rank 1 of 2, .* says Kubeflow Trainer' &&
  says 'note: LOCKSTEP_PORT=tcp://10.96.7.7:80 .* is not read'
verdict $? "Trainer's variables are enough with a token; a service's link is not read"

# sixty-four pods, of which one never comes
for ((i = 0; i < 63; ++i)); do
  LOCKSTEP_RANK=$((i < 40 ? i : i + 1)) LOCKSTEP_WORLD=64 LOCKSTEP_MEET=localhost:29514 \
    LOCKSTEP_TOKEN_FILE=token "$LOCKSTEP" whoami --comm.deadline-s 25 >"pod-$i" 2>&1 &
  pods[i]=$!
done
cpu_ticks() {
  local pid fields sum=0
  for pid in "${pods[@]}"; do
    fields=($(sed 's/.*) //' "/proc/$pid/stat")) && sum=$((sum + fields[11] + fields[12]))
  done
  echo $sum
}
nap 14
before=$(cpu_ticks) before_ms=$(ms)
nap 6
used=$(($(cpu_ticks) - before)) waited_ms=$(($(ms) - before_ms))
ends
share=$(awk "BEGIN {print 100 * 10 * $used / $waited_ms / 63}")
says 'error: start-up: rank 40 did not come' && awk "BEGIN {exit !($share < 1)}"
verdict $? "of 64 pods the one that does not come is named; those that wait use $share % of a core"
