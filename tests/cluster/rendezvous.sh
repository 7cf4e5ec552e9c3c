#!/bin/bash
# Ranks that MPI does not connect meet over TCP, and no stranger joins them.
# ci
# waits for Slurm
source "$(dirname "$0")/../support/cluster.bash"
cluster 2
plain=(srun --mpi=none -N2 --ntasks-per-node=2)
whoami="'$LOCKSTEP' whoami --deadline-s"

# all_four: every rank is in the report once, and the meeting's files are gone.
all_four() {
  says 'met by: TCP' && (($(grep -cE '^rank [0-3] of 4, ' <<<"$said") == 4)) &&
    [[ -z $(ls "$LOCKSTEP_RENDEZVOUS_DIR") ]]
}

printf '%s\n' "$node2" "$node1" "$node2" "$node1" >hosts
SLURM_HOSTFILE=hosts run srun --mpi=none -n4 -m arbitrary bash -c "$whoami 20"
all_four
verdict $? 'ranks meet at rank 0, which need not be on the first node'

options=(-N2 --ntasks-per-node=2)
in_batch "for i in 1 2 3; do ${plain[*]} --overlap $whoami 20 >step.\$i 2>&1 & done" wait \
  'cat step.*'
(($(grep -c 'met by: TCP' <<<"$said") == 3)) &&
  (($(grep -cE '^rank [0-3] of 4, ' <<<"$said") == 12))
verdict $? 'steps of one job that run at the same time do not mix'

run "${plain[@]}" bash -c "if ((SLURM_PROCID == 3)); then sleep 12; else $whoami 8; fi"
((status != 0)) && says "rank 3 did not come to $node1 within 8 s: from $node2 came 1 of 2"
verdict $? 'a rank that does not appear is named, with its node'

run "${plain[@]}" bash -c "if ((SLURM_PROCID == 0)); then sleep 4; else $whoami 1; fi"
((status != 0)) && says 'rank 0 was not found within' && says 'has not written this file'
verdict $? 'ranks that find no rank 0 say where they looked'

# Three strangers connect: one says nothing, one speaks HTTP, one sends an impossible size.
stranger='for _ in $(seq 300); do
    port=$(sed -n 3p "$LOCKSTEP_RENDEZVOUS_DIR"/meeting-*-0 2>/dev/null) && [[ $port ]] && break
    sleep 0.1
  done
  exec 3<>/dev/tcp/'$node1'/$port 4<>/dev/tcp/'$node1'/$port 5<>/dev/tcp/'$node1'/$port
  printf "GET / HTTP/1.0\r\n\r\n" >&4; printf "\377\377\377\177xxxx" >&5
  sleep 2; cat <&4 >&2; echo >&2'
run "${plain[@]}" bash -c "if ((SLURM_PROCID == 3)); then $stranger; fi; $whoami 20"
all_four
verdict $? 'strangers cannot join, and do not keep a rank from joining'

mkdir -p "$LOCKSTEP_RENDEZVOUS_DIR"
next=$(($(squeue -h -t all -o %A | sort -n | tail -n 1) + 1))
printf 'lockstep meeting 1\n%032d\n22\n%s\n' 0 "$node1" \
  >"$LOCKSTEP_RENDEZVOUS_DIR/meeting-mini-$MINI_SLURM_ID-$next.0-0"
chmod 600 "$LOCKSTEP_RENDEZVOUS_DIR"/meeting-*
run "${plain[@]}" bash -c "((SLURM_PROCID > 0)) || sleep 1; $whoami 20"
all_four
verdict $? 'a file that a dead start left is replaced'

LOCKSTEP_RENDEZVOUS_DIR=/dev/shm/meetings run "${plain[@]}" bash -c "$whoami 1"
((status != 0)) && says 'the same on all nodes\? .LOCKSTEP_RENDEZVOUS_DIR'
verdict $? 'a directory that the nodes do not share is named as a possible cause'

# once PATTERN LAW: one line of the output says it, all ranks have ended with status 2, soon.
once() {
  ((status == 2 && SECONDS - began < 30)) && (($(grep -c "$1" <<<"$said") == 1))
  verdict $? "$2"
}
began=$SECONDS
LOCKSTEP_RENDEZVOUS_DIR=/proc/none run "${plain[@]}" bash -c "$whoami 60"
once 'error: /proc/none: the ranks meet here, but it cannot be created: .*LOCKSTEP_RENDEZVOUS_DIR' \
  'when the directory cannot be made, rank 0 says so, and no rank waits for the others'
began=$SECONDS
run env -u HOME -u LOCKSTEP_RENDEZVOUS_DIR "${plain[@]}" bash -c "$whoami 60"
once 'error: HOME is not set' 'without a home directory rank 0 says so, and the others end, too'
for type in none pmix; do
  began=$SECONDS
  run srun --mpi=$type -N2 --ntasks-per-node=4 "$LOCKSTEP" train --bach 64
  once "unknown key 'bach'" "srun --mpi=$type: an error of the command line is said once, by 8 ranks"
done

# ---- meetings that take long ---------------------------------------------------------------------
# meet NAME MPI COMMAND: every rank does COMMAND first.
meet() {
  srun --mpi="$2" -N2 --ntasks-per-node=2 bash -c "$3; exec $whoami 60" >"$1.log" 2>&1
  echo "$?" >"$1.status"
}
# met NAME HOW: the ranks of that start know each other, by MPI or TCP.
met() {
  said=$(cat "$1.log") status=$(cat "$1.status")
  ((status == 0)) && says "met by: $2" && (($(grep -cE '^rank [0-3] of 4, ' <<<"$said") == 4))
}

# The second node finds the place only 5 s after rank 0 came, when MPI has long started.
late=$WORK/late_meetings
mkdir elsewhere
ln -s elsewhere second
(
  until_it 300 compgen -G "$late/meeting-*-0" >/dev/null
  sleep 5
  ln -sfn "$late" second
) &
meet late pmix "((SLURM_NODEID == 1)) && place=$WORK/second || place=$late; export LOCKSTEP_RENDEZVOUS_DIR=\$place"
[[ $(readlink second) == "$late" ]] && met late MPI
verdict $? "no rank leaves MPI's start for good before all have met"
wait

meet unshared pmix 'export LOCKSTEP_RENDEZVOUS_DIR=/dev/shm/meetings-$SLURM_NODEID' &
meet container none '((SLURM_PROCID != 3)) || sleep 25' &
wait
met unshared MPI && says 'warning: the ranks could not meet over TCP .*LOCKSTEP_RENDEZVOUS_DIR'
verdict $? 'ranks that cannot meet over TCP start over MPI, and rank 0 says what to set'
met container TCP
verdict $? 'a rank that comes 25 s after the others of its node is waited for'
