# mini-slurm: nodes that die and networks that fail; sourced by mini-slurm.

# port_state NAME STATE: 0 drops everything, 3 forwards.
port_state() { bridge link set dev "$(veth "$1")" state "$2" 2>/dev/null; }

cmd_kill_node() {
  local soft='' n
  [ "${1:-}" = --soft ] && { soft=1; shift; }
  n=${1:?name}; [ "${2:-}" = --soft ] && soft=1
  is_node "$n"
  [ -n "$soft" ] || port_state "$n" 0 || true
  stop "init.$n" KILL
  unshape "$n"
  ip link del "$(veth "$n")" 2>/dev/null || true
}
cmd_kill_slurmd() {
  local p; is_node "${1:?name}"
  slurmd_alive "$1" || return 0
  read -r p < "$S/node/$1/slurmd.pid"
  inside "$1" -r -m -p -- kill -KILL "$p"
}
nudge() {                               # makes slurmd register again at once
  local p; slurmd_alive "$1" || return 0
  read -r p < "$S/node/$1/slurmd.pid"
  inside "$1" -r -m -p -- kill -HUP "$p" 2>/dev/null || true
}
pair() {                                # neighbour entries that lead nowhere, in both directions
  local x a b
  for x in "$1 $2" "$2 $1"; do
    b=${x#* } a=${x% *}
    inside "$a" -n -- ip neigh replace "$(addr "$b")" lladdr 02:6d:73:ff:ff:ff nud permanent \
      dev eth0
  done
}
unpair() {
  local x a b
  for x in "$1 $2" "$2 $1"; do
    b=${x#* } a=${x% *}
    pid_of "init.$a" >/dev/null || continue
    inside "$a" -n -- ip neigh del "$(addr "$b")" dev eth0 2>/dev/null || true
  done
}
cmd_cut() {
  local how=silent
  [ "${1:-}" = --carrier ] && { how=carrier; shift; }
  is_node "${1:?name}"
  pid_of "init.$1" >/dev/null || die "$1 is down"
  if [ -n "${2:-}" ]; then is_node "$2"; pair "$1" "$2"; return; fi
  if [ $how = carrier ]; then ip link set "$(veth "$1")" down; else port_state "$1" 0; fi
  echo $how > "$S/node/$1/cut"
}
cmd_mend() {
  local n i
  is_node "${1:?name}"
  pid_of "init.$1" >/dev/null || die "$1 is down"
  if [ -n "${2:-}" ]; then is_node "$2"; unpair "$1" "$2"; return; fi
  ip link set "$(veth "$1")" up
  for ((i = 0; i < 100; i++)); do port_state "$1" 3 && break; nap 0.02; done
  for n in $(nodes); do [ "$n" = "$1" ] || unpair "$1" "$n"; done
  rm -f "$S/node/$1/cut"
  nudge "$1"
}

# Limits use the kernel's netem if it has it. Otherwise its token buckets limit a rate alone; else
# frames pass through a small relay between two TAP devices, which delays, drops and paces them.
unshape() {
  local n=$1 v; v=$(veth "$n")
  rm -f "$S/node/$n/shape"
  tc qdisc del dev "$v" root 2>/dev/null || true
  if pid_of "init.$n" >/dev/null; then
    inside "$n" -n -- tc qdisc del dev eth0 root 2>/dev/null || true
    inside "$n" -n -- ip link set eth0 gso_max_size 65536 2>/dev/null || true
  fi
  if [ -e "$S/pid/relay.$n" ]; then
    ip link set "$v" master "$BR" 2>/dev/null || true
    stop "relay.$n" TERM
    ip link del "msx-$n" 2>/dev/null || true
    [ "$(cat "$S/node/$n/cut" 2>/dev/null)" != silent ] || port_state "$n" 0
  fi
  return 0
}
number() {                              # in seconds, bits per second, or as a share
  awk -v x="$1" 'BEGIN { n = x + 0
    if (x ~ /kbit$/) n *= 1e3; else if (x ~ /mbit$/) n *= 1e6; else if (x ~ /gbit$/) n *= 1e9
    else if (x ~ /%$/) n /= 100; else if (x ~ /ms$/) n /= 1e3; else if (x ~ /us$/) n /= 1e6
    printf "%.9f", n }'
}
largest() {         # largest NAME RATE: packets from this node take at most 200 us; prints bytes
  local bytes
  bytes=$(awk -v r="$(number "$2")" 'BEGIN { b = r * 200e-6 / 8
    printf "%d", (b > 65536 ? 65536 : b > 4000 ? b : 4000) }')
  inside "$1" -n -- ip link set eth0 gso_max_size "$bytes" 2>/dev/null || true
  echo "$bytes"
}
# A bucket's burst passes at full speed after a pause, so it is small: at high rates 400 us, for a
# timer that is late. A bucket cuts packets that do not fit, so senders make none.
bucket() {                              # bucket NAME RATE
  local burst
  burst=$((2 * $(largest "$1" "$2")))
  tc qdisc add dev "$(veth "$1")" root tbf rate "$2" burst "$burst" limit 64mb
  inside "$1" -n -- tc qdisc add dev eth0 root tbf rate "$2" burst "$burst" limit 64mb
}
relay() {                               # relay NAME DELAY LOSS RATE
  local n=$1 v i first=(); v=$(veth "$n")
  [ -e /dev/net/tun ] || { mkdir -p /dev/net; mknod /dev/net/tun c 10 200; }
  ! chrt -f 1 true 2>/dev/null || first=(chrt -f 1)   # delays stay exact while ranks are busy
  "${CLEAN[@]}" setsid "${first[@]}" perl "$HERE/relay.pl" "msa-$n" "msb-$n" \
    "$(number "$2")" "$(number "$3")" "$(number "$4")" \
    < /dev/null >> "$S/log/relay.$n.log" 2>&1 9>&- &
  record "relay.$n" $!
  for ((i = 0; i < 250; i++)); do ip link show "msb-$n" >/dev/null 2>&1 && break; nap 0.02; done
  pid_of "relay.$n" >/dev/null && ip link show "msb-$n" >/dev/null ||
    die "relay: $(tail -n 3 "$S/log/relay.$n.log")"
  ip link add "msx-$n" type bridge stp_state 0 forward_delay 0
  for i in "msx-$n" "msa-$n" "msb-$n"; do
    ip link set "$i" addrgenmode none 2>/dev/null || true
  done
  ip link set "msa-$n" master "msx-$n" up
  ip link set "msb-$n" master "$BR" up
  ip link set "msx-$n" up
  ip link set "$v" master "msx-$n"
  [ -z "$4" ] || largest "$n" "$4" >/dev/null
  [ "$(cat "$S/node/$n/cut" 2>/dev/null)" != silent ] || port_state "$n" 0
}
cmd_shape() {
  local n=${1:?name} a v args=() rate='' loss='' delay=''; shift
  is_node "$n"; pid_of "init.$n" >/dev/null || die "$n is down"; v=$(veth "$n")
  for a in "$@"; do
    case $a in
      rate=*[0-9][kmg]bit) rate=${a#*=};;
      loss=*[0-9]%) loss=${a#*=};;
      delay=*[0-9]us|delay=*[0-9]ms|delay=*[0-9]s) delay=${a#*=};;
      *) die "shape: not understood: $a";;
    esac
  done
  unshape "$n"
  [ $# -gt 0 ] || return 0
  [ -z "$delay" ] || args+=(delay "$delay")
  [ -z "$loss" ] || args+=(loss "$loss")
  [ -z "$rate" ] || args+=(rate "$rate")
  if tc qdisc add dev "$v" root netem limit 20000 "${args[@]}" 2>/dev/null; then
    inside "$n" -n -- tc qdisc add dev eth0 root netem limit 20000 "${args[@]}"
    echo "$*" > "$S/node/$n/shape"
    return
  fi
  if [ -n "$delay$loss" ]; then
    relay "$n" "$delay" "$loss" "$rate"
  else
    bucket "$n" "$rate"
  fi
  echo "$*" > "$S/node/$n/shape"
}

