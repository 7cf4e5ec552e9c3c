#!/bin/bash
# What Prometheus sees of a training: a page and a file with the newest records; what fails there
# never stops the training.
# waits for steps that only wait
# clients
root=$PWD rules=$PWD/jobs/prometheus-rules.yml
source "$(dirname "$0")/../../support/e2e.bash"
source "$root/tests/support/clients/clients.bash"
pack_small
train=("$LOCKSTEP" train --data.train small/train --threads 1 --batch 50 --backend clock
  --clock.step-ms 20)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

# page PATH: the status and what the server says.
page() {
  python3 - "$port" "$1" <<'PY'
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}{sys.argv[2]}", timeout=10)
except urllib.error.HTTPError as error:
    answer = error
except OSError as error:
    sys.exit(str(error))
print(answer.status, answer.headers["Content-Type"])
print(answer.read().decode(), end="")
PY
}
# value FILE METRIC: of the metric's first sample.
value() { sed -n "s/^lockstep_$2{[^}]*} //p" "$1" | head -n 1; }
has_steps() { page /metrics >page.txt 2>/dev/null && [[ $(value page.txt steps_total) -ge $1 ]]; }
# agrees FILE: its loss is the one that the run recorded for its step.
agrees() {
  python3 - "$(value "$1" steps_total)" "$(value "$1" loss)" "$(value "$1" images_total)" <<'PY'
import json, sys
step, loss, images = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
one = [r for r in map(json.loads, open("seen/metrics.jsonl")) if r.get("step") == step][-1]
assert abs(one["loss"] - loss) <= 1e-6 * abs(loss) and one["samples"] == images, (one, loss, images)
PY
}

mkdir collected
"${train[@]}" --out seen --epochs 1000 --metrics.listen "$port" \
  --metrics.textfile collected/a.prom \
  >seen.log 2>&1 &
training=$!
in_file() { [[ $(value collected/a.prom steps_total) ]]; }
happens 600 has_steps 5 && happens 600 in_file
cp collected/a.prom textfile.prom
kill -TERM "$training"
wait "$training"
status=$? said=$(cat seen.log page.txt)
((status == 3)) && agrees page.txt && agrees textfile.prom &&
  says "metrics: http://127.0.0.1:$port/metrics" && says '^200 text/plain; version=0.0.4' &&
  says 'lockstep_run_info\{run_id="[0-9a-f]{16}",model="resnet20",' &&
  says 'lockstep_step_part_seconds_total\{run_id="[0-9a-f]{16}",part="forward"\} 0\.'
verdict $? "a training's page and file have the numbers of its records"

[[ ! -e collected/a.prom ]] && ! page /metrics >/dev/null 2>&1
verdict $? 'when the training ends, its file and its page are gone'

python3 -m http.server -b 127.0.0.1 "$port" >/dev/null 2>&1 &
other=$!
happens 100 page / >/dev/null
run "${train[@]}" --out alone --epochs 1 --metrics.listen "$port" --metrics.textfile none/a.prom
kill "$other"
((status == 0)) && says "metrics.listen: 127.0.0.1:$port: nothing can listen there: Address already in use; training continues without" &&
  says 'metrics.textfile: cannot write none/a.prom: No such file or directory; training continues without' &&
  (($(grep -c 'training continues without' <<<"$said") == 2))
verdict $? 'a port that is taken and a folder that is not there cost one line each, and no training'

law='a full folder costs one line, and no training'
mkdir full
if mount -t tmpfs -o size=4k tmpfs full 2>/dev/null; then
  head -c 4096 /dev/zero >full/all
  run "${train[@]}" --out filled --epochs 1 --metrics.textfile full/a.prom
  ((status == 0)) && says 'metrics.textfile: cannot write full/a.prom: No space left on device' &&
    (($(grep -c 'training continues without' <<<"$said") == 1))
  verdict $? "$law"
  umount full
else
  echo "SKIP $law: no small file system can be mounted here"
fi

run "${train[@]}" --out bad --metrics.listen here:80:x
((status == 2)) && says 'metrics.listen' && [[ ! -e bad ]] &&
  run "${train[@]}" --out bad --metrics.textfile metrics.txt && ((status == 2)) &&
  says 'metrics.textfile = metrics.txt: node_exporter reads only files NAME.prom' && [[ ! -e bad ]]
verdict $? 'a wrong address, and a file that no collector reads, are errors before the start'

if command -v promtool >/dev/null; then
  run promtool check metrics <textfile.prom
  ((status == 0)) && run promtool check rules "$rules" && ((status == 0))
  verdict $? "promtool finds nothing in the metrics and the alert rules"
  cat >killed.yml <<END_OF_TEST
rule_files: [$rules]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'lockstep_last_step_timestamp_seconds{run_id="killed"}'
        values: '0 60 120 120x20'
      - series: 'lockstep_last_step_timestamp_seconds{run_id="alive"}'
        values: '0+60x23'
    alert_rule_test:
      - alertname: LockstepNoStep
        eval_time: 6m
      - alertname: LockstepNoStep
        eval_time: 15m
        exp_alerts: [{exp_labels: {run_id: killed, severity: page}}]
END_OF_TEST
  run promtool test rules killed.yml
  verdict "$status" 'the alert rules name a run that was killed, and none that goes'
else
  echo 'SKIP promtool finds nothing in the metrics and the alert rules: promtool is not here (make test-clients)'
  echo 'SKIP the alert rules name a run that was killed, and none that goes: promtool is not here (make test-clients)'
fi
