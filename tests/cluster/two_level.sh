#!/bin/bash
# All-reduces on four nodes of two ranks, over links of 1 Gb/s: what the nodes send to each other,
# and a training over two levels that is interrupted.
# computes: eight ranks add
source "$(dirname "$0")/../support/cluster.bash"
cluster 4
for node in "$node1" "$node2" "$node3" "$node4"; do mini shape "$node" rate=1gbit; done

# share NAME: the bytes that this scheme sent, as a share of its formula's.
share() { sed -n "s/^$1 .*, \([0-9.]*\) of the formula.*/\1/p" <<<"$said"; }

# close_to_formula NAME: packets, answers and MPI's own messages take up to 8 %.
close_to_formula() {
  awk -v share="$(share "$1")" 'BEGIN { exit !(share != "" && share >= 1 && share <= 1.08) }'
}

run srun -N4 --ntasks-per-node=2 --mpi=pmix "$(dirname "$LOCKSTEP")/bench/two_level" 25 25 3
((status == 0)) && says '^8 ranks on 4 nodes' && says "^flat .*formula's 300.00" &&
  says "^two-level .*formula's 150.00" && close_to_formula flat && close_to_formula two-level
verdict $? 'over two levels, nodes send each byte 2 (nodes - 1) times: half of what flat ones send'
sed 's/^/    /' <<<"$said"

"$LOCKSTEP" pack --from shapes --out small --train-rows 512 --val-rows 64 --resize 16 >pack.log 2>&1
train() {
  run srun -N4 --ntasks-per-node=2 --mpi=pmix "$LOCKSTEP" train --data.train small/train \
    --batch 64 --epochs 2 --threads 1 --data.workers 1 "$@"
}

train --out whole
((status == 0)) && says 'all-reduces over two levels: 8 ranks on 4 node' &&
  says 'buckets of [0-9]+ MB: an all-reduce takes' &&
  grep -q 'all-reduce = "two-level"' whole/decisions.toml &&
  grep -Eq 'bucket-mb = [1-9]' whole/decisions.toml
verdict $? 'a training on four nodes of two ranks sums over two levels, and notes its buckets'

train --out parts --stop-after 11
train --out parts --resume auto
tensors whole/checkpoints/step-00000016.h5 >whole.txt
tensors parts/checkpoints/step-00000016.h5 >parts.txt
((status == 0)) && ! says 'may differ' && [[ -s whole.txt ]] && cmp whole.txt parts.txt
verdict $? 'interrupted and resumed, it ends with the same bits'

# The same ranks on other nodes add in another order.
moved() {  # moved RUN PLACEMENT OPTION...: resumes with these options of srun in place of 4 x 2
  cp -r begun "$1"
  run srun "${@:3}" --mpi=pmix "$LOCKSTEP" train --data.train small/train --batch 64 \
    --epochs 2 --threads 1 --data.workers 1 --out "$1" --resume auto
  ((status == 0)) && says "result may differ .*: the ranks of each node \(0-1;2-3;4-5;6-7, now $2\)" &&
    tensors "$1/checkpoints/step-00000016.h5" >"$1.txt" && ! cmp -s whole.txt "$1.txt"
}
train --out begun --stop-after 11
moved halves '0-3;4-7' -N2 --ntasks-per-node=4
verdict $? 'resumed with the same ranks on two nodes of four, it says that the bits may differ'
moved cyclic '0,4;1,5;2,6;3,7' -N4 --ntasks-per-node=2 --distribution=cyclic
verdict $? 'resumed with its ranks dealt to the nodes in turn, too'

# Flat sums depend on the size of buckets, which two runs may choose differently.
train --out flat --comm.all-reduce flat --comm.bucket-mb 1
train --out began-flat --comm.all-reduce flat --comm.bucket-mb 1 --stop-after 11
train --out began-flat --resume auto
tensors flat/checkpoints/step-00000016.h5 >flat.txt
tensors began-flat/checkpoints/step-00000016.h5 >began-flat.txt
((status == 0)) && ! says 'may differ' && ! says 'two levels' && [[ -s flat.txt ]] &&
  cmp flat.txt began-flat.txt
verdict $? 'a run that began with flat all-reduces stays flat'
