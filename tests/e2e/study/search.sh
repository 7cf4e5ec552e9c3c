#!/bin/bash
# A search among hyper-parameters: planned, trained by one worker and by many, stopped, killed,
# moved, shown, repeated, exported; and what it refuses.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
search() { run "$LOCKSTEP" search "$@"; }
# Without the lines about this worker.
table() { "$LOCKSTEP" search show "$1"; }
keys=(--data.train small/train --threads 1 --batch 48 --model resnet20 --model-options.width 16)
train=("${keys[@]}" --data.val small/val --epochs 9)
cat >space.toml <<'TOML'
[optim.lr]
low = 0.003
high = 3
log = true
[optim.rule]
choices = ["sgd", "lars"]
[optim.trust]
low = 0.0005
high = 0.01
log = true
when = "optim.rule = lars"
TOML

worst=0
# refused WORDS PATTERN: plan says why, and makes nothing.
refused() {
  printf "$1" >bad.toml
  search plan bad.toml --out bad --trials 4 "${train[@]}"
  ((status == 2)) && says "error: $2" && [[ ! -e bad ]] || { echo "$said"; worst=1; }
}
refused '[optim.lrr]\nlow = 1\nhigh = 2\n' "bad.toml, line 2: unknown key 'optim.lrr'; did you mean"
refused '[optim.lr]\nlow = 2\nhigh = 1\n' 'bad.toml, line 2: optim.lr: from low = 2 to high = 1'
refused '[optim.lr]\nlow = 0\nhigh = 1\nlog = true\n' 'bad.toml, line 2: optim.lr: log = true'
refused '[optim.lr]\nlow = 0.1\nhigh = 1\nwhen = "optim.rule = lars"\n' \
  "bad.toml, line 4: optim.lr.when: 'optim.rule' is no key above it"
refused '[optim.trust]\nlow = 0.001\nhigh = 0.01\n' 'point 1 of the space .optim.trust = .*lars'
verdict $worst 'a space that makes no sense is an error that names file, line and key'
search plan space.toml --out small --trials 4 "${train[@]}"
((status == 2)) && says 'error: small: exists already' && [[ ! -e small/search.json ]] &&
  search run small && ((status == 2)) && says 'error: small: there is no search' &&
  search plan space.toml --out s --trials 4 "${keys[@]}" &&
  ((status == 2)) && says 'error: a search compares validations: give --data.val'
verdict $? 'a folder of something else stays as it is'

search plan space.toml --out one --trials 9 --mode sync "${train[@]}"
((status == 0)) && says '^one: 9 trials over 3 keys, rungs at epochs 1, 3, 9$' &&
  says '^sbatch --array=1-4 .* jobs/search.sbatch one --slots 1$' &&
  search run one && ((status == 0)) && says '^13 trainings done by this worker, 0 diverged' &&
  says '; nothing is left$' && says '^first: trial [0-9]+ with top-1 0\.[0-9]+ after 9 epochs: ' &&
  [[ $(ls one/results | wc -l) == 13 && ! -e one/claims ]]
verdict $? 'plan writes trials, and run trains them, the best ones to the end'
best=$(sed -n 's/^first: trial \([0-9]*\) .*/\1/p' <<<"$said")
options=$(sed -n 's/^first: .* epochs: //p' <<<"$said")
[[ $options == 'the base itself' ]] && options=
run "$LOCKSTEP" train "${train[@]}" --checkpoint.keep 1 $options --out apart
((status == 0)) && same_run apart "one/runs/$best"
verdict $? 'a trial that was promoted twice is an uninterrupted training, bit for bit'
search run one
((status == 0)) && says '^0 trainings done by this worker' && says 'nothing is left'
verdict $? 'a search that is complete is not trained again'

worst=0
for way in 'many 3 1' 'slots 1 3'; do
  read -r name workers slots <<<"$way"
  search plan space.toml --out "$name" --trials 9 --mode sync "${train[@]}"
  pids=()
  for ((k = 0; k < workers; ++k)); do
    "$LOCKSTEP" search run "$name" --slots "$slots" >"$name.$k.log" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || { worst=1; cat "$name".*.log; }; done
  [[ $(table "$name") == "$(table one)" ]] || { worst=1; table "$name"; }
done
said=$(table one)
verdict $worst 'in step the table is the same for one worker, for three, and for three slots'

training_of() { pgrep -f "lockstep train .*--out $1/runs" >/dev/null; }
gone() { ! training_of "$1"; }
search plan space.toml --out killed --trials 9 --mode sync "${train[@]}"
"$LOCKSTEP" search run killed >killed.log 2>&1 &
worker=$!
until_it 600 training_of killed
kill -KILL "$worker"
wait "$worker" 2>/dev/null
try_for 50 gone killed
verdict $? 'the training of a worker that is killed is gone within 5 s'
search run killed
((status == 0)) && [[ $(table killed) == "$(table one)" ]]
verdict $? 'what a killed worker had begun is continued, and the table is the same'

search plan space.toml --out stopped --trials 9 --mode sync "${train[@]}"
"$LOCKSTEP" search run stopped >stopped.log 2>&1 &
worker=$!
until_it 600 training_of stopped
kill -USR1 "$worker"
wait "$worker"
status=$? said=$(<stopped.log)
((status == 3)) && says 'stopped by a signal' && gone stopped
verdict $? 'a worker that is told to stop ends with status 3, its training with a checkpoint'
mkdir elsewhere && mv stopped elsewhere/moved && search run elsewhere/moved
((status == 0)) && [[ $(table elsewhere/moved) == "$(table one)" ]]
verdict $? 'a search that was moved is continued, and the table is the same'

printf '[optim.lr]\nlow = 0.003\nhigh = 3\nlog = true\n' >lr.toml
search plan lr.toml --out wild --trials 3 "${keys[@]}" --data.val small/val --epochs 3
echo 'optim.lr = 1e6' >wild/trials/7.toml
search run wild
((status == 0)) && says '^trial 7, epoch 1: diverged: ' && says '^4 +7 +1 +diverged ' &&
  [[ $(ls -d wild/attempts/* 2>/dev/null) == '' ]]
verdict $? 'a trial that was put there is one, and one that diverges is last'
search plan lr.toml --out odd --trials 2 "${train[@]}"
echo 'optim.lrr = 1' >odd/trials/9.toml
search run odd
((status == 2)) && says "error: odd/trials/9.toml, line 1: unknown key 'optim.lrr'" &&
  rm odd/trials/9.toml && echo 'epochs = 1' >odd/trials/9.toml && search run odd &&
  ((status == 2)) && says 'error: odd/trials/9.toml: epochs is the same in all trials' &&
  mv odd/trials/9.toml odd/trials/x.toml && search run odd &&
  ((status == 2)) && says 'error: odd/trials/x.toml: a trial.s file is NUMBER.toml'
verdict $? 'a file that is no trial is an error that names file and key'

search plan lr.toml --out failing --trials 2 "${train[@]}"
search run failing --trainer 'sh -c "echo of no use; echo error: no such thing; exit 5" '
((status == 1)) && says 'error: 6 trainings failed one after the other; the last, 1.0, ' &&
  [[ $(ls failing/attempts | wc -l) == 4 ]] && search show failing &&
  says '^trial 0, epoch 1: failed: ended with status 5: error: no such thing$'
verdict $? "a trial that fails three times is a result with its log's last word"

# A training that only writes its curve: of a search's choices nothing else is needed.
trainer=$support/recorded_training.bash
search plan lr.toml --out curves --trials 64 "${train[@]}"
search run curves --trainer "$trainer" --slots 4
((status == 0)) && says '^first: trial [0-9]+ with top-1 0.8.* after 9 epochs'
verdict $? 'another program may be the trainer'
search plan lr.toml --out held --trials 2 "${train[@]}"
recorded() { pgrep -f "recorded_training.bash train .*--out held/runs" >/dev/null; }
recorded_gone() { ! recorded; }
EPOCH_S=600 "$LOCKSTEP" search run held --trainer "bash $trainer" >held.log 2>&1 &
worker=$!
until_it 600 recorded
kill -KILL "$worker"
wait "$worker" 2>/dev/null
try_for 50 recorded_gone
verdict $? 'so is what another trainer started'
search plan lr.toml --out idle --trials 1 "${train[@]}"
EPOCH_S=600 "$LOCKSTEP" search run idle --trainer "$trainer" --stale-s 2 >idle.log 2>&1 &
worker=$!
begun() { compgen -G 'idle/runs/*' >/dev/null; }
until_it 600 begun
search run idle --trainer "$trainer" --stale-s 2
((status == 0)) && says '^0 trainings done by' && says '; what is left, others train$' &&
  kill -0 "$worker"
left=$?
kill -KILL "$worker"
wait "$worker" 2>/dev/null
search run idle --trainer "$trainer"
((left == 0 && status == 0)) && says '^3 trainings done' && says 'nothing is left'
verdict $? 'a worker does not wait for one who lives, and what that one leaves is continued'
search best curves --repeats 5 --of 1 --trainer "$trainer"
((status == 0)) && says '^10 trainings done by this worker' &&
  says '^the best is trial [0-9]+: --optim.lr ' && search best curves --repeats 5 &&
  says '^0 trainings done' && says '^the best is trial'
verdict $? 'best repeats the first trials with other seeds, and names one that is separated'
search show curves --json-file curves.json --html curves.html
((status == 0)) && run python3 - <<'PY'
import html.parser, json, xml.dom.minidom, re
data = json.load(open("curves.json"))
assert len(data["trials"]) == 64 and data["epochs"] == [1, 3, 9], data
assert data["importance"][0]["key"] == "optim.lr", data["importance"]
page = open("curves.html").read()
pictures = re.findall(r"<svg.*?</svg>", page, re.S)
assert len(pictures) == 3, len(pictures)
for picture in pictures:
    xml.dom.minidom.parseString(picture)
    assert not re.search('[ "ML]-?(nan|inf)', picture), picture
assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
PY
verdict $status 'show writes a page that needs nothing else, and its figures as JSON'
search export curves --optuna curves.log
((status == 0)) && run python3 - <<'PY'
import json
lines = [json.loads(line) for line in open("curves.log")]
assert lines[0]["op_code"] == 0 and lines[0]["directions"] == [2], lines[0]
trials = lines[1:]
assert len(trials) == 64 and all(one["op_code"] == 4 for one in trials)
done = [one for one in trials if one["state"] == 1]
shown = json.load(open("curves.json"))["trials"][0]
best = max(done, key=lambda one: one["value"])
assert best["user_attrs"]["trial"] == shown["trial"], (best, shown)
assert best["value"] == shown["legs"][-1]["score"]
PY
verdict $status "the best trial of the journal for Optuna is the search's"

net=(--data.val small/val --threads 1 --model resnet20 --epochs 9)
# budget LIMIT FOLDER [ROWS]: plans a search among widths.
budget() {
  printf '[model-options.width]\nchoices = [16, 32, 64]\n[budget]\n%s\n' "$1" >width.toml
  search plan width.toml --out "$2" --trials 8 "${net[@]}" --data.train "${3:-small/train}"
}
budget 'flops = 7e6' narrow
((status == 0)) && says '^the budget refused [1-9][0-9]* points, in whose place others were drawn' &&
  [[ $(grep -h width narrow/trials/* | sort -u) == 'width = 16' ]] &&
  budget 'flops = 1e9' wide && says '^the budget refused 0 points' &&
  [[ $(grep -h width wide/trials/* | sort -u | wc -l) == 3 ]]
verdict $? 'with a budget, other points take the place of those that cost more'
budget 'flops = 1' none
# By hand: resnet20 of 8 x 8 pixels has 5,070,080 operations in convolutions and the last layer.
((status == 2)) && says 'error: the base has flops 5.1[0-9]*e.06, and budget.flops is 1' &&
  budget 'latency-ms = 1e-9' none && ((status == 2)) &&
  says 'error: the base has latency-ms 0.* and budget.latency-ms is 1e-09' && [[ ! -e none ]] &&
  budget 'latency-ms = 1e9' quick && ((status == 0)) && says '^the budget refused 0 points' &&
  budget 'flops = 1e9' none nowhere && ((status == 2)) && says 'error: nowhere: '
verdict $? 'a budget counts the network for the data set, and measures it on this machine'

search plan lr.toml --out short --trials 4 "${train[@]}" --node-hours 0.000001
search run short
((status == 0)) && says '^1 training done by this worker' && says '; the node hours are used$'
verdict $? 'once the node hours are used, no training begins'
run env SLURM_JOB_ID=1 SLURM_STEP_ID=0 "$LOCKSTEP" search run short
((status == 2)) && says 'error: this worker is step 0 of its job'
verdict $? 'a worker that srun started is an error that says how to start it'
search run short --until 25:00
((status == 2)) && says "error: --until: '25:00' is no time of a day" &&
  search plan lr.toml --out many --sampler sobolt --trials 2 "${train[@]}" && ((status == 2))
verdict $? 'an option that makes no sense is an error that names it'
