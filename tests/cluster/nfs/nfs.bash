# Machines with their own kernels on a real NFS server, for scripts that source it: user-mode-linux
# guests, whose root is this machine's (read only), and nfs-ganesha. Debian's packages are only
# fetched and unpacked, into a folder next to the build. Needs root. A script calls nfs_inside first
# of all, then nfs_up; all ends with the script.
nfs=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
nfs_home=$(realpath "$(dirname "$LOCKSTEP")")/nfs
nfs_root=$nfs_home/root

# nfs_inside SCRIPT: continues in a separate network, with separate mounts and process numbers.
nfs_inside() {
  [[ ! ${NFS_INSIDE:-} ]] || return 0
  [[ $(id -u) == 0 ]] || skip_all 'needs root'
  [[ $(uname -m) == x86_64 ]] || skip_all 'user-mode-linux is for x86-64'
  [[ -c /dev/net/tun ]] || skip_all 'this machine has no /dev/net/tun'
  unshare --net --mount --pid --fork true 2>/dev/null ||
    skip_all 'this machine gives no namespaces (a container needs --privileged)'
  nfs_fetch || skip_all "Debian's packages user-mode-linux and nfs-ganesha could not be fetched"
  NFS_INSIDE=1 exec unshare --net --mount --pid --fork --kill-child --mount-proc bash "$1"
}

nfs_fetch() {
  [[ ! -e $nfs_home/made ]] || return 0
  local packages=(user-mode-linux nfs-ganesha nfs-ganesha-vfs libntirpc4.3 rpcbind libwrap0
    libwbclient0 libnfsidmap1 liburcu8) archive
  rm -rf "$nfs_home"
  mkdir -p "$nfs_root"
  (cd "$nfs_home" && apt-get -qq download "${packages[@]}") >/dev/null 2>&1 || return
  for archive in "$nfs_home"/*.deb; do dpkg-deb -x "$archive" "$nfs_root" || return; done
  touch "$nfs_home/made"
}

# of_nfs COMMAND...: with the libraries that were fetched.
of_nfs() {
  local lib=$nfs_root/usr/lib
  LD_LIBRARY_PATH=$lib/x86_64-linux-gnu:$nfs_root/lib/x86_64-linux-gnu:$lib/ganesha exec "$@"
}

# nfs_up: the server of the folder `export`, and the relay through which guests reach it.
nfs_up() {
  mount -t tmpfs none /run
  mkdir -p export recovery /run/rpcbind umid
  { cat /etc/passwd; echo '_rpc:x:65533:65534::/run/rpcbind:/usr/sbin/nologin'; } >passwd
  mount --bind passwd /etc/passwd
  ip link set lo up
  nfs_conf
  (of_nfs "$nfs_root/sbin/rpcbind" -f) >rpcbind.log 2>&1 &
  until_it 100 test -S /run/rpcbind.sock
  python3 "$nfs/relay.py" 2050 2049 lost >relay.log 2>&1 &
  nfs_serve 2>/dev/null &
  until_it 300 answers 2049
}
nfs_conf() {
  cat >ganesha.conf <<END
NFS_CORE_PARAM { Protocols = 4; NFS_Port = 2049; Enable_UDP = false;
  Plugins_Dir = "$nfs_root/usr/lib/x86_64-linux-gnu/ganesha"; }
NFSv4 { RecoveryBackend = fs; RecoveryRoot = "$PWD/recovery"; Minor_Versions = 1, 2;
  Graceless = ${graceless:-true}; Grace_Period = 20; Lease_Lifetime = 15;
  UseGetpwnam = true; Only_Numeric_Owners = true; }
EXPORT { Export_Id = 1; Path = "$PWD/export"; Pseudo = /shared; Access_Type = RW; SecType = sys;
  Squash = No_Root_Squash; Protocols = 4; Transports = TCP; FSAL { Name = VFS; } }
LOG { Default_Log_Level = EVENT; }
END
}
# The server, started again whenever it ends, as systemd does; its ends are in server.log.
nfs_serve() {
  local server
  while :; do
    while [[ -e down ]]; do nap 0.05; done
    (of_nfs "$nfs_root/usr/bin/ganesha.nfsd" -F -L "$PWD/ganesha.log" -f "$PWD/ganesha.conf" \
      -p "$PWD/ganesha.pid") >>ganesha.out 2>&1 &
    server=$!
    echo "$server" >server.pid
    wait "$server"
    echo "status $?" >>server.log
  done
}
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# nfs_strike [lost]: kills the server and starts it again; with `lost` it does some work just
# before, of which no guest has an answer. A reply is only lost where the connection ends, too: over
# TCP, a client waits for it otherwise.
nfs_strike() {
  local ends
  ends=$(cat server.log 2>/dev/null | wc -l)
  [[ ! ${1:-} ]] || { touch lost; sleep 0.4; }
  touch down
  kill -KILL "$(<server.pid)"
  until_it 100 has_ended "$ends"
  rm -f lost down
  until_it 300 answers 2049
}
has_ended() { (($(wc -l <server.log) > $1)); } 2>/dev/null

# guest ID COMMAND: starts a machine with the export as /mnt/shared and this folder as /mnt/work,
# which runs it there; its console is guest-ID.log. Sets `guest`, its process.
guest() {
  ip tuntap add "tap$1" mode tap
  ip addr add "10.77.$1.1/24" dev "tap$1"
  ip link set "tap$1" up
  printf '%s\n' "$2" >"guest-$1.sh"
  "$nfs_root/usr/bin/linux.uml" root=/dev/root rootfstype=hostfs rootflags=/ ro mem=256M quiet \
    "init=$nfs/init" "eth0=tuntap,tap$1" con=null con0=null,fd:1 "umid=guest$1" \
    "uml_dir=$PWD/umid" "ID=$1" "WORK=$PWD" "MODULES=$nfs_root/usr/lib/uml/modules" \
    </dev/null >"guest-$1.log" 2>&1 &
  guest=$!
}
