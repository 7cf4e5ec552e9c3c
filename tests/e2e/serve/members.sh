#!/bin/bash
# Models of several networks in eval, predict and serve: their rows have their members' bits, and
# what each member did is said.
# ci
# computes
# seconds: 900
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/h5py.bash"
h5py_or_skip 'models of several networks answer with the bits of their members'
command -v curl >/dev/null || { echo 'SKIP models of several networks answer: no curl'; exit 0; }
"$LOCKSTEP" pack --from shapes --out set --train-rows 600 --val-rows 300 --rows-per-shard 300 \
  >pack.log || cat pack.log
learn() {  # learn NAME MODEL EPOCHS OPTION...: NAME.h5
  "$LOCKSTEP" train --data.train set/train --data.val set/val --model "$2" --epochs "$3" \
    --batch 25 --optim.lr 0.02 --threads 2 --out "run-$1" "${@:4}" >"$1.log" 2>&1 || cat "$1.log"
  cp "run-$1/checkpoints/best.h5" "$1.h5"
}
learn small resnet20 3
learn large resnet32 5
cp small.h5 copy.h5

guess() {  # guess OUT WORD...
  run "$LOCKSTEP" predict "${@:2}" set/val --batch "${rows:-16}" --threads 1 --logits --out "$1"
}
same_bits() {  # same_bits A B: all but the job, which names the networks
  "$python" -c 'import h5py, sys
a, b = (h5py.File(name + "/predictions.h5", "r") for name in sys.argv[1:])
assert sorted(a) == sorted(b)
for name in a:
  assert a[name].dtype == b[name].dtype and a[name][()].tobytes() == b[name][()].tobytes(), name
' "$@"
}
top1() { grep -o 'top-1 [0-9.]* %' <<<"$said" | tail -n 1; }

# ---- ensembles, exported files -------------------------------------------------------------------
guess small small.h5
guess twice small.h5 + copy.h5
((status == 0)) && same_bits small twice && says '^  small.h5: 300 rows in .* images/s$' &&
  says '^  copy.h5: 300 rows in '
verdict $? 'an ensemble of a network with its copy predicts its bits, and says what each did'
"$LOCKSTEP" export small.h5 --to small.npz --to small.safetensors --to small.onnx >export.log 2>&1
guess npz small.npz && same_bits small npz && guess tensors small.safetensors &&
  same_bits small tensors && guess onnx small.onnx && same_bits small onnx &&
  guess mixed small.npz + small.onnx + small.safetensors && same_bits small mixed &&
  ((status == 0))
verdict $? 'exported files, alone and as members, predict with the bits of their checkpoint'
run "$LOCKSTEP" eval small.h5 --data set/val --threads 1
alone=$(top1)
run "$LOCKSTEP" eval small.h5 + small.onnx --data set/val --threads 1 --json two.json
((status == 0)) && [[ $(top1) == "$alone" ]] && says '^  small.onnx: 300 rows in ' &&
  grep -q '"checkpoint": "small.h5 + small.onnx"' two.json &&
  grep -q '"name": "small.onnx"' two.json
verdict $? 'eval measures an ensemble, and its report has the members'

# ---- cascades ------------------------------------------------------------------------------------
middle() {  # a number that about half of small.h5's rows are above, and near to none
  "$python" - <<'PYTHON'
import h5py, numpy as np

with h5py.File("small/predictions.h5") as file:
    sure = np.sort(file["top_probability"][:, 0].astype(float))
some = sure[len(sure) // 4 : 3 * len(sure) // 4]
widest = np.argmax(np.diff(some))
print(round((some[widest] + some[widest + 1]) / 2, 6))
PYTHON
}
above=$(middle)
guess cascade small.h5 above "$above" else large.h5
# On some processors a row's bits depend on its place in 16 rows: a later stage then takes fewer.
rows=$(sed -n 's/^large.h5: .* so it computes \([0-9]*\) at a time$/\1/p' <<<"$said")
guess large large.h5
cascade() {
  "$python" - "$@" <<'PYTHON'
import sys
import h5py, numpy as np

above = float(sys.argv[1])
logits = {}
for name in ("small", "large", "cascade"):
    with h5py.File(f"{name}/predictions.h5") as file:
        logits[name] = file["logits"][:]
        if name == "small":
            # top_probability is the float of the number that decides: no row is that near.
            sure = file["top_probability"][:, 0]
assert np.abs(sure - above).min() > 1e-7
kept = sure > above
assert 0 < kept.sum() < len(kept), kept.sum()
want = np.where(kept[:, None], logits["small"], logits["large"])
assert want.tobytes() == logits["cascade"].tobytes()
print("kept", kept.sum())
PYTHON
}
run cascade "$above"
verdict $status 'each row of a cascade has the bits of the member that answers it'
guess first small.h5 above 0 else large.h5
said_first=$said
guess last small.h5 above 1 else large.h5
((status == 0)) && same_bits small first && same_bits large last &&
  says '^  large.h5: 300 rows' && said=$said_first && says '^  large.h5: 0 rows in 0.00 s$'
verdict $? 'by 0 the first member answers all, by 1 the other one'
guess cascade large.h5
((status == 2)) && says 'cascade/predict.json: this folder has predictions with .* name another folder'
verdict $? 'a member alone in the folder of a cascade is an error'

run "$LOCKSTEP" eval large.h5 --data set/val
of_large=$(top1)
run "$LOCKSTEP" eval small.h5 above auto else large.h5 --data set/val
fitted=$(sed -n 's/^found: //p' <<<"$said")
read -ra words <<<"$fitted"
one=$(grep -A1 '^found:' <<<"$said" | sed -n 's/.*\(top-1 [0-9.]* %\);.*/\1/p')
((status == 0)) && [[ $(grep -o 'top-1 [0-9.]* %' <<<"$said" | head -n 1) == "$of_large" ]] &&
  says "^300 rows: loss .* $one" && says '^  small.h5: 300 rows' && ((${#words[@]} == 5))
verdict $? 'eval finds the number of a cascade, and measures it with that'
within() { awk -v a="${1//[^0-9.]/}" -v b="${2//[^0-9.]/}" 'BEGIN { exit !(a >= b - 0.21) }'; }
within "${one#top-1}" "${of_large#top-1}"
verdict $? "its top-1 is within 0.2 points of the large model's"
run ranks 2 "$LOCKSTEP" eval small.h5 above auto else large.h5 --data set/val --threads 1
((status == 0)) && says "^found: $fitted$" && says '^  small.h5: 300 rows'
verdict $? 'two ranks find the same number'
run "$LOCKSTEP" eval "${words[@]}" --data set/val
[[ $status == 0 && $(top1) == "$one" ]]
verdict $? 'eval takes the words that it printed'

# ---- chains --------------------------------------------------------------------------------------
chain() {  # each row has the bits of the member that small.h5's class chooses
  "$python" - "$@" <<'PYTHON'
import sys
import h5py, numpy as np

read = {}
for name in ("small", "large", "copy", "chain"):
    with h5py.File(f"{name}/predictions.h5") as file:
        read[name] = file["logits"][:]
        if name == "small":
            gate = file["top_class"][:, 0]
            classes = [one.decode() for one in file["classes"][:]]
of_large = np.isin(gate, [classes.index(one) for one in sys.argv[1:]])
assert 0 < of_large.sum() < len(gate), of_large.sum()
want = np.where(of_large[:, None], read["large"], read["copy"])
assert want.tobytes() == read["chain"].tobytes()
PYTHON
}
classes_said() {  # the two classes that small.h5 says most
  "$python" -c 'import h5py, numpy as np
with h5py.File("small/predictions.h5") as file:
    said = np.bincount(file["top_class"][:, 0])
    names = [one.decode() for one in file["classes"][:]]
print(*(names[k] for k in np.argsort(-said)[:2]))'
}
read -r often other < <(classes_said)
guess copy copy.h5
guess chain small.h5 "$often:" "$other:" large.h5 else copy.h5
((status == 0)) && says '^  small.h5: 300 rows' && says '^  large.h5: [1-9]' &&
  run chain "$often" "$other"
verdict $status 'each row of a chain has the bits of the member that its class chooses'
run "$LOCKSTEP" eval small.h5 "$often:" large.h5 + copy.h5 else small.onnx --data set/val \
  --threads 1
((status == 0)) && says '^300 rows: loss [0-9.]*, ' && says '^  small.h5: 300 rows' &&
  says '^  small.onnx: [1-9]'
verdict $? 'eval measures a chain whose arm is an ensemble, and says what each member did'

# ---- served --------------------------------------------------------------------------------------
"$LOCKSTEP" serve both=small.h5 above "$above" else large.h5 small.h5 \
  chain=small.h5 "$often:" "$other:" large.h5 else copy.h5 --port 0 \
  --batch "${rows:-16}" --threads 1 --grace-s 0 >serve.log 2>&1 &
server=$!
until_it 600 grep -q '^listening at' serve.log
at=$(sed -n 's/^listening at \(http.*\)\/$/\1/p' serve.log)
"$python" "$support/serving.py" bodies "$(ls set/val/*.h5 | head -n 1)"
answers() { run curl -sS -m 60 "$at/v2/models/${model:-both}$1" "${@:2}"; }
answers /infer -o answer -D headers --data-binary @binary.body \
  -H "Inference-Header-Content-Length: $(cat binary.length)"
length=$(tr -d '\r' <headers | sed -n 's/^Inference-Header-Content-Length: //Ip')
run "$python" "$support/serving.py" same cascade/predictions.h5 answer "$length" $(seq 3 23)
verdict $status 'a served cascade has the bits of predict'
model=chain answers /infer -o answer -D headers --data-binary @binary.body \
  -H "Inference-Header-Content-Length: $(cat binary.length)"
length=$(tr -d '\r' <headers | sed -n 's/^Inference-Header-Content-Length: //Ip')
run "$python" "$support/serving.py" same chain/predictions.h5 answer "$length" $(seq 3 23)
((status == 0)) && model=chain answers /stats &&
  says '"member_stats":\[\{"name":"small.h5","inference_count":21,' && says '"name":"copy.h5"'
verdict $? 'a served chain has the bits of predict, and says what each member did'
answers /stats && says '"member_stats":\[\{"name":"small.h5","inference_count":21,' &&
  says '"name":"large.h5","inference_count":' && answers /config &&
  says "\"string_value\":\"small.h5 above $above else large.h5\"" && run curl -sS "$at/metrics" &&
  says '^lockstep_serve_member_rows_total\{model="both",member="small.h5"\} 21' &&
  says '^lockstep_serve_member_seconds_total\{model="both",member="large.h5"\} '
verdict $? 'statistics and metrics say what each member did'
cp large.h5 next.h5 && mv next.h5 large.h5
happens 300 grep -q '^both: version 2, large.h5, ' serve.log
verdict $? 'a changed file of a member is loaded again'
kill -TERM $server
wait $server
! grep -q '^small: version 2' serve.log
verdict $? 'a model whose files are the same stays'

# ---- what cannot be done -------------------------------------------------------------------------
refused() {  # refused NAME PATTERN COMMAND...
  run "$LOCKSTEP" "${@:3}"
  ((status == 2)) && says "$2"
  verdict $? "$1"
}
"$LOCKSTEP" pack --from shapes --out other --train-rows 50 --val-rows 10 --resize 40 >/dev/null
"$LOCKSTEP" train --data.train other/train --model resnet20 --batch 25 --stop-after 1 --threads 2 \
  --out run-other >other.log 2>&1
cp run-other/checkpoints/step-00000001.h5 other.h5
python3 "$support/flowers.py" flowers 4
"$LOCKSTEP" pack flowers --out garden --resize 32x32 --held-out 0 >garden.log 2>&1
"$LOCKSTEP" train --data.train garden/train --model resnet20 --batch 4 --stop-after 1 --threads 2 \
  --out run-garden >>garden.log 2>&1
cp run-garden/checkpoints/step-00000001.h5 garden.h5
on="--data set/val"
refused 'a member that is not there is named' 'nowhere.h5: No such file' \
  eval small.h5 + nowhere.h5 $on
refused 'members of other classes are an error that names both' \
  'small.h5 and garden.h5 have different classes' eval small.h5 + garden.h5 $on
refused 'members for images of another size are an error that names both' \
  'small.h5 has images of 32 x 32 .* other.h5 of 40 x 40' eval small.h5 above 0.5 else other.h5 $on
refused 'a member twice is an error' 'small.h5: is a member twice, and ./small.h5 is the same' \
  eval small.h5 + ./small.h5 $on
for number in 1.5 nan -0.1 0.5x; do
  run "$LOCKSTEP" eval small.h5 above "$number" else large.h5 $on
  ((status == 2)) && says "$number" || missed+="above $number: $said"$'\n'
done
verdict 0 'a number that is no probability is an error that names it'
refused 'auto in predict is an error' 'small.h5 above auto else large.h5: only eval finds' \
  predict small.h5 above auto else large.h5 set/val --out bad
refused 'auto in serve is an error' 'only eval finds the number' \
  serve both=small.h5 above auto else large.h5
refused 'auto in a later stage is an error' 'only the first number can be auto' \
  eval small.h5 above 0.9 else copy.h5 above auto else large.h5 $on
refused 'a cascade without else is an error' 'small.h5 ...: .else. and a model must follow' \
  eval small.h5 above 0.9 $on
refused 'a class that the gate does not have is an error' 'nothing: small.h5 has no class of' \
  eval small.h5 nothing: large.h5 else copy.h5 $on
refused 'a class without a model is an error that names it' 'its class .* has no model: add' \
  eval small.h5 "$often:" large.h5 $on
refused 'a class with two models is an error' "$often: has two models" \
  eval small.h5 "$often:" large.h5 "$often:" copy.h5 $on
refused 'a chain with auto is an error' 'in a chain, auto finds nothing' \
  eval small.h5 above auto else large.h5 "$often:" copy.h5 else small.onnx $on
refused 'a chain that ends with a class is an error' "after '$often:' a file must follow" \
  eval small.h5 "$often:" $on
refused 'words in one argument are an error that shows the right ones' \
  'give the words of a model as separate arguments' eval 'small.h5 > 0.9 else large.h5' $on
refused 'a word after the model is an error' 'large.h5: is not expected after small.h5' \
  eval small.h5 large.h5 $on
refused 'a served model of several files needs a name' 'needs a name: NAME=small.h5 . large.h5' \
  serve small.h5 + large.h5
refused 'features of several networks are an error' 'one network.s last layer' \
  predict small.h5 + large.h5 set/val --features --out bad
cp small.h5 ./+
run "$LOCKSTEP" eval ./+ + copy.h5 --data set/val
((status == 0)) && says '^  ./\+: 300 rows'
verdict $? 'a file whose name is a word is a member by its path'
[[ ! -e bad ]]
verdict $? 'what cannot be done makes no folder'
