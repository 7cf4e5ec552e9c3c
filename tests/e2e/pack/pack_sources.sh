#!/bin/bash
# `lockstep pack` from tars and lists: the shards equal those of a folder with the same images, on
# any number of ranks; errors name what is wrong and its place.
# seconds: 200
# computes
source "$(dirname "$0")/../../support/e2e.bash"

digest() { (cd "$1" && find . -type f | sort | xargs sha256sum | sha256sum); }
pack() { run "$LOCKSTEP" pack "$@" --jpeg --out out; }
# refuses NAME PATTERN ARGUMENT...: status 2, with PATTERN, and no data set.
refuses() {
  pack "${@:3}"
  ((status == 2)) && says "$2" && [[ ! -e out ]]
  verdict $? "pack refuses $1"
  rm -rf out
}

"$LOCKSTEP" pack --from shapes --train-rows 60 --val-rows 0 --held-out 0 \
  --jpeg --out shapes >/dev/null
cat >unpack.py <<'PYTHON'
import glob, os, sys, h5py
n = 0
for path in sorted(glob.glob("shapes/train/*.h5")):
    with h5py.File(path) as f:
        at, data, labels = f["offsets"][()], f["jpegs"][()].tobytes(), f["labels"][()]
        for i, label in enumerate(labels):
            split = "train" if n % 5 else "val"
            folder = f"images/{split}/c{label}"
            os.makedirs(folder, exist_ok=True)
            with open(f"{folder}/{n:04}.jpg", "wb") as out:
                out.write(data[at[i]:at[i + 1]])
            n += 1
PYTHON
if ! /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
  echo 'SKIP pack from tars and lists: no h5py to make the images with'
  exit
fi
/usr/bin/python3 unpack.py

run "$LOCKSTEP" pack images --jpeg --rows-per-shard 10 --out folder
((status == 0)) && says 'packed 60 images of 10 classes'
verdict $? 'a folder of JPEGs is packed'
want=$(digest folder)

# ---- tars of class folders -----------------------------------------------------------------------
tar cf images.tar --sort=name images
tar czf images.tar.gz --sort=name --format=pax images
for source in images.tar images.tar.gz; do
  for n in 1 2 4; do
    run ranks $n "$LOCKSTEP" pack $source --jpeg --rows-per-shard 10 --out out
    ((status == 0)) && [[ $(digest out) == "$want" && ! -e out/.partial ]]
    verdict $? "$n rank(s) pack $source to the same shards as the folder"
    rm -rf out
  done
done
if command -v zstd >/dev/null; then
  zstd -q images.tar
  pack images.tar.zst --rows-per-shard 10
  ((status == 0)) && [[ $(digest out) == "$want" ]]
  verdict $? 'a tar compressed by zstd gives the same'
  rm -rf out
else
  echo 'SKIP a tar compressed by zstd gives the same: no zstd'
fi

# ---- lists ---------------------------------------------------------------------------------------
(cd images && find train -name '*.jpg' | sort | sed -E 's,.*/(c[0-9]+)/.*,& \1,') >train.txt
(cd images && find val -name '*.jpg' | sort | sed -E 's,.*/(c[0-9]+)/.*,& \1,') >val.txt
for n in 1 2 4; do
  run ranks $n "$LOCKSTEP" pack train.txt --val val.txt --root images --jpeg --rows-per-shard 10 \
    --out out
  ((status == 0)) && [[ $(digest out) == "$want" ]]
  verdict $? "$n rank(s) pack two lists to the same shards as the folder"
  rm -rf out
done

# ---- WebDataset ----------------------------------------------------------------------------------
mkdir web
i=0
for file in $(cd images && find train -name '*.jpg' | sort); do
  class=${file#train/c}
  cp images/$file web/$(printf %06d $i).jpg
  echo "${class%%/*}" >web/$(printf %06d $i).cls
  ((++i))
done
(cd web && ls | head -60 | tar cf ../web-00.tar -T - &&
  ls | tail -n +61 | tar czf ../web-01.tar -T -)
seq 10 19 | sed 's/^/class /' >names.txt
pack 'web-{00..01}.tar' --held-out 0 --class-names names.txt
((status == 0)) && says "packed 48 images of 10 classes" &&
  "$LOCKSTEP" info out/train | grep -q 'class 10'
verdict $? 'WebDataset tars are given by a pattern, with numbers as labels and a list of names'
rm -rf out

# ---- errors --------------------------------------------------------------------------------------
head -c 20000 images.tar >cut.tar
refuses 'a truncated tar, and names member and byte' \
  'cut.tar: at byte [0-9]+: .*(cut off|ends [0-9]+ bytes after)' cut.tar
head -c 9000 images.tar.gz >cut.tar.gz
refuses 'a truncated archive' 'cut.tar.gz: cannot be unpacked: it is cut off' cut.tar.gz
{ head -c 15360 images.tar && head -c 512 <(yes) && tail -c +15873 images.tar; } >bad.tar
run "$LOCKSTEP" pack bad.tar --jpeg --out out
((status == 2)) && says 'bad.tar: ' && [[ ! -e out/train ]]
verdict $? 'pack refuses a damaged tar, and names it'
rm -rf out
refuses 'a pattern without files' "none-\*.tar: no file has such a name" 'none-*.tar'
refuses 'several folders' 'only tars may be more than one' images images.tar.gz
printf 'train/a.jpg 0\ntrain/b.jpg\n' >bad.txt
refuses 'a list with a malformed line' 'bad.txt, line 2: expected a path and a label' bad.txt
echo 'gone.jpg 0' >gone.txt
refuses 'a list with a missing file, and names it' 'images/gone.jpg: No such file' gone.txt \
  --root images
# ---- names ---------------------------------------------------------------------------------------
cp -r images/train latin
mv latin/c1 "$(printf 'latin/ros\351')"
refuses 'a class whose name is not UTF-8, and shows its bytes' \
  'latin/ros.xe9/[0-9]+.jpg: the class "ros.xe9" has a name that is not UTF-8: rename' latin
mkdir upper && cp -r images/train upper/Train && cp -r images/val upper/Test
run "$LOCKSTEP" pack upper --jpeg --rows-per-shard 10 --out out
((status == 0)) && [[ $(digest out) == "$want" ]]
verdict $? 'folders Train and Test are splits'
rm -rf out
refuses 'to validate on what is trained' '--val ./images/train: is the source of the training' \
  images/train --val ./images/train
/usr/bin/python3 - <<'PYTHON'
import glob, io, tarfile
image = open(sorted(glob.glob("images/train/*/*.jpg"))[0], "rb").read()
with tarfile.open("forged.tar", "w") as tar:
    for name in ["a/1.jpg", "b/2.jpg", "a/x\nerror: forged\nb/y.jpg"]:
        data = image if name[2] in "12" else b"no image"
        member = tarfile.TarInfo(name)
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
PYTHON
pack forged.tar --held-out 0 --skip-bad
((status == 0)) && says 'skipped forged.tar: a/x.nerror: forged.nb/y.jpg: not an image' &&
  ! grep -q '^error' <<<"$said" && [[ $(wc -l <out/skipped.txt) == 1 ]] &&
  says "1 image is equal to an image of another class.*: forged.tar: a/1.jpg \('a'\) and .*b/2.jpg"
verdict $? 'no name of a file makes lines in the log or in skipped.txt; equal images are named'
rm -rf out
run ranks 2 "$LOCKSTEP" pack images.tar cut.tar --jpeg --out out
((status == 2)) && says 'cut.tar: at byte' && [[ ! -e out ]]
verdict $? 'a tar that one of two ranks finds damaged ends both, and no data set is left'
