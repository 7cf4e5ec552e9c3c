# gpu-check's sections ranks, train and resume, which it sources: whole trainings.

# train NAME RANKS OPTION...: a run in $runs/NAME of the default data set.
train() {
  local name=$1 n=$2
  shift 2
  rm -rf "${runs:?}/$name"
  logged "$name" ranks "$n" "$bundle/lockstep" train --config "$bundle/share/configs/shapes.toml" \
    --data.train "$work/shapes/train" --data.val "$work/shapes/val" --out "$runs/$name" "$@"
}
# What --tune has measured serves the next call on the same machine.
plans=$bundle/plans.txt
[[ -w $bundle ]] || plans=${results:-}/plans.txt
tune_cache=(--tune-cache "$plans")
[[ $BACKEND == cuda ]] || tune_cache=()
need_shapes() {
  [[ -d $work/shapes ]] && return
  logged pack lockstep pack --from shapes --out "$work/shapes"
  local status=$?
  ((status == 0)) || verdict 1 'the default data set is packed'
  return $status
}
losses() {
  [[ ! -e $runs/$1/metrics.jsonl ]] ||
    sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([-0-9.e+]*\),.*"lr".*/\1 \2/p' \
      "$runs/$1/metrics.jsonl"
}

section_ranks() {
  local n status
  # On 4 ranks of one card last: they take turns on it, so this may take long.
  for n in 1 2; do tests "nccl-$n" $n '[nccl]'; done
  compare_ranks
  tests nccl-4 4 '[nccl]'
}
compare_ranks() {
  local n status
  need_shapes || return 1
  # Micro-batches of 32 rows on any number of ranks: the statistics are the same, and so is the sum.
  for n in 1 2 4; do
    train "ranks-$n" $n --backend $BACKEND "${share_gpu[@]}" --batch 128 --accumulate $((4 / n)) \
      --precision fp32 "${same_bits[@]}" --graph false --stop-after 40 --audit.every-steps 10
    status=$?
    ((status == 3)) # ranks that differ end with 1
    verdict $? "$n rank(s) on one GPU train 40 steps with equal weights"
  done
  # With NCCL's reductions inside the recorded step.
  if [[ $BACKEND == cuda ]]; then
    train ranks-2-graph 2 --backend $BACKEND "${share_gpu[@]}" --batch 128 --accumulate 2 \
      --precision fp32 "${same_bits[@]}" --stop-after 40 --audit.every-steps 10 --graph true
    status=$?
    ((status == 3)) && [[ -n $(losses ranks-2) && $(losses ranks-2) == "$(losses ranks-2-graph)" ]]
    verdict $? 'a step that is recorded with its reductions has the same losses on 2 ranks'
  fi
  # In fp16 the ranks must also agree on each step that overflows.
  train ranks-2-fp16 2 --backend $BACKEND "${share_gpu[@]}" --batch 128 \
    --precision ${precisions##* } "${tune_cache[@]}" \
    --stop-after 40 --audit.every-steps 10
  status=$?
  ((status == 3))
  verdict $? "2 ranks on one GPU train 40 steps with equal weights in ${precisions##* }"
  # Sums in another order differ in their last bits, and training doubles that every few steps.
  for n in 2 4; do
    join <(losses ranks-1 | sort -k1,1) <(losses "ranks-$n" | sort -k1,1) >"$results/curve-$n.txt"
    read -r steps worst < \
      <(awk '$1 <= 20 { d = $2 - $3; d = (d < 0 ? -d : d) / $2; if (d > w) w = d; ++n }
      END { print n + 0, w + 0 }' "$results/curve-$n.txt")
    holds "$steps == 20 && $worst < 0.01"
    verdict $? "$n ranks on one GPU follow the curve of one rank"
    note "$n ranks: the losses of the first $steps steps differ by at most $worst of one rank's"
    data "{\"ranks\": $n, \"steps\": $steps, \"worst_relative_difference\": $worst}"
  done
  for mb in 1 25; do
    logged "buckets-$mb" within 40 "${mpirun[@]}" 2 \
      "$bundle/lockstep" bench train --backend $BACKEND "${share_gpu[@]}" \
      --reduction --comm.bucket-mb $mb --graph false --tune false --fuse-norms false \
      $reduction_case --json "$results/buckets-$mb.json"
    verdict $? "2 ranks on one GPU measure their reductions in buckets of $mb MB"
    [[ -s $results/buckets-$mb.json ]] || continue
    note "buckets of $mb MB: a step with reductions takes" \
      "$(number reduction_ratio "$results/buckets-$mb.json") times one without," \
      "$(number exposed_comm_ms "$results/buckets-$mb.json") ms of it exposed"
    data "{\"bucket_mb\": $mb, \"figures\": $(cat "$results/buckets-$mb.json")}"
  done
}
reduction_case='--model resnet50 --batch 64 --precision bf16 --steps 10'
[[ $BACKEND == cuda ]] || reduction_case='--model resnet20 --batch 8 --steps 2'

# compare_top1 NAME PRECISION WANT: compares its top-1 with WANT.
compare_top1() {
  local got
  got=$(number val_top1 "$runs/$1/summary.json")
  holds "$got > $3 - 0.01"
  verdict $? "$1 reaches top-1 $3 within 0.01"
  note "$1: top-1 $got, $(number images_per_s "$runs/$1/summary.json") images/s," \
    "first step after $(number seconds_to_first_step "$runs/$1/summary.json") s"
  data "{\"run\": \"$1\", \"precision\": \"$2\", \"top1\": ${got:-null}}"
}

section_train() {
  local precision want status
  need_shapes || return 1
  train cpu 1 --backend cpu --precision fp32
  want=$(number val_top1 "$runs/cpu/summary.json")
  note "on the CPU in fp32: top-1 ${want:-none}"
  for precision in $precisions; do
    train "shapes-$precision" 1 --backend $BACKEND --precision "$precision" "${tune_cache[@]}"
    compare_top1 "shapes-$precision" "$precision" "${want:-0.99}"
  done
  [[ -n ${CIFAR10:-} ]] || { note 'no CIFAR-10: CIFAR10=folder was not given'; return 0; }
  if ! compgen -G "$CIFAR10/train/*.h5" >/dev/null; then
    logged pack-cifar10 lockstep pack "$CIFAR10" --out "$work/cifar10"
    status=$?
    verdict $status "$CIFAR10 is packed"
    ((status == 0)) || return 1
    CIFAR10=$work/cifar10
  fi
  for precision in $precisions; do
    logged "cifar10-$precision" lockstep train --config "$bundle/share/configs/cifar10.toml" \
      --data.train "$CIFAR10/train" --data.val "$CIFAR10/val" --backend $BACKEND \
      --precision "$precision" "${tune_cache[@]}" --out "$runs/cifar10-$precision"
    # What the CPU reached with this recipe and seed: tests/bench/RESULTS.md.
    compare_top1 "cifar10-$precision" "$precision" 0.7885
  done
}

tensors() { [[ ! -e $1 ]] || lockstep info --json "$1" | grep -E '"(name|crc32c)"'; }
section_resume() {
  local precision whole parts
  need_shapes || return 1
  for precision in fp32 fp16; do
    [[ $precisions == *$precision* ]] || continue
    train "whole-$precision" 1 --backend $BACKEND --precision $precision "${same_bits[@]}" \
      --stop-after 60
    train "parts-$precision" 1 --backend $BACKEND --precision $precision "${same_bits[@]}" \
      --stop-after 30
    logged "resumed-$precision" lockstep train --config "$bundle/share/configs/shapes.toml" \
      --data.train "$work/shapes/train" --data.val "$work/shapes/val" \
      --out "$runs/parts-$precision" --backend $BACKEND --precision $precision "${same_bits[@]}" \
      --resume auto --stop-after 60
    whole=$(tensors "$runs/whole-$precision"/checkpoints/*60.h5)
    parts=$(tensors "$runs/parts-$precision"/checkpoints/*60.h5)
    [[ -n $whole && $whole == "$parts" ]]
    verdict $? "30 steps + 30 steps = 60 steps, bit for bit, in $precision"
  done
}
