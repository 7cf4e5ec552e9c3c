#!/bin/bash
# Every way to start ranks on a cluster: each rank learns its identity, or an error gives the line
# to write.
# waits for Slurm
source "$(dirname "$0")/../support/cluster.bash"
cluster 3
whoami=("$LOCKSTEP" whoami --deadline-s 20)
# fixed, because Slurm would skip a node that is still ending its last step
two=(-N2 -w "$node1,$node2")

# are AUTHORITY WORLD RANK:LOCAL:SIZE:NODE...: the ranks reported these identities, in order.
are() {
  local authority=$1 world=$2 expected=() it
  for it in "${@:3}"; do
    IFS=: read -r rank local size node <<<"$it"
    expected+=("rank $rank of $world, local rank $local of $size, on $node, says $authority")
  done
  [[ $(grep -E '^rank [0-9]+ of ' <<<"$said") == "$(printf '%s\n' "${expected[@]}")" ]]
}

blocks=(0:0:2:$node1 1:1:2:$node1 2:0:2:$node2 3:1:2:$node2)
run srun "${two[@]}" --ntasks-per-node=2 --mpi=pmix "${whoami[@]}"
((status == 0)) && are Slurm 4 "${blocks[@]}" && says '^MPI .*ignored: agrees with Slurm' &&
  says 'met by: MPI'
verdict $? 'srun --mpi=pmix: Slurm and MPI agree'

OMPI_MCA_mpi_yield_when_idle=1 run srun "${two[@]}" --ntasks-per-node=2 --mpi=pmix "${whoami[@]}"
((status == 0)) && says '^rank 0,1,2,3: note: OMPI_MCA_mpi_yield_when_idle=1 .*lockstep switches that off'
verdict $? 'whoami names a variable by which waiting ranks would starve their node'

run srun "${two[@]}" -n4 --ntasks-per-node=2 -m cyclic "${whoami[@]}"
((status == 0)) && are Slurm 4 0:0:2:$node1 1:0:2:$node2 2:1:2:$node1 3:1:2:$node2
verdict $? 'cyclic placement gives the right identities'

printf '%s\n' "$node2" "$node1" "$node2" >hosts
SLURM_HOSTFILE=hosts run srun -n3 -m arbitrary "${whoami[@]}"
((status == 0)) && are Slurm 3 0:0:2:$node2 1:0:1:$node1 2:1:2:$node2
verdict $? 'arbitrary placement gives the right identities, with rank 0 not on the first node'

run srun "${two[@]}" -n3 "${whoami[@]}"
((status == 0)) && are Slurm 3 0:0:2:$node1 1:1:2:$node1 2:0:1:$node2
verdict $? 'nodes with different numbers of ranks give the right identities'

# Without the variable about half of such starts wait for ever.
last=(--mpi=pmix --overlap -N2 -w "$node2,$node3" --ntasks-per-node=2 "${whoami[@]}")
each_of_ten() {
  local i
  for ((i = 0; i < 10; i++)); do
    SLURM_JOB_NODELIST=$node2,$node3 srun "${last[@]}" || return
  done
}
export -f each_of_ten
run salloc --exclusive -N3 bash -c "$(declare -p last node2 node3); each_of_ten"
((status == 0)) && (($(grep -c '^rank 0 of 4, .*' <<<"$said") == 10)) && ! says 'confuses'
verdict $? 'steps on nodes that are not the first of their job start, told that these are all'

run salloc --exclusive -N3 srun "${last[@]}"
says "start may wait for ever: .*SLURM_JOB_NODELIST='.*' srun" &&
  { ((status == 0)) || says 'MPI does not connect them'; }
verdict $? "a step on other nodes than the first of its job is told that MPI's start may wait for ever"

# After such a step srun 22.05 sometimes hangs at its end, in its PMIx plugin
# (pmixp_abort_agent_stop).
timeout --signal=KILL 40 srun -N1 -w "$node1" -n2 "${whoami[@]}" : -N2 -w "$node2,$node3" \
  -n3 "${whoami[@]}" >het.log 2>&1
status=$? said=$(tr -d '\0' <het.log)
((status == 0)) || squeue -h -o %A | xargs -r scancel
((status == 0 || status == 137)) &&
  are Slurm 5 0:0:2:$node1 1:1:2:$node1 2:0:2:$node2 3:1:2:$node2 4:0:1:$node3
verdict $? 'a heterogeneous step is one world'

options=("${two[@]}" --ntasks-per-node=2)
in_batch "mpirun '$LOCKSTEP' whoami"
((status == 0)) && are 'Open MPI' 4 "${blocks[@]}" && says 'batch script that called mpirun' &&
  says 'daemon through which'
verdict $? "mpirun in a batch script: the script's and the daemon's variables are ignored, and whoami says why"

in_batch "'$LOCKSTEP' whoami"
((status == 0)) && says 'rank 0 of 1, .* says no one' && says 'shell or batch script'
verdict $? 'a process without a launcher in a batch script is alone, whatever SLURM_NTASKS says'

in_batch "srun '$LOCKSTEP' whoami --json"
((status == 0)) && (($(grep -c '"authority": "Slurm"' <<<"$said") == 4)) &&
  says '"source": "PMIx"' && says '"met_by": "MPI"'
verdict $? 'whoami --json reports the same'

run salloc "${two[@]}" --ntasks-per-node=2 mpirun "${whoami[@]}"
((status == 0)) && are 'Open MPI' 4 "${blocks[@]}"
verdict $? 'mpirun in salloc gives the right identities'

run salloc -N1 -n2 "${whoami[@]}"
((status == 0)) && says 'rank 0 of 1, .* says no one'
verdict $? "a process in salloc's shell is alone"

for type in none pmi2; do
  run srun --mpi=$type "${two[@]}" --ntasks-per-node=2 "${whoami[@]}"
  ((status == 0)) && are Slurm 4 "${blocks[@]}" && says 'met by: TCP' && ! says 'WRONG|OPAL' &&
    says "srun --mpi=$type\)" && says 'this srun offers .*pmix' &&
    (($(grep -c 'write srun --mpi=pmix -N 2 -n 4 lockstep' <<<"$said") == 1))
  verdict $? "srun --mpi=$type: the ranks meet without MPI; whoami says why once, and the line that gives them MPI"
done

# ---- what cannot work ----------------------------------------------------------------------------
mkdir small
in_batch "export OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=9 OMPI_COMM_WORLD_LOCAL_RANK=1 \
  OMPI_COMM_WORLD_LOCAL_SIZE=9" "srun '$LOCKSTEP' train --data.train small --out run"
((status == 2)) && says 'OMPI_COMM_WORLD_SIZE says 9 but MPI has a world of 4' && says 'unset'
verdict $? 'under srun, variables of an earlier mpirun are named, with what to unset'
