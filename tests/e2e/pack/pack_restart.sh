#!/bin/bash
# A `lockstep pack` that is killed can be resumed, and ends with the bytes of an uninterrupted one;
# resuming with another command or another source is an error.
# seconds: 200
# computes
source "$(dirname "$0")/../../support/e2e.bash"

digest() { (cd "$1" && find . -type f | sort | xargs sha256sum | sha256sum); }
notes() { compgen -G "$1/.partial/done/*.txt" | wc -l; }

shapes=(pack --from shapes --train-rows 6000 --val-rows 600 --rows-per-shard 300)
"$LOCKSTEP" "${shapes[@]}" --out whole >/dev/null

# until_notes N: waits until N shards of `out` are finished; false when the pack ends before that.
until_notes() {
  local files=()
  while
    files=(out/.partial/done/*.txt)
    [[ ! -e ${files[0]} ]] || ((${#files[@]} < $1))
  do
    kill -0 $job 2>/dev/null || return 1
    nap 0.01
  done
}

# ---- one rank, killed and then stopped -----------------------------------------------------------
for n in 2 9; do
  "$LOCKSTEP" "${shapes[@]}" --out out >log 2>&1 &
  job=$!
  until_notes $n && kill $([[ $n == 2 ]] && echo -KILL || echo -TERM) $job
  killed=$?
  wait $job 2>/dev/null
  status=$? said=$(cat log)
  ((killed == 0)) && [[ ! -e out/train ]] &&
    if [[ $n == 2 ]]; then ((status == 137)); else
      ((status == 3)) &&
        says '^stopped on a signal: [0-9]+ of 22 shards finished, .* run the same command again'
    fi
  verdict $? "a pack can be ended when $n shards are finished"
done
finished=$(notes out)
stat -c '%n %i %Y' out/.partial/train/*.h5 >before
run "$LOCKSTEP" "${shapes[@]}" --out out
((status == 0)) && says "resuming an interrupted pack: $finished of 22 shards finished" &&
  [[ $(digest out) == $(digest whole) && ! -e out/.partial ]]
verdict $? 'the same command resumes the pack, and ends with the bytes of an uninterrupted one'
stat -c '%n %i' out/train/*.h5 | sed 's,out/train,out/.partial/train,' >after
said=$(join <(cut -d' ' -f1,2 before | sort) <(sort after) | awk '$2 != $3'; wc -l before after)
! grep -q partial <<<"$said"
verdict $? 'finished shards are not written again'
rm -rf out

# ---- several ranks; another number of ranks resumes ----------------------------------------------
ranks 3 "$LOCKSTEP" "${shapes[@]}" --out out >log 2>&1 &
job=$!
until_notes 3
# The job is a copy of this shell; its child is mpirun, whose children are the ranks.
kill -9 $(pgrep -P "$(pgrep -P $job)") 2>/dev/null || kill -9 $(pgrep -P $job)
wait $job 2>/dev/null
said=$(cat log)
[[ ! -e out/train ]] && (($(notes out) >= 3))
verdict $? 'three ranks can be killed'
run ranks 2 "$LOCKSTEP" "${shapes[@]}" --out out
((status == 0)) && says 'resuming an interrupted pack' && [[ $(digest out) == $(digest whole) ]]
verdict $? 'two ranks resume what three began, with the same bytes'
rm -rf out

# ---- another command, another source -------------------------------------------------------------
interrupt() {
  "$LOCKSTEP" "$@" --out out >log 2>&1 &
  job=$!
  until_notes 2 && kill -9 $job
  wait $job 2>/dev/null
}
interrupt "${shapes[@]}"
run "$LOCKSTEP" "${shapes[@]}" --resize 16 --out out
((status == 2)) && says 'had "resize = 0x0" where this one has "resize = 16x16"' &&
  (($(notes out) >= 2))
verdict $? 'resuming with another command is an error that says what differs'
run "$LOCKSTEP" "${shapes[@]}" --resize 16 --out out --force
((status == 0)) && ! says 'resuming' && "$LOCKSTEP" info out/train | grep -q '16 x 16'
verdict $? '--force starts again with another command'
rm -rf out

base64 -d >image.jpg <<END
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABALDA4MChAODQ4SERATGCgaGBYWGDEjJR0oOjM9PDkzODdASFxOQERXRTc4UG1R
V19iZ2hnPk1xeXBkeFxlZ2P/2wBDARESEhgVGC8aGi9jQjhCY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2Nj
Y2NjY2NjY2NjY2NjY2P/wAARCAAIAAgDASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAX/xAAUEAEAAAAAAAAAAAAA
AAAAAAAA/8QAFQEBAQAAAAAAAAAAAAAAAAAAAAb/xAAUEQEAAAAAAAAAAAAAAAAAAAAA/9oADAMBAAIRAxEAPwCWAKZ//9k=
END
mkdir -p images/cat images/dog
for i in $(seq 200); do cp image.jpg images/cat/$i.jpg && cp image.jpg images/dog/$i.jpg; done
folders=(pack images --held-out 0 --rows-per-shard 40)
"$LOCKSTEP" "${folders[@]}" --out whole2 >/dev/null

# A broken image ends a pack; the finished shards stay. The pack can be resumed when the image is
# repaired, or without the image.
echo text >images/dog/7.jpg
run "$LOCKSTEP" "${folders[@]}" --out out
((status == 2)) && says 'images/dog/7.jpg: not an image' && [[ ! -e out/train ]]
verdict $? 'a broken image ends a pack and is named'
if (($(notes out) > 0)); then
  says 'shards finished, kept in out/.partial: run the same command again'
  verdict $? 'shards that were finished before the broken image stay'
fi
cp -r out out2 2>/dev/null
run "$LOCKSTEP" "${folders[@]}" --skip-bad --out out2
((status == 0)) && says 'packed 399 images' && [[ $(cat out2/skipped.txt) == images/dog/7.jpg:* ]]
verdict $? '--skip-bad resumes without the broken image'
cp image.jpg images/dog/7.jpg
run "$LOCKSTEP" "${folders[@]}" --out out
((status == 0)) && [[ $(digest out) == $(digest whole2) ]]
verdict $? 'when the image is repaired, the same command resumes, with the same bytes'
rm -rf out

perl -e 'link "image.jpg", "images/cat/more$_.jpg" or die for 1 .. 1600'
# enough shards that it does not end before it is killed
many=(pack images --held-out 0 --rows-per-shard 2)
interrupt "${many[@]}"
cp image.jpg images/cat/new.jpg
run "$LOCKSTEP" "${many[@]}" --out out
((status == 2)) && says 'had "images = 2000 images, hash .*" where this one has "images = 2001'
verdict $? 'resuming with another source is an error'
rm -rf out
# Where the file system has neither locks nor hard links, if there is a compiler for that.
export ODD='locks links'
"${CXX:-g++}" -x c -O1 -shared -fPIC -o odd.so "$support/preloads/odd_file_system.c" &&
  export LD_PRELOAD=$PWD/odd.so
"$LOCKSTEP" "${many[@]}" --out out >log 2>&1 &
job=$!
until_notes 3
kill -STOP $job
run "$LOCKSTEP" pack images --out out --force
((status == 2)) && says 'out/.partial: another pack is writing there'
verdict $? 'two packs never write to one folder, not even with --force or without locks'
kill -9 $job 2>/dev/null
wait $job 2>/dev/null
run "$LOCKSTEP" "${many[@]}" --out out
((status == 0)) && says 'resuming an interrupted pack: ' && [[ ! -e out/.partial ]]
verdict $? 'a pack whose process was killed is taken over at once'
