#!/bin/bash
# Update rules (optim.rule): trainings by LARS, LAMB and Muon resume with the same bits on 1, 2 and
# 4 ranks, with micro-batches, frozen layers and groups of ranks; recipes (--recipe).
# computes
source "$(dirname "$0")/../../support/e2e.bash"
pack_small 130  # 6 steps an epoch
train=("$LOCKSTEP" train --data.train small/train --data.val small/val --batch 24 --epochs 2
  --threads 1 --data.keep-last --checkpoint.every-steps 3)
last() { ls "$1"/checkpoints/step-*.h5 | tail -n 1; }

# kept NAME RANKS OPTION...: stopped after step 4 and resumed, a run ends with the bits and records
# of an uninterrupted one.
kept() {
  local run=$1 ranks=$2
  shift 2
  run ranks "$ranks" "${train[@]}" "$@" --out "$run"
  ((status == 0)) && tensors "$(last $run)" >"$run.tensors" &&
    run ranks "$ranks" "${train[@]}" "$@" --out "$run-cut" --stop-after 4
  ((status == 3)) && run ranks "$ranks" "${train[@]}" "$@" --out "$run-cut" --resume auto &&
    tensors "$(last $run-cut)" | cmp "$run.tensors" - &&
    cmp <(without_times "$run") <(without_times "$run-cut")
  verdict $? "on $ranks ranks k steps + save + the rest = all steps, bit for bit: $*"
}
lamb=(--optim.rule lamb --optim.lr 0.01 --optim.weight-decay 0.02
  --optim.decay-norm-and-bias false)
lars=(--optim.rule lars --optim.lr 5 --optim.warmup-epochs 1)
for ranks in 1 2 4; do kept lamb-$ranks $ranks "${lamb[@]}"; done
kept corrected 2 "${lars[@]}" --optim.lars-momentum corrected
kept outside 4 "${lars[@]}" --optim.lars-momentum outside --optim.nesterov
kept parts 2 "${lamb[@]}" --accumulate 3 --optim.ema 0.9 --optim.clip-norm 1
kept groups 2 "${lamb[@]}" --sync.every 3 --sync.group rank

muon=(--optim.rule muon --optim.lr 0.1 --optim.momentum 0.6 --optim.nesterov
  --optim.rest-lr-factor 0.5 --optim.rest-momentum 0.85)
for ranks in 1 4; do kept muon-$ranks $ranks "${muon[@]}"; done
long=("${train[@]/%2/4}")  # 4 epochs, long enough to be killed in the middle
(
  train=("${long[@]}")
  kept muon-2 2 "${muon[@]}"
)
kept muon-parts 2 "${muon[@]}" --accumulate 3 --optim.ema 0.9 --optim.clip-norm 1 \
  --optim.newton-schulz 3
kept muon-groups 2 "${muon[@]}" --sync.every 3 --sync.group rank
kept muon-wire 4 "${muon[@]}" --comm.wire bf16
# Steps wait for their checkpoints, so that the run does not end before the signal.
mpirun --oversubscribe --bind-to none -np 2 "${long[@]}" "${muon[@]}" --out muon-killed \
  --checkpoint.background false >muon-killed.log 2>&1 &
mpirun=$!
saved() { compgen -G 'muon-killed/checkpoints/step-*.h5' >saved.log; }
until_it 600 saved
rank_pids $mpirun
kill -KILL "${pids[@]}"
finish muon-killed
[[ ! -e muon-killed/summary.json ]] &&
  run ranks 2 "${long[@]}" "${muon[@]}" --out muon-killed --resume auto && ((status == 0)) &&
  tensors "$(last muon-killed)" | cmp muon-2.tensors -
verdict $? 'a training by Muon that was killed ends with the same bits when resumed'

grep -q '"second_moments/conv1.weight"' lamb-1.tensors &&
  (($(grep -c '"second_moments/' lamb-1.tensors) == $(grep -c '"momentum/' lamb-1.tensors))) &&
  ! grep -q second_moments corrected.tensors
verdict $? "a checkpoint of LAMB's has second moments, others have none"
(($(grep -c '"trust_min":[0-9.e-]*,"trust_median":[0-9.e-]*,"trust_max":' \
  lamb-2/metrics.jsonl) == 12)) && run "$LOCKSTEP" info lamb-2 && says finished
verdict $? 'each step has the smallest, the median and the largest trust ratio'
run "${train[@]}" --out sgd
((status == 0)) && ! grep -q trust_ sgd/metrics.jsonl muon-2/metrics.jsonl
verdict $? 'steps by SGD and by Muon have none'

tuned=(--init "$(last sgd)" --optim.backbone-lr-factor 0.1)
kept tuned 2 "${lamb[@]}" "${tuned[@]}" --freeze layer2
grep -q '"second_moments/layer3' tuned.tensors &&
  ! grep -Eq '"second_moments/(conv1|bn1|layer1|layer2)[.]' tuned.tensors
verdict $? 'frozen layers have no second moments'

kept muon-tuned 2 "${muon[@]}" "${tuned[@]}" --freeze layer2
run "${train[@]}" "${muon[@]}" --dry-run --out none
((status == 0)) && says 'images/s, .*peak memory' && says 'dry run' && [[ ! -e none ]]
verdict $? 'a dry run by Muon tells its time and memory'

run "${train[@]}" --out begun --stop-after 4
((status == 3))
for rule in lamb muon; do
  options="$rule[@]"
  run "${train[@]}" "${!options}" --out begun --resume auto
  ((status == 2)) && says "step-.*: its run had optim.rule = sgd, this one has $rule.*--init"
  verdict $? "a resume with another rule, $rule, is an error that names both and the checkpoint"
done

# ---- recipes -------------------------------------------------------------------------------------
run "${train[@]}" --recipe no-such --out none
((status == 2)) && says '--recipe no-such: there is none of this name; there are .*cifar10-he, .*' &&
  [[ ! -e none ]]
verdict $? 'an unknown recipe is an error that lists all'
echo 'optim.lr = 0.25' >mine.toml
run "${train[@]}" --recipe mlperf-8k --config mine.toml --model resnet20 --optim.warmup-epochs 1 \
  --out recipe
((status == 0)) && says 'recipe mlperf-8k: .*MLPerf.*: model = resnet50, .*optim.trust = 0.001' &&
  says '; but .*batch = 24.*optim.lr = 0.25' &&
  says 'recipe mlperf-8k is for a global batch of 8192 rows, and this run has 24' &&
  grep -q '^rule = "lars"' recipe/config.toml && grep -q '^lr = 0.25' recipe/config.toml &&
  grep -q '^batch = 24' recipe/config.toml
verdict $? 'a recipe is printed, keys in a file and on the command line win, another batch is named'
echo 'optim.decay = "cosine"' >cosine.toml
for given in '--optim.decay cosine' '--config cosine.toml'; do
  run "${train[@]}" --recipe cifar10-he $given --stop-after 1 --out he-{n}
  ((status == 3)) && says '; but .*optim.decay = cosine, no optim.milestones'
  verdict $? "milestones of a recipe give way to $given"
done
run "${train[@]}" --recipe cifar10-he --optim.decay cosine --optim.milestones 1 --out none
((status == 2)) && says 'optim.milestones = 1 would have no effect: optim.decay is .cosine'
verdict $? 'milestones that were given in addition are still an error'
run ranks 2 "$LOCKSTEP" train --data.train small/train --recipe mlperf-8k --batch-per-rank 12 \
  --epochs 1 --model resnet20 --optim.warmup-epochs 0.5 --threads 1 --out each
((status == 0)) && says 'and this run has 24' && grep -q '^batch = 24' each/config.toml
verdict $? 'batch-per-rank takes precedence over the batch of a recipe'
run "$LOCKSTEP" resume recipe --recipe mlperf-8k
((status == 2)) && says '--recipe belongs to train'
verdict $? 'a run resumes with its own keys: --recipe is an error'
