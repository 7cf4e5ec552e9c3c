#!/bin/bash
# A training that computes nothing: it writes the validations that a curve of its trial's number
# has, for `lockstep search run --trainer`. $EPOCH_S is how long an epoch takes (0), $EPOCHS how
# many there are (9). Two at once in one run's folder are an error.
to=${EPOCHS:-9}
while (($#)); do
  case $1 in
    --out) out=$2 ;;
    --stop-after-epoch) to=$2 ;;
  esac
  shift
done
mkdir -p "$out"
exec 9>>"$out/.lock"
flock -w 1 9 || { echo "error: two trainings in $out"; exit 1; }
trap 'exit ${status:-3}' TERM USR1
name=${out##*/}
trial=${name%%.*} seed=0
[[ $name == *.seed-* ]] && seed=${name##*-}
done=0
[[ -f $out/metrics.jsonl ]] && mapfile -t lines <"$out/metrics.jsonl" && done=${#lines[@]}
for ((epoch = done + 1; epoch <= to; ++epoch)); do
  if [[ ${EPOCH_S:-0} != 0 ]]; then
    sleep "$EPOCH_S" 9>&- &
    wait $!
  fi
  # The end's score, and noise that falls with the epochs.
  printf -v score '%06d' $((300000 + trial * 7919 % 1000 * 500 + \
    (trial * 31 + epoch * 17 + seed * 13) % 101 * 2000 / epoch))
  line="{\"kind\":\"epoch\",\"time_ms\":1,\"epoch\":$epoch,\"last_step\":$epoch,"
  line+="\"train_loss\":1,\"train_top1\":0,\"val_loss\":1,\"val_top1\":0.$score,\"val_top5\":1}"
  echo "$line" >>"$out/metrics.jsonl"
done
status=0
((to == ${EPOCHS:-9})) || status=3
exit $status
