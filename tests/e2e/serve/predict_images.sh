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

refused() {  # refused NAME PATTERN ARGUMENT...
  run predict --out refused "${@:3}"
  ((status == 2)) && says "$2"
  verdict $? "$1"
}
refused 'images of another size are an error that asks how the training was packed' \
  'flowers/daisy/.*png: is 40 x 48, but the network takes 32 x 36 .*--resize or --jpeg' flowers
refused 'how images are packed has no meaning for shards' 'would have no effect' packed/train \
  --resize 32
mkdir -p garden && cp -r flowers/rose garden && cp -r flowers/rose garden/tulip
refused 'a folder that is no class of the network is an error that names it' \
  'garden: the label "tulip" is no class of the network.*--unlabelled' garden --resize 32x36
head -c 200 flowers/rose/1.png >garden/rose/1.png && rm -r garden/tulip
refused 'a broken image is an error that names it' 'garden/rose/1.png' garden --resize 32x36
run predict garden --out lenient --resize 32x36 --skip-bad
((status == 0)) && says 'warning: 1 row could not be read' &&
  grep -q '^0,rose/1.png,rose,,,' lenient/predictions.csv
verdict $? 'with --skip-bad a broken image gets no class'
echo 'notes.txt' >odd.txt
refused 'a line that is no path of an image is an error that names it' \
  'odd.txt, line 1: expected the path of an image' odd.txt --unlabelled
