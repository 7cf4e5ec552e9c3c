#!/bin/bash
# data/lockstep.py and data/probe.py, the second implementation of data/FORMAT.md and
# data/CHECKPOINT.md: they read what lockstep writes, lockstep reads what they write, in any process
# and for any length of time; what is wrong with a file is an error that names it.
# ci
# computes
root=$PWD
source "$(dirname "$0")/../../support/e2e.bash"
source "$root/tests/support/h5py.bash"
h5py_or_skip 'data/lockstep.py reads and writes what lockstep does'
export PYTHONPATH=$root/data:$root/tests/support/clients PYTHONDONTWRITEBYTECODE=1
laws() { run "$python" -W error -m python_laws "$@"; }
pack_small
"$LOCKSTEP" pack --from shapes --jpeg --train-rows 90 --val-rows 10 --rows-per-shard 40 \
  --out jpegs >pack.log 2>&1 || cat pack.log
train=("$LOCKSTEP" train --data.train small/train --data.val small/val --batch 50 --threads 1)
"${train[@]}" --optim.ema 0.9 --epochs 2 --out run >run.log 2>&1 || cat run.log
best=run/checkpoints/best.h5
for split in train val; do
  "$LOCKSTEP" predict run small/$split --logits --features --out features/$split \
    >predict.log 2>&1 || cat predict.log
done
"$LOCKSTEP" export run --to best.safetensors >export.log 2>&1 || cat export.log
"$LOCKSTEP" export run --average --to average.safetensors >export.log 2>&1 || cat export.log

# ---- reading -------------------------------------------------------------------------------------
laws rows small/train features/train && laws rows small/val features/val && laws rows jpegs/train
verdict $status 'rows are those of the shards, with the CRCs of lockstep, and the labels it reads'
laws processes small/train
verdict $status 'processes of all kinds read the same rows, also after their parent did'
laws threads small/train
verdict $status 'threads read the same rows'
reads=20000
nightly && reads=1000000
laws reads small/train $reads
verdict $status "$reads reads in random order leave no file open and take no memory"
laws weights $best best.safetensors && laws weights run best.safetensors &&
  laws weights run average.safetensors average
verdict $status "state_dict() has the tensors of export's .safetensors, also of the average"
laws records run
verdict $status 'metrics() has every number of metrics.jsonl, and leaves out a line that is cut off'
laws predictions features/val
verdict $status 'predictions() has every data set, texts as str'

# ---- writing -------------------------------------------------------------------------------------
laws write_shards small mine
((status == 0)) && run "$LOCKSTEP" info mine/train &&
  says ': 250 rows of 8 x 8 pixels, 3 channels, in 3 files$' &&
  run "$LOCKSTEP" train --data.train mine/train --data.val mine/val --batch 50 --threads 1 \
    --optim.ema 0.9 --epochs 2 --out again &&
  ((status == 0)) &&
  cmp <(tensors $best) <(tensors again/checkpoints/best.h5) &&
  run "$LOCKSTEP" eval again --data mine/val && ((status == 0)) && says '^53 rows: loss'
verdict $? 'a training on arrays that write_shards() wrote has the bits of one on those rows'
laws flip mine/train
run "$LOCKSTEP" eval run --data mine/train
((status == 2)) && says '^error: mine/train/shard-00000-of-00003.h5: row 7 is damaged'
verdict $? 'a byte that is then changed is an error of lockstep that names file and row'

# ---- bad input -----------------------------------------------------------------------------------
laws refuses small/train jpegs/train $best
verdict $status 'what is wrong with a file is a BadFile that names it, and none is then written'

# ---- a linear probe ------------------------------------------------------------------------------
probe() { run "$python" "$root/data/probe.py" "$@"; }
probe features/train features/val
first=$said
((status == 0)) && says '^top-1: training [0-9.]* %, validation [0-9.]* %$' &&
  probe features/train features/val && [[ $said == "$first" ]] &&
  laws lowest features/train features/val
verdict $? 'a probe is where the penalised cross-entropy is lowest, and the same each time'
for split in train val; do
  laws relabel small/$split others/$split $([[ $split == train ]] || echo others/train)
  ((status == 0)) && run "$LOCKSTEP" predict run others/$split --features --unlabelled \
    --out others/features/$split
  ((status == 0)) || break
done
((status == 0)) && probe others/features/train others/features/val \
  --labels others/train others/val && ((status == 0)) && [[ $said == "$first" ]] &&
  probe others/features/train others/features/val --labels others/val others/val &&
  ((status == 2)) && says '^error: others/features/train: has 250 rows, others/val 53$'
verdict $? 'a probe for other classes takes the labels of the shards'
"$LOCKSTEP" predict run small/val --out plain >predict.log 2>&1 || cat predict.log
probe plain features/val
((status == 2)) && says '^error: plain: has no features with labels: predict --features$'
verdict $? 'predictions without features are an error that says how to get them'
