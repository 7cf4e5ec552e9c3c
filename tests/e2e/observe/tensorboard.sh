#!/bin/bash
# TensorBoard's own readers find in a run's event files what metrics.jsonl says: each step once,
# however often the run was killed and resumed, and up to the cut where a file is cut. Where no
# event can be written, training continues.
# computes
# clients
root=$PWD
source "$(dirname "$0")/../../support/e2e.bash"
source "$root/tests/support/clients/clients.bash"
pack_small
data=("$LOCKSTEP" train --data.train small/train --data.val small/val --threads 1)
any=("${data[@]}" --batch 25)
train=("${any[@]}" --optim.lr 0.01 --metrics.tensorboard --checkpoint.every-steps 7)

# ---- without TensorBoard -------------------------------------------------------------------------
run "${any[@]}" --out off --epochs 1
((status == 0)) && [[ ! -e off/tensorboard ]] &&
  run "${any[@]}" --epochs 1 --metrics.tensorboard --out on &&
  [[ $(ls on/tensorboard) == events.out.tfevents.* ]] &&
  cmp <(without_times off) <(without_times on) &&
  cmp <(tensors off/checkpoints/best.h5) <(tensors on/checkpoints/best.h5) &&
  grep -A 3 '^\[metrics\]' on/config.toml | grep -q '^tensorboard = true'
verdict $? 'curves for TensorBoard are written when asked for, and change nothing else'

law='a full disk ends the curves with one line, and training continues'
mkdir -p full/tensorboard
if mount -t tmpfs -o size=8k tmpfs full/tensorboard 2>/dev/null; then
  run "${train[@]}" --epochs 6 --out full
  ((status == 0)) && (($(grep -c 'No space left' <<<"$said") == 1)) &&
    says "warning: TensorBoard's curves end here, and training continues: full/tensorboard/events" &&
    (($(grep -c '"kind":"step"' full/metrics.jsonl) == 60))
  verdict $? "$law"
  umount full/tensorboard
else
  echo "SKIP $law: no small file system can be mounted here"
fi
mkdir -p taken && echo text >taken/tensorboard
run "${any[@]}" --epochs 1 --metrics.tensorboard --out taken
((status == 0)) && (($(grep -c "TensorBoard's curves end here" <<<"$said") == 1)) &&
  [[ $(cat taken/tensorboard) == text ]]
verdict $? 'where the folder cannot be made, nothing is written over, and training continues'

# ---- its own readers -----------------------------------------------------------------------------
# steps RUN: those in its metrics.
steps() { cat "$1/metrics.jsonl" 2>/dev/null | grep -c '"kind":"step"' || true; }
reached() { (($(steps "$1") >= $2)); }
# killed RUN STEP: starts or resumes the run and kills it once it has done this step. The kill may
# come late: these starts would continue for long.
killed() {
  "${train[@]}" --epochs 9999 --out "$1" --resume auto >>"$1.log" 2>&1 &
  local pid=$!
  until_it 600 reached "$1" "$2"
  kill -KILL $pid
  wait $pid 2>/dev/null
}
killed twice 12
killed twice $(($(steps twice) + 10))  # what the first start has done does not count
epochs=$(($(steps twice) / 10 + 2))
run "${train[@]}" --epochs $epochs --out twice --resume auto
((status == 0)) && (($(ls twice/tensorboard | wc -l) == 3)) && (($(steps twice) == 10 * epochs))
verdict $? 'each start of a run has an event file'

cat >readers.py <<'PY'
"""readers.py RUN READER STEPS: compares the curves that readers find with metrics.jsonl."""
import json, sys, time, subprocess, urllib.parse, urllib.request
import numpy as np

def wanted(run):
    """{tag: [(step, value as float32)]}, from metrics.jsonl alone."""
    curves, counters = {}, {"step", "epoch", "last_step", "rows", "samples", "time_ms"}
    def put(tag, step, value):
        curves.setdefault(tag, []).append((step, float(np.float32(value))))
    for line in map(json.loads, open(run + "/metrics.jsonl")):
        kind = line["kind"]
        if kind == "ranks":
            for part in ("data", "forward", "backward", "exposed_comm", "update", "other"):
                for what in ("min_ms", "median_ms", "max_ms", "slowest"):
                    put(f"ranks/{part}_{what}", line["until_step"], line[part][what])
        elif kind in ("step", "epoch"):
            step = line["step" if kind == "step" else "last_step"]
            scores = {f"val_{name}": value for name, value in line.get("val_scores", {}).items()}
            for name, value in {**line, **scores}.items():
                if name not in counters and isinstance(value, (int, float)):
                    ms = kind == "step" and name.endswith("_ms")
                    section = "time" if ms else "train" if kind == "step" else "epoch"
                    put(f"{section}/{name}", step, value)
    return curves

def same(found, want, who):
    assert set(found) == set(want), (who, set(found) ^ set(want))
    for tag in want:
        assert found[tag] == want[tag], (who, tag, found[tag], want[tag])

def accumulated(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(run + "/tensorboard", size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)]
            for tag in events.Tags()["scalars"]}

def parsed(run):
    from tbparse import SummaryReader
    curves = {}
    for one in SummaryReader(run + "/tensorboard").scalars.itertuples():
        curves.setdefault(one.tag, []).append((one.step, one.value))
    return curves

def served(run, want, fast):
    """What the web page gets, and the hyperparameters."""
    port = str(20000 + (time.time_ns() // 1000) % 20000)
    server = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", run + "/tensorboard", "--port", port,
         "--load_fast", fast, "--samples_per_plugin", "scalars=9999", "--reload_interval", "1"],
        stdout=subprocess.DEVNULL, stderr=open("server.log", "w"))
    def ask(path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/data/plugin/{path}", body,
                                         {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=60))
    try:
        for wait in range(600):
            try:
                if len(ask("scalars/tags").get(".", {})) == len(want):
                    break
            except OSError:
                pass
            time.sleep(0.1)
        curves = {}
        for tag in want:
            query = urllib.parse.urlencode({"run": ".", "tag": tag})
            curves[tag] = [(step, value) for _, step, value in ask(f"scalars/scalars?{query}")]
        statuses = ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"]
        groups = ask("hparams/session_groups", json.dumps(
            {"startIndex": 0, "sliceSize": 9, "allowedStatuses": statuses, "colParams": []}
        ).encode())
        return curves, groups["sessionGroups"]
    finally:
        server.terminate()
        server.wait()

run = sys.argv[1]
want = wanted(run)
steps = int(sys.argv[3])
assert [step for step, _ in want["train/loss"]] == list(range(1, steps + 1))
assert [step for step, _ in want["epoch/val_top1"]] == list(range(10, steps + 1, 10))
readers = {"accumulator": accumulated, "tbparse": parsed}
if sys.argv[2] in readers:
    same(readers[sys.argv[2]](run), want, sys.argv[2])
else:
    found, groups = served(run, want, sys.argv[2])
    same(found, want, sys.argv[2])
    (group,) = groups
    assert group["hparams"]["optim.lr"] == 0.01, group
    assert group["hparams"]["model"] == "resnet20" and group["hparams"]["ranks"] == 1, group
    assert group["sessions"][0]["status"] == "STATUS_SUCCESS", group
PY
law="TensorBoard's EventAccumulator finds metrics.jsonl's numbers, each step once, after two kills"
clients_or_skip "$law" tensorboard
run "$python" readers.py twice accumulator $((10 * epochs))
verdict $status "$law"
for fast in true false; do
  run "$python" readers.py twice $fast $((10 * epochs))
  verdict $status "TensorBoard's page, --load_fast=$fast, shows these curves, and the configuration"
done

cat >cut.py <<'PY'
import glob, struct, sys
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

(path,) = glob.glob(sys.argv[1] + "/tensorboard/*")
whole, ends = open(path, "rb").read(), []
while (ends[-1] if ends else 0) < len(whole):
    begin = ends[-1] if ends else 0
    ends.append(begin + 16 + struct.unpack("<Q", whole[begin:begin + 8])[0])
assert ends[-1] == len(whole) and len(ends) > 5
for cut in range(len(whole) + 1):
    with open("cut", "wb") as file:
        file.write(whole[:cut])
    found = len(list(RawEventFileLoader("cut").Load()))
    assert found == sum(end <= cut for end in ends), (cut, found)
PY
"${data[@]}" --epochs 1 --batch 100 --metrics.tensorboard --out short >short.log 2>&1 ||
  cat short.log
run "$python" cut.py short
verdict $status 'an event file that is cut at any byte is read up to the cut'

# ---- a search ------------------------------------------------------------------------------------
printf '[optim.lr]\nlow = 0.01\nhigh = 1\nlog = true\n[optim.nesterov]\nchoices = ["true", "false"]\n' \
  >space.toml
"$LOCKSTEP" search plan space.toml --out tried --trials 9 --data.train small/train \
  --data.val small/val --epochs 9 >tried.log 2>&1 &&
  "$LOCKSTEP" search run tried --trainer "$support/recorded_training.bash" >>tried.log 2>&1 ||
  cat tried.log
cat >sessions.py <<'PY'
import glob, json, subprocess, sys, time, urllib.request
port = str(20000 + (time.time_ns() // 1000) % 20000)
server = subprocess.Popen(
    [sys.executable, "-m", "tensorboard.main", "--logdir", "board", "--port", port],
    stdout=subprocess.DEVNULL, stderr=open("server.log", "w"))
def ask(path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/data/plugin/hparams/{path}",
                                     json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))
try:
    for wait in range(600):
        try:
            about = ask("experiment", {})
            score = [one["name"] for one in about["metricInfos"]]
            groups = ask("session_groups", {
                "startIndex": 0, "sliceSize": 99, "colParams": [{"metric": one} for one in score],
                "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE",
                                    "STATUS_RUNNING"]})["sessionGroups"]
            if len(groups) == 9 and all(group.get("metricValues") for group in groups):
                break
        except OSError:
            pass
        time.sleep(0.1)
finally:
    server.terminate()
    server.wait()
assert {one["name"] for one in about["hparamInfos"]} == {"optim.lr", "optim.nesterov"}, about
shown = {}
for group in groups:
    (session,) = group["sessions"]
    (value,) = session["metricValues"]
    assert value["name"]["tag"] == "score/top-1" and session["status"] == "STATUS_SUCCESS", session
    trial = int(session["name"].split("-")[-1])
    shown[trial] = value["trainingStep"], round(value["value"], 4), group
for trial, (epoch, score, group) in shown.items():
    rung = [1, 3, 9].index(epoch)
    result = json.load(open(f"tried/results/{trial}.{rung}.json"))
    assert abs(result["score"] - score) < 1e-4, (trial, score, result)
    newest = max(glob.glob(f"tried/results/{trial}.*.json"))
    assert newest.endswith(f"/{trial}.{rung}.json"), (trial, newest)
    assert trial == 0 or f"lr = {group['hparams']['optim.lr']:g}" in open(
        f"tried/trials/{trial}.toml").read(), group
assert sorted(shown) == list(range(9)), shown
PY
law="TensorBoard's page HPARAMS shows each trial of a search, its keys and its newest score"
run "$LOCKSTEP" search export tried --tensorboard board
((status == 0)) && says '^board: 9 trials$' && run "$python" sessions.py
verdict $status "$law"

law='tbparse, which reads each file alone, finds each step once, too'
clients_or_skip "$law" tbparse
run "$python" readers.py twice tbparse $((10 * epochs))
verdict $status "$law"
