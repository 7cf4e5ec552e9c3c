#!/bin/bash
# A scaling study: planned, stopped half done, continued, fitted, reported; what it refuses; and the
# commands of jobs/SCALING.md.
# computes
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"
pack_small
scaling() { run "$LOCKSTEP" scaling "$@"; }

small=(--model resnet20 --threads 1 --data.size 8 --steps 6 --warm-up 2 --repetitions 1)
scaling plan --out study --ranks 1,2 --batch 32 --batch-per-rank 8 "${small[@]}" \
  --no-synthetic --data.train small/train
((status == 0)) && says '^study: 5 runs of 6 steps, 5 configurations' &&
  says '^its first run shows how long it takes' &&
  run "$LOCKSTEP" lint study/study.sbatch &&
  says ': 0 errors, 0 warnings$' && ! says 'stop-after'
verdict $? 'plan writes a study whose batch script has no fault'
scaling plan --out array --ranks 1,2,4 --ranks-per-node 2 --batch 32 --array
((status == 0)) && run "$LOCKSTEP" lint array/study.sbatch &&
  says ': 0 errors, 0 warnings$' &&
  grep -q '^#   sbatch --nodes=1 --array=0-1%1 array/study.sbatch$' array/study.sbatch &&
  grep -q '^#SBATCH --array=0-2%1$' array/study.sbatch
verdict $? 'plan --array writes a job array, and how to submit it in parts'

mkdir -p study/points/real-00002-b32-1.part &&
  echo rubbish >study/points/real-00002-b32-1.part/config.toml
scaling run study --only-ranks 1
((status == 0)) && says '^3 runs done, 0 done before, 0 failed, 2 still missing' &&
  [[ ! -e study/report.html ]] &&
  scaling run study && ((status == 0)) &&
  says '4/5 real-00002.*done.*; about [0-9.]+ s left$' &&
  says '^2 runs done, 3 done before, 0 failed, 0 still missing' &&
  says '^c +[0-9.e-]+ ms' && says 'scatter around it' && [[ -s study/report.tex &&
  -s study/rate.svg && -s study/report.md ]] &&
  ! compgen -G 'study/points/*.part' && ! compgen -G 'study/points/*/checkpoints/*.h5'
verdict $? 'run continues a study that was stopped half done, and reports when nothing is missing'
run python3 - <<'PY'
import html.parser, xml.dom.minidom, re
page = open("study/report.html").read()
pictures = re.findall(r"<svg.*?</svg>", page, re.S)
assert len(pictures) == 3, len(pictures)
for picture in pictures:
    xml.dom.minidom.parseString(picture)
    assert "nan" not in picture and "inf" not in picture, picture
for words in ("efficiency", "relative to", "a rank", "Recommended|no size", "ms a step"):
    assert re.search(words, page), words
assert "http" not in page.replace("http://www.w3.org/2000/svg", ""), "needs the network"
PY
verdict $status 'the report is one page with three pictures, and needs nothing else'

run ranks 2 "$LOCKSTEP" bench comm --verb all-reduce --from-kb 64 --to-mb 1 --longest-s 0.2 \
  --json comm.json &&
  scaling fit study --comm comm.json && ((status == 0)) &&
  says 'Exposed communication is computed from what bench comm' &&
  says '^wire .* bench comm ' && cp comm.json study/comm-2.json && scaling fit study &&
  says '^wire .* bench comm ' &&
  rm study/comm-2.json && scaling fit study && ! says 'bench comm'
verdict $? 'exposed communication is computed from what bench comm measured'

scaling plan --out tiny --ranks 1,2 --batch-per-rank 8 "${small[@]}"
((status == 0)) && says 'warning: 2 configurations are too few' && scaling run tiny &&
  ((status == 2)) && says '^2 runs done, .* 0 still missing' && says 'too few: 2 configuration'
run_says=$?
scaling fit tiny
((run_says == 0 && status == 2)) && says '^2 +1 +16 ' && says 'too few: 2 configuration' &&
  scaling report tiny --out few && ((status == 2))
verdict $? 'few measurements are a table and the words "too few"; run, fit and report end with 2'

# ---- two processes share a study where the file system has no locks ------------------------------
scaling plan --out shared --ranks 1 --batch 32 --model resnet20 --threads 1 --data.size 8 \
  --repetitions 2 --steps 30 --warm-up 2 --backend clock --clock.step-ms 100
((status == 0)) || verdict $status 'a study of a clock can be planned'
"${CXX:-g++}" -x c -O1 -shared -fPIC -o odd.so "$support/preloads/odd_file_system.c"
odd() { [[ ! -e odd.so ]] || export ODD=locks LD_PRELOAD=$PWD/odd.so; exec "$@"; }
of_runner() { pgrep -f "shared/points/.*-$1\.part" >/dev/null; }
odd "$LOCKSTEP" scaling run shared >first.log 2>&1 &
first=$!
until_it 600 of_runner $first
odd "$LOCKSTEP" scaling run shared >second.log 2>&1 &
second=$!
until_it 600 of_runner $second
kill -9 $first
wait $first 2>/dev/null
happens 100 eval '! of_runner $first'
wait $second
said=$(cat second.log)
says '^2 runs done, 0 done before, 0 failed, 0 still missing' && says '1/2 .*: done' &&
  [[ $(cd shared && echo points/* claims) == *-1.json\ *-2.json\ claims && ! -e shared/claims ]]
verdict $? 'a training ends with the process that started it, and another process does its run again'

cp -r study/points/real-00001-b32-1 other &&
  sed -i 's/"model":"resnet20"/"model":"resnet32"/' other/metrics.jsonl
cp -r study/points/real-00002-b32-1 halved && python3 -c '
import json
ranks = json.load(open("halved/binding.json"))
json.dump(ranks[:1], open("halved/binding.json", "w"))'
printf 'ranks,batch,images_per_s\n1,32,500\n2,thirty,900\n' >words.csv
printf 'ranks,images_per_s\n1,32\n' >columns.csv
printf 'ranks,batch,step_ms\n1,32,9\n2,32,7\n1,64,15\n' >more.csv
refused() { scaling "${@:2}" && ((status == 2)) && says "error: .*$1" &&
  (($(grep -c error <<<"$said") == 1)); }
refused "has the network 'resnet20' and other has 'resnet32': one fit needs one network" fit study \
  other &&
  refused 'halved/binding.json: 1 of 2 ranks are missing' fit study halved &&
  refused "words.csv:3: column batch: 'thirty' is not a number" fit words.csv &&
  refused 'columns.csv:1: has no column batch' fit columns.csv &&
  refused 'absent: there is no study' run absent &&
  refused 'study: exists already' plan --out study --ranks 1 --batch 8 &&
  refused '3 ranks do not fill nodes of 2' plan --out x --ranks 3 --ranks-per-node 2 --batch 8 &&
  refused 'batch 2 has fewer rows than the 4 ranks' plan --out x --ranks 1,4 --batch 2 &&
  refused '64 ranks are more than the 32 rows' predict study --batch 32 -N 64 &&
  refused "words.csv: it is not a JSON object; lockstep bench comm" fit study --comm words.csv &&
  refused 'says how many gradients are summed' fit more.csv --fewest 3 --comm comm.json &&
  refused "regular expression" fit study --match '(' &&
  refused 'no measurements match none' fit study --match none
verdict $? 'bad input is one line that says what is wrong'

# ---- the commands of jobs/SCALING.md ------------------------------------------------------------
mkdir -p build data runs && ln -s "$LOCKSTEP" build/lockstep &&
  ln -s "$repo/data/published" data/published
for one in study/points/*; do ln -s "$PWD/$one" "runs/scaling-4711-$(basename "$one")"; done
printf 'ranks,batch,step_ms,name\n4,32,9,guess\n' >more.csv
for one in a b; do
  mkdir -p runs/$one && echo "batch = $([[ $one == a ]] && echo 256 || echo 1024)" \
    >runs/$one/config.toml
  for epoch in 1 2 3; do
    echo "{\"epoch\":$epoch,\"kind\":\"epoch\",\"last_step\":$epoch,\"train_loss\":1,"\
"\"train_top1\":0.5,\"val_loss\":1,\"val_top1\":0.$((74 + epoch))}"
  done >runs/$one/metrics.jsonl
done
mapfile -t commands < <(python3 "$repo/tests/support/pages.py" commands "$repo/jobs/SCALING.md")
((${#commands[@]} >= 10))
verdict $? 'jobs/SCALING.md has commands'
cp -r study r50 && sed -i 's/resnet20/resnet50/' r50/points/*/{config.toml,metrics.jsonl} &&
  sed -i 's/"image":8,/"image":224,/' r50/points/*/metrics.jsonl
refused 'the epochs of ResNet-50, and these are measurements of resnet20' \
  report study --out x --imagenet &&
  refused '--trainings would have no effect' report study --out x --trainings 3
verdict $? 'no costs of another training are reported'
for command in "${commands[@]}"; do
  # tests/cluster/jobs/jobs_endings.sh submits scripts
  [[ $command == sbatch* || $command == srun* ]] && continue
  here=$command
  [[ $command == *' plan '* ]] || here=${command//studies\/r50/r50}
  run bash -c "$here"
  ((status == 0))
  verdict $? "jobs/SCALING.md's command works: $command"
done
