#!/bin/bash
# `lockstep pack` from the command line: any number of ranks writes the same bytes; errors name what
# is wrong, and no data set is left.
# seconds: 400
# computes
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"

pack() { run "$LOCKSTEP" pack "$@"; }
# pack_on N ARGUMENT...: pack on N ranks.
pack_on() { run ranks "$1" "$LOCKSTEP" pack "${@:2}"; }

# refuses NAME WORDS ARGUMENT...: status 2, with WORDS, and no data set in `out`.
refuses() {
  pack "${@:3}" --out out
  ((status == 2)) && grep -qF -- "$2" <<<"$said" && [[ ! -e out ]]
  verdict $? "pack refuses $1"
  rm -rf out
}

digest() { (cd "$1" && find . -type f | sort | xargs sha256sum | sha256sum); }

jpeg() {
  base64 -d <<END
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABALDA4MChAODQ4SERATGCgaGBYWGDEjJR0oOjM9PDkzODdASFxOQERXRTc4UG1R
V19iZ2hnPk1xeXBkeFxlZ2P/2wBDARESEhgVGC8aGi9jQjhCY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2Nj
Y2NjY2NjY2NjY2NjY2P/wAARCAAIAAgDASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAX/xAAUEAEAAAAAAAAAAAAA
AAAAAAAA/8QAFQEBAQAAAAAAAAAAAAAAAAAAAAb/xAAUEQEAAAAAAAAAAAAAAAAAAAAA/9oADAMBAAIRAxEAPwCWAKZ//9k=
END
}

# ---- generated shapes, 1, 2 and 3 ranks ---------------------------------------------------------
shapes=(--from shapes --train-rows 2000 --val-rows 300 --rows-per-shard 300 --seed 5)
pack "${shapes[@]}" --out one
((status == 0)) && says 'packed 2300 images of 10 classes' &&
  says 'one/train: 2000 rows in 7 shards' &&
  [[ -e one/val/val-00000-of-00001.h5 && ! -e one/.partial ]]
verdict $? 'pack says what it wrote, and where'
for n in 2 3; do
  pack_on $n "${shapes[@]}" --out "of$n"
  ((status == 0)) && [[ $(digest one) == $(digest "of$n") ]]
  verdict $? "$n ranks pack the same bytes as one"
done

before=$(digest one)
pack --from shapes --train-rows 50 --val-rows 0 --out one
((status == 2)) && says 'one/train: exists already' && [[ $(digest one) == "$before" ]]
verdict $? 'pack does not overwrite a data set'
pack_on 2 --from shapes --train-rows 50 --val-rows 0 --held-out 0 --out one --force
((status == 0)) && [[ $(find one -type f) == one/train/train-00000-of-00001.h5 ]]
verdict $? 'pack --force replaces the whole data set'

# ---- class folders -------------------------------------------------------------------------------
for name in cat dog; do
  mkdir -p "images/$name"
  for i in $(seq 20); do jpeg >"images/$name/$i.JPG"; done
done
pack images --out out
((status == 0)) && says '10 % of each class' && says 'out/train: 36 rows' && says 'out/val: 4 rows'
verdict $? 'pack finds class folders and holds out a tenth'
cp -r images train  # the name of a command
pack train --val images --out named
((status == 0)) && says 'named/train: 40 rows'
verdict $? 'a folder that is called as a command is can be packed'
(cd images/cat && mkfifo pipe.jpg && ln -s /dev/zero zero.jpg && ln -s gone gone.jpg &&
  ln -s loop.jpg loop.jpg)
run timeout -s KILL 20 "$LOCKSTEP" pack images --out odd --skip-bad
((status == 0)) && says '4 unreadable images were skipped' &&
  grep -q 'pipe.jpg: is a pipe, and not a regular file' odd/skipped.txt &&
  grep -q 'zero.jpg: is a device' odd/skipped.txt && grep -q 'gone.jpg: No such' odd/skipped.txt &&
  grep -q 'loop.jpg: Too many levels' odd/skipped.txt
verdict $? 'what is no file is skipped like a broken image, at once'
rm images/cat/{pipe,zero,gone,loop}.jpg
rm -rf out

head -c 200 images/dog/7.JPG >images/dog/8.JPG
echo text >images/cat/3.JPG
refuses 'a broken image, and names it' 'images/cat/3.JPG: not an image' images
pack_on 3 images --rows-per-shard 5 --out out
((status == 2)) && [[ ! -e out/train ]] && (($(grep -c 'images/.*JPG: ' <<<"$said") == 1))
verdict $? 'an image that one rank finds broken ends all ranks, and is named once'
rm -rf out
pack_on 2 images --skip-bad --held-out 0 --rows-per-shard 5 --out out
((status == 0)) && says 'packed 38 images' && says '2 unreadable images were skipped' &&
  [[ $(wc -l <out/skipped.txt) == 2 ]] && grep -q '^images/cat/3.JPG: not' out/skipped.txt &&
  grep -q '^images/dog/8.JPG: broken JPEG' out/skipped.txt &&
  (($(grep -c 'skipped images/cat/3.JPG' <<<"$said") == 1))
verdict $? 'pack --skip-bad counts and lists what it skipped'
mkdir -p images/newt && for i in 1 2 3; do echo text >images/newt/$i.jpg; done
pack_on 2 images --skip-bad --held-out 0 --rows-per-shard 5 --out lost
((status == 0)) && says "1 of 3 classes lost all of their training images.*: 'newt' \(3\)" &&
  (($(grep -c 'lost all' <<<"$said") == 1)) && "$LOCKSTEP" info lost/train | grep -q newt
verdict $? 'a class that loses all its images is named'
rm -r images/newt
rm -rf out

mkdir images/bird
refuses 'an empty class folder, and names it' 'images/bird: an empty class folder' images
pack images --out images/out
((status == 2)) && says 'is inside the source' && [[ ! -e images/out ]]
verdict $? 'pack refuses to write into its source'
refuses 'a missing folder' 'nowhere: no such file or folder' nowhere
refuses 'a folder without class folders' 'images/cat: no class folders' images/cat
refuses 'to start without a source' 'name the folder of images'
refuses 'an unknown kind' 'mnist' images --from mnist
refuses 'a folder together with generated shapes' 'what is images for' images --from shapes
refuses 'a size with junk' '--resize 12y' images --resize 12y
refuses 'a number of shapes together with a folder' '--train-rows and --val-rows' images \
  --train-rows 5
refuses 'to hold out rows of a source that has its own test split' 'has its own' --from shapes \
  --held-out 0.5

# ---- IDX -----------------------------------------------------------------------------------------
mkdir idx
{ printf '\0\0\010\003\0\0\0\012\0\0\0\002\0\0\0\003' && head -c 60 "$LOCKSTEP"; } \
  >idx/train-images-idx3-ubyte
printf '\0\0\010\001\0\0\0\012\0\1\2\0\1\2\0\1\2\0' | gzip >idx/train-labels-idx1-ubyte.gz
pack_on 2 idx --held-out 0 --out out
((status == 0)) && says 'packed 10 images of 3 classes as 2 x 3 x 1'
verdict $? 'pack finds IDX files, one of them gzipped'
rm -rf out
pack idx --held-out 0 --resize 16 --channels 3 --out out
((status == 0)) && says 'packed 10 images of 3 classes as 16 x 16 x 3'
verdict $? 'pack --resize and --channels shape the rows'
rm -rf out
truncate -s -5 idx/train-images-idx3-ubyte
refuses 'a truncated IDX file' 'expected 60 bytes after the header, found 55' idx

# ---- the CIFAR-10 JPEGs --------------------------------------------------------------------------
archive=$repo/../shared/cifar10/cifar10-jpeg.tar.gz
if [[ ! -e $archive ]]; then
  echo 'SKIP pack takes real JPEGs: ../shared/cifar10 is not there'
  exit
fi
mkdir photos
tar xzf "$archive" -C photos
pack_on 2 photos --out cifar
((status == 0)) && says 'packed 60000 images of 10 classes as 32 x 32 x 3' &&
  says 'mean 0.4913 0.4821 0.4465, deviation 0.2452 0.2428 0.2606'
verdict $? 'pack takes real JPEGs: CIFAR-10, both splits'
