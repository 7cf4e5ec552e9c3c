#!/bin/bash
# `lockstep predict` on images in files: class folders, a list and a tar give the bits of the packed
# set; labels may be missing.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
command -v python3 >/dev/null || { echo 'SKIP images are predicted: no python3'; exit 0; }
python3 "$support/flowers.py" flowers 20
"$LOCKSTEP" pack flowers --out packed --resize 32x36 --held-out 0 >pack.log 2>&1 || cat pack.log
"$LOCKSTEP" train --data.train packed/train --batch 20 --epochs 1 --threads 1 --out run >run.log \
  2>&1 || cat run.log
tar -cf flowers.tar -C flowers .
(cd flowers && find * -name '*.png' | sed 's|^\([^/]*\)/.*|& \1|') | sort -r >list.txt
cut -d ' ' -f 1 list.txt >paths.txt
mkdir -p photos/deep/er && cp -r flowers/daisy photos/deep/er && cp flowers/rose/* photos

predict() { "$LOCKSTEP" predict run --csv --threads 1 --batch 16 "$@"; }
# rows OUT: its lines without the row's number, by file.
rows() { tail -n +2 "$1/predictions.csv" | cut -d , -f 2- | sort; }
# alike LAW OUT DATA OPTION...: predicts what `packed` holds, with the same bits.
alike() {
  run predict --out "${@:2}" --resize 32x36
  ((status == 0)) && says '60 rows in .*top-1' && rows packed_out | cmp - <(rows "$2")
  verdict $? "$1"
}
run predict packed/train --out packed_out
((status == 0)) && (($(rows packed_out | wc -l) == 60))
verdict $? 'a packed set of images with names is predicted with its names'
alike 'class folders give the bits of the packed set' folder flowers
alike 'a list of paths and labels gives the bits of the packed set' list list.txt --root flowers
alike 'a tar gives the bits of the packed set' tar flowers.tar
for i in 1 2; do
  predict --out both flowers.tar --resize 32x36 >both$i.log 2>&1 &
  workers[i]=$!
done
wait "${workers[1]}" && wait "${workers[2]}" && cmp tar/predictions.h5 both/predictions.h5
verdict $? 'two workers that begin at once share an index and give the bits of one'

without_label() { rows "$1" | sed 's/,[a-z]*,/,/'; }
run predict --out paths paths.txt --root flowers --resize 32x36 --unlabelled
((status == 0)) && ! says 'top-1' && without_label packed_out | cmp - <(rows paths)
verdict $? 'a list of paths without labels gives the same classes, and no top-1'
run predict --out photos_out photos --resize 32x36 --unlabelled
((status == 0)) && (($(rows photos_out | wc -l) == 40)) &&
  cmp <(without_label packed_out | sed -n 's/^daisy.//p') \
    <(rows photos_out | sed -n 's/^deep.er.daisy.//p')
verdict $? 'images without labels may lie at any depth of a folder'
run predict --out tar_out flowers.tar --resize 32x36 --unlabelled
((status == 0)) && without_label packed_out | cmp - <(rows tar_out)
verdict $? 'the folders of a tar need not be labels'

"$LOCKSTEP" pack flowers --out jpegs --jpeg --held-out 0 >/dev/null 2>&1
predict jpegs/train --out jpegs_out >jpegs.log 2>&1
run predict flowers --out jpeg_files --jpeg
((status == 0)) && rows jpegs_out | cmp - <(rows jpeg_files)
verdict $? 'with --jpeg the bits are those of images that were packed as JPEGs'

# ---- labels --------------------------------------------------------------------------------------
# Folders 0 to 11, which sort as 0 1 10 11 2 ..., a part of them, and the same as a tar and a list.
mkdir numbers some
for n in {0..11}; do
  mkdir "numbers/$n"
  for i in 0 1; do cp "flowers/daisy/$((n % 10 + i + 1)).png" "numbers/$n/$i.png"; done
done
cp -r numbers/[012] some
tar -cf some.tar -C some .
(cd some && find * -name '*.png' | sed 's|^\([^/]*\)/.*|& \1|') >some.txt
"$LOCKSTEP" pack numbers --out numbered --resize 32x36 --held-out 0 >numbers.log 2>&1
"$LOCKSTEP" train --data.train numbered/train --batch 12 --epochs 1 --threads 1 --out counted \
  >>numbers.log 2>&1 || cat numbers.log
ok=0
for data in some some.tar 'some.txt --root some'; do
  rm -rf some_out
  run "$LOCKSTEP" predict counted $data --resize 32x36 --csv --threads 1 --out some_out
  ((status == 0)) && (($(rows some_out | wc -l) == 6)) &&
    [[ ! $(rows some_out | awk -F '[/,]' '$1 != $3') ]] || ok=1
done
verdict $ok 'folders, tars and lists that are named by numbers get the class of that name'
sed 's/ daisy$/ 0/; s/ rose$/ 1/; s/ violet$/ 2/' list.txt >by_number.txt
run predict --out by_number by_number.txt --root flowers --resize 32x36
((status == 0)) && says "its labels are numbers of the network's classes: 0 is daisy" &&
  rows packed_out | cmp - <(rows by_number)
verdict $? 'where classes are words, the numbers of a list count them, and one is named'

refused() {  # refused NAME PATTERN ARGUMENT...
  run predict --out refused "${@:3}"
  ((status == 2)) && says "$2" && [[ ! -e refused ]]
  verdict $? "$1"
}
mkdir zero && cp -r flowers/daisy zero/0
refused 'a folder that has the number of a class, and not its name, is an error' \
  'zero: the label "0" is no class of the network' zero --resize 32x36
sed 's/ 2$/ 3/' by_number.txt >beyond.txt
refused 'a number that no class has is an error' 'beyond.txt: the label "3" is no class' \
  beyond.txt --root flowers --resize 32x36
refused 'a size that is not the network'"'"'s is an error that names both and leaves nothing' \
  'resize makes images of 32 x 32, but the network takes 32 x 36 .*: give --resize 32x36' \
  flowers --resize 32
run "$LOCKSTEP" serve m=run --resize 32 --port 0 --threads 1
((status == 2)) && says 'error: run: --resize makes images of 32 x 32, but the network takes 32 x 36'
verdict $? 'a server that would make images of another size does not start'
run predict --out flowers/rose/out flowers --resize 32x36
((status == 2)) && says 'flowers/rose/out: is inside flowers; choose' && [[ ! -e flowers/rose/out ]]
verdict $? 'a folder inside of the images is an error'
run predict --out packed packed/train
((status == 2)) && says 'out packed: holds a data set; choose' && [[ $(ls packed) == train ]]
verdict $? 'a folder that holds a data set is an error'
run predict --out single flowers/rose/2.png --resize 32x36
((status == 0)) && cmp <(without_label packed_out | sed -n 's/^rose.2.png,//p') \
  <(rows single | sed 's/^2.png,//')
verdict $? 'one image gets what it gets among others'
refused 'images of another size are an error that asks how the training was packed' \
  'flowers/daisy/.*png: is 40 x 48, but the network takes 32 x 36 .*--resize or --jpeg' flowers
refused 'how images are packed has no meaning for shards' 'would have no effect' packed/train \
  --resize 32
mkdir -p garden && cp -r flowers/rose garden && cp -r flowers/rose garden/tulip
refused 'a folder that is no class of the network is an error that names it' \
  'garden: the label "tulip" is no class of the network.*--unlabelled' garden --resize 32x36
head -c 200 flowers/rose/1.png >garden/rose/1.png && rm -r garden/tulip
run predict --out strict garden --resize 32x36
((status == 2)) && says 'garden/rose/1.png'
verdict $? 'a broken image is an error that names it'
run predict garden --out lenient --resize 32x36 --skip-bad
((status == 0)) && says 'warning: 1 row could not be read' &&
  grep -q '^0,rose/1.png,rose,,,' lenient/predictions.csv
verdict $? 'with --skip-bad a broken image gets no class'
long=$(printf 'x%.0s' {1..200})
mkdir -p "deep/$long/$long/$long/$long/$long/$long" && cp flowers/rose/*.png "$_"
run predict --out deep_out deep --resize 32x36 --unlabelled
((status == 0)) && (($(rows deep_out | wc -l) == 20)) &&
  grep -q ",$long/$long/.*/2.png," deep_out/predictions.csv
verdict $? 'names of more than 1024 bytes are kept whole'
run "$LOCKSTEP" predict counted flowers --resize 32x36 --csv --threads 1 --batch 16 --out folder
((status == 2)) && says 'the label "daisy" is no class' && ls folder/index-*/00000.index
verdict $? 'a worker that fails leaves the index to those that predict by it'
truncate -s 100 folder/index-*/00000.index && rm folder/predictions.*
run predict flowers --resize 32x36 --out folder
((status == 0)) && rows packed_out | cmp - <(rows folder)
verdict $? 'an index that was cut is made again'
sed -i '1s/violet$/rose/' list.txt
run predict list.txt --root flowers --resize 32x36 --out list
((status == 2)) && says 'list/predict.json: .* with data = '
verdict $? 'a list that was changed since is other data'
echo 'notes.txt' >odd.txt
refused 'a line that is no path of an image is an error that names it' \
  'odd.txt, line 1: expected the path of an image' odd.txt --unlabelled
