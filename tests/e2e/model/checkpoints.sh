#!/bin/bash
# Checkpoints that are damaged, from another run, or could not be written: each is an error that
# names it, --resume auto takes the one before, and nothing is overwritten. (resume.sh: how a
# resumed run ends.)
# computes
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
any=("$LOCKSTEP" train --model resnet56 --epochs 2 --threads 1 --checkpoint.every-steps 4)
train=("${any[@]}" --data.train small/train --batch 25)

"${train[@]}" --out whole >whole.log 2>&1 || cat whole.log
# In the foreground, so that each checkpoint comes after the step at which it is due.
"${train[@]}" --out run --stop-after 13 --checkpoint.background false >run.log 2>&1
newest=run/checkpoints/step-00000013.h5 before=run/checkpoints/step-00000012.h5
cp -r run sound
flip() {  # flip FILE BYTE
  local byte
  byte=$(od -An -tu1 -j "$2" -N 1 "$1")
  printf "\\x$(printf %02x $((byte ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
same_end() {  # same_end RUN: it ended as the uninterrupted run did
  cmp <(tensors "$1/checkpoints/step-00000020.h5") <(tensors whole/checkpoints/step-00000020.h5) &&
    cmp <(without_times "$1") <(without_times whole)
}

flip $newest 1000000
run "${train[@]}" --out other --resume $newest
((status == 2)) && says "error: $newest: this checkpoint is torn or was altered" && [[ ! -e other ]]
verdict $? 'a checkpoint with one flipped bit is an error that names it'
run "${train[@]}" --out run --resume auto
((status == 0)) && says "warning: $newest: .*altered.*looking for an earlier one" &&
  says "resuming from $before: step 12" && [[ -e $newest.aside ]] && same_end run
verdict $? '--resume auto sets a damaged checkpoint aside, takes the one before, and ends with the same bits'

rm -r run && cp -r sound run
mkfifo run/checkpoints/step-00000014.h5
cp $before run/checkpoints/step-00000019.h5
run timeout -s KILL 300 "${train[@]}" --out run --resume auto
((status == 0)) && says 'warning: .*step-00000014.h5: is a pipe, and not a regular file; looking for an earlier one' &&
  says 'warning: .*step-00000019.h5: by its name it is of step 19, but it holds step 12; looking for an' &&
  says "resuming from $newest: step 13" &&
  (($(compgen -G "run/checkpoints/*.aside" | wc -l) == 2)) && same_end run
verdict $? '--resume auto passes over a pipe, and over a copy of a checkpoint under the name of another step'

rm -r run && cp -r sound run
for file in run/checkpoints/step-*; do flip "$file" 4000; done
cp -r run as_it_was
run "${train[@]}" --out run --resume auto
((status == 2)) && says 'run/checkpoints holds no intact checkpoint' &&
  diff -r run as_it_was
verdict $? 'a run whose checkpoints are all damaged is an error, and nothing is overwritten'

# ---- names on the disk ---------------------------------------------------------------------------
# lost_names TRACE RUN: the renames in its folders that their thread left without an fsync of that
# folder: a crash of the machine may undo them.
lost_names() {
  awk -v folders="fsync\\([0-9]+<[^>]*/$2(/checkpoints)?>" -v names="^[0-9]+ +rename.*\"$2/" '
    $0 ~ names && !/ = -1 / { if ($1 in open) print open[$1]; open[$1] = $0 }
    $0 ~ folders { delete open[$1] }
    END { for (one in open) print open[one] }' "$1"
}
# unsynced_folders TRACE: folders that were made, and whose own folder was not synced after that.
unsynced_folders() {
  awk -v here="$PWD" -F '"' '
    / mkdir(at)?\(.* = 0$/ && !/\/proc|\/dev\/shm|\.cache/ {
      parent = $2 ~ /^\// ? $2 : here "/" $2
      sub(/\/[^\/]*$/, "", parent)
      open[parent] = $0
    }
    / fsync\(.* = 0$/ { folder = $0; sub(/^[^<]*</, "", folder); sub(/>.*/, "", folder)
      delete open[folder] }
    END { for (one in open) print open[one] }' "$1"
}
law='a file that a run renames, and a folder that it makes, outlive a crash of the machine'
if may_trace; then
  traced=(strace -f -qq -y --seccomp-bpf -o names.trace
    -e trace=rename,renameat,renameat2,mkdir,mkdirat,fsync
    "${train[@]}" --out names --data.val small/val --checkpoint.background false)
  run "${traced[@]}" --stop-after 11
  ((status == 3)) && grep -q '"names/checkpoints/best.h5")' names.trace &&
    said=$(lost_names names.trace names; unsynced_folders names.trace) && [[ ! $said ]] &&
    grep -q 'mkdir.*"names/checkpoints"' names.trace &&
    flip names/checkpoints/step-00000011.h5 4000 &&
    run "${traced[@]}" --resume auto --stop-after 12 && ((status == 3)) &&
    grep -q '"names/checkpoints/step-00000011.h5.aside"' names.trace &&
    said=$(lost_names names.trace names) && [[ ! $said ]]
  verdict $? "$law"
else
  echo "SKIP $law: strace may not trace here"
fi

# ---- damaged, with a correct checksum ------------------------------------------------------------
if /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
  /usr/bin/python3 "$support/edit_checkpoint.py" sound/checkpoints/step-00000010.h5 hostile.h5 \
    texts backend
  hostile() {  # hostile NAME COMMAND...
    run "$LOCKSTEP" "${@:2}"
    ((status == 2)) && says "^error: hostile.h5: the attribute 'backend' has 6 strings where one is expected$" &&
      [[ $(grep -c "hostile.h5" <<<"$said") == 1 && ! -e other ]]
    verdict $? "for $1, a checkpoint that would overflow a buffer is an error that names it"
  }
  hostile info info hostile.h5
  hostile eval eval hostile.h5 --data small/val
  hostile '--resume' "${any[@]:1}" --data.train small/train --batch 25 --out other \
    --resume hostile.h5
else
  echo 'SKIP a checkpoint that would overflow a buffer is an error: /usr/bin/python3 has no h5py'
fi

# ---- of another run ------------------------------------------------------------------------------
refused() {  # refused NAME PATTERN OPTION...
  run "${any[@]}" --out other "${@:3}"
  ((status == 2)) && says "$2" && [[ ! -e other ]]
  verdict $? "$1"
}
mkdir idx
{ printf '\0\0\010\003\0\0\0\024\0\0\0\010\0\0\0\010' && head -c 1280 "$LOCKSTEP"; } \
  >idx/train-images-idx3-ubyte
printf '\0\0\010\001\0\0\0\024\0\1\2\0\1\2\0\1\2\0\1\2\0\1\2\0\1\2\0\1' \
  >idx/train-labels-idx1-ubyte
"$LOCKSTEP" pack idx --out digits --channels 3 --held-out 0 >/dev/null 2>&1
refused 'a checkpoint for other classes is an error that names it' \
  'sound/.*step-00000010.h5 and digits/train have different classes \(10 and 3 of them\)' \
  --data.train digits/train --batch 10 --resume sound/checkpoints/step-00000010.h5
refused 'resuming in the middle of an epoch with another batch is an error' \
  'sound/.*batch = 25; now it is 50' \
  --data.train small/train --batch 50 --resume sound/checkpoints/step-00000013.h5
refused 'a shard in place of a checkpoint is an error' 'not a lockstep checkpoint' \
  --data.train small/train --batch 25 --resume "$(echo small/val/*.h5)"

# ---- no room -------------------------------------------------------------------------------------
# Files may not grow beyond 6 MiB: MPI's own files fit, a checkpoint of 7 MB does not.
rm -rf run && cp -r sound run
(cd run/checkpoints && sha256sum ./*) >sums
no_room() { (trap '' XFSZ && ulimit -f 6144 && "$@"); }
run no_room "${train[@]}" --out run --resume auto
((status == 1)) && says 'error: cannot write run/checkpoints/step-00000016.h5.*: File too large' &&
  (cd run/checkpoints && sha256sum --quiet -c ../../sums) &&
  [[ $(ls run/checkpoints) == $(ls sound/checkpoints) ]]
verdict $? 'a checkpoint for which there is no room is named, and older ones stay as they are'
run "${train[@]}" --out run --resume auto
((status == 0)) && says "resuming from $newest" && same_end run
verdict $? 'when there is room again, the run resumes and ends with the same bits'
