#!/bin/bash
# Images and labels of other programs' HDF5 files, in each kind of storage, with each kind of fault:
# all of it is there, or an error names the file and the data set. (HDF5 itself gives zeros.)
# computes
root=$PWD
source "$(dirname "$0")/../../support/e2e.bash"
source "$root/tests/support/h5py.bash"
h5py_or_skip 'what is not whole in an HDF5 file is an error'

"$python" "$root/tests/e2e/data/h5_whole.py" >cells.txt 2>write.log || cat write.log
# Root may read everything.
reader=()
if ((EUID == 0)); then
  reader=(setpriv --reuid 65534 --regid 65534 --clear-groups)
  chmod a+rx "$WORK"
fi
can_be_another=no
"${reader[@]}" "$LOCKSTEP" info --help >help.log 2>&1 && can_be_another=yes || reader=()

# cells SET STORAGE: each is as its line says; shows those that are not.
cells() {
  local set storage fault file words wrong=0
  while IFS=$'\t' read -r set storage fault file words; do
    [[ "$set $storage" == "$1 $2" ]] || continue
    if [[ $fault == unreadable && $can_be_another == no ]]; then continue; fi
    run "${reader[@]}" "$LOCKSTEP" info "$file"
    if [[ $fault == none ]]; then
      ((status == 0)) && says 'images /images .*, labels /labels ' && says '^ +8  2$'
    else
      ((status == 2)) && says "$words" && says "$file" && says "/$set|holds no $set|truncated"
    fi || { echo "$file ($fault): status $status: $said"; wrong=1; }
  done <cells.txt
  return $wrong
}
for set in images labels; do
  for storage in plain chunked virtual external virtual-external; do
    law "$set, $storage: what is not whole is an error that names the file and the data set" \
      cells $set $storage
  done
done

refused() {  # refused COMMAND...: and nothing is made
  run "$LOCKSTEP" "$@"
  ((status == 2)) && says "labels/virtual/missing/a.h5: /labels is a virtual data set over" &&
    [[ ! -e out/checkpoints && ! -e out/train ]] || { echo "$said"; return 1; }
}
everywhere() {
  local file=labels/virtual/missing/a.h5 whole=labels/plain/none/a.h5
  "$LOCKSTEP" train --model resnet20 --data.train $whole --epochs 1 --batch 8 --out run &&
    refused train --model resnet20 --data.train $file --epochs 1 --batch 8 --out out &&
    refused train --model resnet20 --data.train $whole --data.val $file --epochs 1 --out out &&
    refused eval run --data $file && refused predict run $file --out out &&
    refused pack --repack $file --out out
}
law 'train, eval, predict and --repack say the same as info' everywhere

# HDF5 itself would give zeros for the second half.
locked() {
  coproc holder {
    "$python" -c 'import h5py, sys
file = h5py.File(sys.argv[1], "r+")
print(flush=True)
sys.stdin.read()' labels/virtual/none/labels.12.h5
  }
  local to=${holder[1]} line
  read -r line <&"${holder[0]}" || [[ ! $line ]]
  run "$LOCKSTEP" info labels/virtual/none/a.h5
  eval "exec $to>&-"
  ((status == 0)) && says '^ +8  2$' || { echo "$said"; return 1; }
}
law 'a source that another program has open for writing is read' locked
folder_of_images() {
  mkdir -p pics/cat && refused_as "pics: holds no .*'lockstep pack' makes shards" \
    train --data.train pics --epochs 1 --out out
}
refused_as() {
  run "$LOCKSTEP" "${@:2}"
  ((status == 2)) && says "$1" || { echo "$said"; return 1; }
}
law 'a folder of images in place of shards is an error that names pack' folder_of_images
