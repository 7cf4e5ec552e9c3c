# The nodes of mini-slurm: their names, addresses and namespaces. Sourced by mini-slurm.

is_up()   { [ -e "$S/.mini-slurm" ]; }
nodes()   { cat "$S/nodes" 2>/dev/null || true; }
index()   { printf '%s' "${1#"$PRE"}"; }
addr()    { printf '%s.%d' "$NET" $((10 + $(index "$1"))); }
mac()     { printf '02:6d:73:%02x:00:%02x' "$ID" "$(index "$1")"; }
veth()    { printf 'ms-%s' "$1"; }
is_node() {
  is_up || die "nothing is up"
  nodes | grep -qx -- "$1" || die "no node '$1' (have: $(nodes | tr '\n' ' '))"
}
inside()  {                             # inside NAME [nsenter flags] -- CMD...
  local n=$1 p; shift
  p=$(pid_of "init.$n") || die "$n is down"
  nsenter -t "$p" "$@"
}
# An ended node's interface may stay for as long as its namespace does; /sys may show those of
# another namespace.
delete_link() { ip link del "$1" 2>/dev/null || true; }
slurm()   { SLURM_CONF=$S/slurm.conf "$@"; }

# The first process of a node: PID 1 of its PID namespace, which also reaps orphans.
node_init() {
  local n=$1 outer rest
  # /proc is still the outer one here, so this is the process id as seen from outside.
  read -r outer rest < /proc/self/stat
  printf '%s' "$n" > /proc/sys/kernel/hostname
  [ ! -e /etc/hosts ] || mount --bind "$S/hosts" /etc/hosts
  mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs /dev/shm
  if [ -e "$S/private-tmp" ]; then
    mkdir -p "$S/node/$n/tmp"; chmod 1777 "$S/node/$n/tmp"
    mount --bind "$S/node/$n/tmp" /tmp
  fi
  # A sysfs that shows this network namespace, and keeps the cgroup trees.
  mkdir -p "$S/node/$n/cg"
  mount --rbind /sys/fs/cgroup "$S/node/$n/cg" 2>/dev/null || true
  mount -t sysfs sysfs /sys
  mount --rbind "$S/node/$n/cg" /sys/fs/cgroup 2>/dev/null || true
  umount -l "$S/node/$n/cg" 2>/dev/null || true
  mount -t proc proc /proc
  { echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; } 2>/dev/null || true
  ip link set lo up
  printf '%s' "$outer" > "$S/node/$n/outer.new"
  mv "$S/node/$n/outer.new" "$S/node/$n/outer"
  trap - ERR; set +e
  while :; do sleep 1000000 & wait; done
}

slurmd_alive() {                        # slurmd writes its process id as seen inside the node
  local p
  { read -r p < "$S/node/$1/slurmd.pid"; } 2>/dev/null || return 1
  inside "$1" -r -m -p -- /bin/sh -c "read -r c < /proc/$p/comm && [ \"\$c\" = slurmd ]" 2>/dev/null
}

start_node() {
  local n=$1 p v
  if ! pid_of "init.$n" >/dev/null; then
    mkdir -p "$S/node/$n/spool" "$S/node/$n/pmix"
    chmod 755 "$S/node/$n" "$S/node/$n/spool"; chmod 1777 "$S/node/$n/pmix"
    rm -f "$S/node/$n/outer" "$S/node/$n/slurmd.pid" "$S/node/$n/cut"
    v=$(veth "$n")
    delete_link "$v"
    "${CLEAN[@]}" setsid unshare --net --uts --ipc --pid --mount --propagation private --fork \
      bash "$SELF" __node-init "$n" >> "$S/log/init.$n.log" 2>&1 < /dev/null 9>&- &
    v=$!
    until_file "$S/node/$n/outer" $v || die "$n: no namespaces: $(tail -n 3 "$S/log/init.$n.log")"
    v=$(veth "$n")
    p=$(cat "$S/node/$n/outer")
    record "init.$n" "$p"
    ip link add "$v" type veth peer name eth0 address "$(mac "$n")" netns "$p"
    ip link set "$v" addrgenmode none master "$BR" up 2>/dev/null ||
      ip link set "$v" master "$BR" up
    printf '%s\n' "addr add $(addr "$n")/24 dev eth0" 'link set eth0 up' |
      nsenter -t "$p" -n -- ip -batch -
    # As clusters' nodes have it, whatever this machine has: BBR takes the acknowledgements of a
    # rank that computes for a slow network, and then sends slower.
    nsenter -t "$p" -n -- ip route replace "$NET.0/24" dev eth0 proto kernel scope link \
      src "$(addr "$n")" congctl cubic 2>/dev/null || true
  fi
  slurmd_alive "$n" && return 0
  p=$(pid_of "init.$n")
  "${CLEAN[@]}" nsenter -t "$p" -r -m -u -i -n -p -- slurmd -N "$n" -f "$S/slurm.conf" \
    < /dev/null >> "$S/log/init.$n.log" 2>&1 9>&- ||
    die "$n: slurmd: $(tail -qn 8 "$S/log/init.$n.log" "$S/log/slurmd.$n.log" 2>/dev/null || true)"
}
