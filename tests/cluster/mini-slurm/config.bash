# mini-slurm: writes the configuration of a cluster of N nodes; sourced by mini-slurm.

has_pmix() {
  compgen -G '/usr/lib/*/pmix2/lib/libpmix.so' >/dev/null ||
    compgen -G '/usr/lib*/libpmix.so' >/dev/null
}

# Sets the caller's any, max and most: whether nodes have GPUs, the most GPUs and CPUs of one.
write_nodes() {
  local n k v c m g f kv i
  { echo "127.0.0.1 localhost"
   echo "$NET.1 $ctl"
   for n in $(nodes); do echo "$(addr "$n") $n"; done; } > "$S/hosts"
  : > "$S/nodes.conf"; : > "$S/gres.conf"
  for n in "${!OVER[@]}"; do nodes | grep -qx -- "$n" || die "--node $n: no such node"; done
  for n in $(nodes); do
    c=$CPUS m=$MEM g=$GPUS f=''
    for kv in ${OVER[$n]:-}; do
      k=${kv%%=*} v=${kv#*=}
      case $k in cpus) c=$v;; mem) m=$v;; gpus) g=$v;; features) f=$f${f:+,}$v;;
        *) die "--node $n: unknown setting '$k'";; esac
    done
    [ "$c" -le "$most" ] || most=$c
    k="NodeName=$n NodeHostname=$n NodeAddr=$(addr "$n") Port=$D_PORT"
    k+=" CPUs=$c RealMemory=$m State=UNKNOWN"
    [ -z "$f" ] || k+=" Feature=$f"
    if [ "$g" -gt 0 ]; then
      any=1; [ "$g" -le "$max" ] || max=$g
      k+=" Gres=gpu:$g"
      v=0; [ "$g" = 1 ] || v="[0-$((g - 1))]"
      echo "NodeName=$n Name=gpu File=$S/dev/nvidia$v" >> "$S/gres.conf"
    fi
    echo "$k" >> "$S/nodes.conf"
  done
  # Fake GPUs are device files with a number that has no driver. Slurm takes the GPU's index from
  # the digits in the file name.
  for ((i = 0; i < max; i++)); do
    mknod -m 666 "$S/dev/nvidia$i" c 240 "$i" 2>/dev/null || : > "$S/dev/nvidia$i"
  done
  [ $any = 0 ] || echo "AutoDetect=off" >> "$S/gres.conf"
}

# Sets the caller's track and task.
choose_plugins() {
  local k
  # A task can be bound only to CPUs that exist.
  track=proctrack/linuxproc task=task/none
  if [ -n "$BIND" ]; then
    [ "$most" -le "$(nproc --all)" ] ||
      die "--bind: a node cannot claim more CPUs than the $(nproc --all) of this machine (--cpus)"
    task=task/affinity
  fi
  if [ -n "$CGROUP" ]; then
    for k in freezer devices cpuset; do
      [ -e "/sys/fs/cgroup/$k/tasks" ] || die "--cgroup needs the cgroup v1 controller $k"
    done
    track=proctrack/cgroup
    [ -n "$BIND" ] && task=task/cgroup,task/affinity || task=task/cgroup
    printf '%s\n' CgroupPlugin=cgroup/v1 CgroupMountpoint=/sys/fs/cgroup CgroupAutomount=no \
      "ConstrainCores=$([ -n "$BIND" ] && echo yes || echo no)" ConstrainDevices=yes \
      > "$S/cgroup.conf"
    : > "$S/cgroup"
  fi
}

apply_settings() { # of --conf, in place of ours
  local line key
  while IFS= read -r line; do
    [ -n "$line" ] || continue
    key=${line%%=*}
    case $key in
      NodeName|PartitionName|NodeSet|DownNodes) ;;
      *) sed -i "/^$key=/Id" "$S/slurm.conf";;
    esac
    echo "$line" >> "$S/slurm.conf"
  done <<< "$EXTRA"
}

write_config() {
  local ctl any=0 max=0 most=0 track task
  ctl=$(uname -n); ctl=${ctl%%.*}
  [[ $ctl =~ ^(c[0-9])?node[0-9]+$ ]] && die "this machine is itself called $ctl"
  write_nodes
  choose_plugins
  cat > "$S/slurm.conf" <<CONF
ClusterName=mini$SUF
SlurmctldHost=$ctl($NET.1)
SlurmctldPort=$CTL_PORT
SlurmdPort=$D_PORT
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# cred_expire: also how many seconds a requeued job waits before it may start again
# (Slurm's default is 120).
AuthInfo=socket=$S/munge/munge.socket,cred_expire=5
MailProg=/bin/true
StateSaveLocation=$S/ctld
SlurmdSpoolDir=$S/node/%n/spool
SlurmctldPidFile=$S/ctld/slurmctld.pid
SlurmdPidFile=$S/node/%n/slurmd.pid
SlurmctldLogFile=$S/log/slurmctld.log
SlurmdLogFile=$S/log/slurmd.%n.log
# The PMIx server creates its directories here. They must differ from node to node, because all
# nodes see the same file system.
TmpFS=$S/node/%n/pmix
ProctrackType=$track
TaskPlugin=$task
MpiDefault=$(has_pmix && echo pmix || echo none)
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$S/log/jobcomp.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
# Nodes may claim more CPUs or memory than the machine has.
SlurmdParameters=config_overrides
# Notice failures soon, and use a node that comes back at once.
ReturnToService=2
SlurmdTimeout=15
SlurmctldTimeout=15
MessageTimeout=10
BatchStartTimeout=15
KillWait=5
UnkillableStepTimeout=30
JobRequeue=1
MinJobAge=600
CONF
  [ $any = 0 ] || echo GresTypes=gpu >> "$S/slurm.conf"
  apply_settings
  cat "$S/nodes.conf" >> "$S/slurm.conf"
  echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP" >> "$S/slurm.conf"
}
