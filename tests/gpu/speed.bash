# gpu-check's sections speed and torch, which it sources: our training steps, and PyTorch's.

used_memory=(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits)
# Peak of the device's used memory in MiB while a command runs, beyond what was used before it.
with_peak_memory() {
  local watcher before status
  before=$("${used_memory[@]}" 2>/dev/null | head -n 1)
  # Not in a function: `kill` would end the subshell alone, and nvidia-smi would run for ever.
  "${used_memory[@]}" -lms 100 >"$work/memory" 2>/dev/null & watcher=$!
  "$@"
  status=$?
  kill $watcher 2>/dev/null
  wait $watcher 2>/dev/null
  peak_mib=$(sort -n "$work/memory" | tail -n 1)
  peak_mib=$((${peak_mib:-0} - ${before:-0}))
  return $status
}

# What is measured, in order: the model and batch, the precision, and the ways to run a step. What
# the time does not suffice for is named. CASES= (an extended regular expression) selects of them.
speed_cases='resnet50 256 fp16
resnet20 128 fp16
resnet50 256 fp16-fused
resnet20 1024 fp16
resnet50 256 bf16
resnet18 512 fp16
resnet50 256 tf32
resnet50 256 fp32'
[[ $BACKEND == cuda ]] || speed_cases='resnet20 8 fp32'
more_speed_cases='resnet18 512 bf16
resnet20 1024 bf16
resnet18 512 fp32
resnet20 128 fp32'
[[ $BACKEND == cuda ]] || more_speed_cases=
selected() { grep -E -e "${CASES:-.}" <<<"$1"; }

# The options of `bench train` that change how a step runs. A GPU takes all of them unasked, so
# each case says of each whether it is on.
ways=(graph tune)
# bench_of MODEL BATCH PRECISION [WAY ...]: the command, as an array.
bench_of() {
  local precision=${3%-fused} fused=true way is
  [[ $3 != "$precision" ]] || fused=false
  bench=("$bundle/lockstep" bench train --backend $BACKEND --model "$1" --batch "$2"
    --precision "$precision" --fuse-norms $fused)
  shift 3
  for way in "${ways[@]}"; do
    is=false
    [[ " $* " != *" $way "* ]] || is=true
    bench+=("--$way" $is)
    [[ $way != tune || $is == false ]] || bench+=(--tune-cache "$plans")
  done
}

# measure MODEL BATCH PRECISION [WAY ...]
measure() {
  local model=$1 batch=$2 how=$3 name bench
  bench_of "$@"
  shift 3
  name=speed-$model-$batch-$how${*:+-$*}
  name=${name// /-}
  (($(left_s) >= 12)) || { note "not measured, no time was left: ${name#speed-}"; return 0; }
  rm -f "$results/$name.json"
  with_peak_memory logged "$name" within 90 "${bench[@]}" --steps 30 --warm-up 10 \
    --json "$results/$name.json"
  if [[ $BACKEND != cuda ]] && grep -q 'needs a GPU' "$results/$name.log"; then
    note "skipped: ${name#speed-} needs a GPU"
    return 0
  fi
  [[ -s $results/$name.json ]]
  verdict $? "${name#speed-} is measured"
  [[ -s $results/$name.json ]] || return 0
  note "${name#speed-}: $(number images_per_s "$results/$name.json") images/s," \
    "step $(number step_ms "$results/$name.json") ms, $peak_mib MiB," \
    "first step after $(number first_step_s "$results/$name.json") s"
  data "{\"peak_device_mib\": $peak_mib, \"how\": \"$how $*\",
    \"figures\": $(cat "$results/$name.json")}"
}

# Each step of the tape, in a separate process: measuring the card's rates takes memory.
measure_layers() {
  local model=$1 batch=$2 how=$3 name=layers-$1-$2-$3 bench
  bench_of "$@"
  (($(left_s) >= 12)) || { note "not measured, no time was left: $name"; return 0; }
  logged "$name" within 90 "${bench[@]}" --steps 10 --warm-up 5 --layers \
    --json "$results/$name.json" --layers-trace "$results/$name.trace.json"
  verdict $? "$name is measured"
  [[ -s $results/$name.json ]] || return 0
  note "$name: the floor is $(number floor_reached "$results/$name.json") of the step"
  slow_steps "$results/$name.json"
  engines "$results/$name.json"
  data "{\"layers\": \"$model $batch $how\", \"figures\": $(cat "$results/$name.json")}"
}
fields() { tr -d '\n' <"$1" | sed 's/.*"tape": *\[//; s/} *, *{/}\n{/g'; }
# The steps that take more than 1.5 times their floor; what loses most comes first.
slow_steps() {
  local line='.*"name": *"([^"]*)".*"ms": *([-0-9.e+]+).*"floor_ms": *([-0-9.e+]+).*'
  fields "$1" | sed -nE "s/$line/\2\t\3\t\1/p" |
    awk -F'\t' '$1 > 1.5 * $2 { printf "%.4f\t%s ms, at best %s: %s\n", $1 - $2, $1, $2, $3 }' |
    sort -rn | head -n 12 | sed 's/^[^\t]*\t/NOTE   slow: /'
}
# The engines that the library chose, and how often.
engines() {
  fields "$1" | sed -nE 's/.*"engine": *"([^"]*)".*/\1/p' | sort | uniq -c | sort -rn |
    sed 's/^ */NOTE   engine: /'
}

# The engines and fusions that --tune took, and for how many convolutions.
tuned_engines() {
  awk -F'\t' 'NF == 4 { print $4 }' "$1" | sort | uniq -c | sort -rn |
    sed 's/^ */NOTE   tuned: /'
}

section_speed() {
  local model batch how
  note "ways to run a step: plain, ${ways[*]}"
  # The first case in all ways and step by step. Then the others as they are and in the fastest
  # way, then their layers, then each way alone.
  local first=1
  while read -r model batch how; do
    measure $model $batch $how
    measure $model $batch $how "${ways[@]}"
    ((first)) || continue
    first=0
    measure_layers $model $batch $how
    measure_each_way $model $batch $how
  done < <(selected "$speed_cases")
  while read -r model batch how; do
    measure_layers $model $batch $how
  done < <(selected "$speed_cases" | tail -n +2)
  while read -r model batch how; do
    measure_each_way $model $batch $how
  done < <(selected "$speed_cases" | tail -n +2)
  while read -r model batch how; do
    measure $model $batch $how
  done < <(selected "$more_speed_cases")
  [[ ! -e $plans ]] || tuned_engines "$plans"
  [[ ! -e $plans || $plans == "$results"/* ]] || cp "$plans" "$results/"
}
# measure_each_way MODEL BATCH PRECISION: one way at a time.
measure_each_way() {
  local way
  for way in "${ways[@]}"; do measure "$@" $way; done
}

# Python finds its own libraries, not the bundle's.
torch() { LD_LIBRARY_PATH=$machines_path python3 "$@"; }
# The most important comes first: compiling takes long, and the time may run out.
torch_cases='resnet50 256 fp16 --graph
resnet20 128 fp16 --graph
resnet20 1024 fp16 --graph
resnet50 256 fp16
resnet50 256 fp16 --compile
resnet50 256 bf16 --graph
resnet18 512 fp16 --graph
resnet20 128 fp16 --compile
resnet20 1024 fp16 --compile
resnet50 256 tf32 --graph
resnet50 256 fp32 --graph
resnet50 256 bf16 --compile
resnet18 512 fp16 --compile
resnet20 128 fp16
resnet20 1024 fp16'
section_torch() {
  torch -c 'import torch; assert torch.cuda.is_available()' 2>"$results/torch.log" ||
    { note "skipped: $(tail -n 1 "$results/torch.log")"; return 0; }
  local model batch precision way name measured=0
  while read -r model batch precision way; do
    name="torch $model-$batch-$precision ${way:-eager}"
    (($(left_s) >= 15)) || { note "not measured, no time was left: $name"; continue; }
    if LD_LIBRARY_PATH=$machines_path within 150 python3 "$bundle/share/torch_gpu.py" \
      --model "$model" --batch "$batch" --precision "$precision" $way \
      >"$work/said" 2>>"$results/torch.log"; then
      note "$name: $(number images_per_s "$work/said") images/s," \
        "step $(number step_ms "$work/said") ms"
      data "$(cat "$work/said")"
      measured=$((measured + 1))
    else
      note "$name: $(tail -n 1 "$results/torch.log")"
    fi
  done < <(selected "$torch_cases")
  verdict $((measured == 0)) 'PyTorch is measured'
}
