#!/bin/bash
# lockstep report: one page about runs, of a run that was killed and resumed, of a long one, and
# what it refuses.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
train=("$LOCKSTEP" train --data.train small/train --data.val small/val --threads 1 --batch 48
  --checkpoint.every-steps 5 --audit.every-steps 0)
report() { run "$LOCKSTEP" report "$@"; }

run "${train[@]}" --out done --epochs 2 --optim.lr 0.02 && report done -o page.html &&
  ((status == 0)) && says '^page.html: [0-9.]+ kB$'
verdict $? 'a finished run has a page'
report done -o pages/new/page.html
((status == 0)) && cmp page.html pages/new/page.html
verdict $? 'report makes the folder of its page'
run python3 - <<'PY'
import html.parser, json, re
page = open("page.html").read()
summary = json.load(open("done/summary.json"))
for reference in ("http", "src=", "@import", "<script", "url("):
    assert reference not in page, reference
for name in ("viewport", "prefers-color-scheme: dark", "finished: it finished after step 10"):
    assert name in page, name
cells = dict(re.findall(r"<tr><td[^>]*>([^<]*)</td><td[^>]*>([^<]*)</td></tr>", page))
assert cells["steps"] == str(summary["steps"]), cells
assert cells["images/s"] == "%.1f" % summary["images_per_s"], cells
for name, key in (("data, ms a step", "data_ms"), ("forward", "forward_ms"), ("other", "other_ms"),
                  ("exposed communication", "exposed_comm_ms"), ("update", "update_ms")):
    assert cells[name] == "%.3f" % summary["mean_step"][key], (name, cells)
best = "%.2f %% in epoch %d" % (100 * summary["best_val_top1"], summary["best_epoch"])
assert cells["best validation"] == best, cells
assert cells["Job Id"] == "none" and cells["Number of GPUs"] == "0", cells

class Reader(html.parser.HTMLParser):
    open, void = [], ("meta",)
    def handle_starttag(self, tag, attributes):
        if tag not in self.void: self.open.append(tag)
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag
reader = Reader()
reader.feed(page)
assert reader.open == [], reader.open
pictures = re.findall(r"<svg.*?</svg>", page, re.S)
assert len(pictures) == 6, len(pictures)
for picture in pictures:
    assert not re.search('[ "ML]-?(nan|inf)', picture), picture
PY
verdict $status "its numbers are summary.json's, its tags fit, and it needs nothing else"

"${train[@]}" --out killed --epochs 1000 --checkpoint.every-epochs 0 >killed.log 2>&1 &
process=$!
until_it 600 compgen -G 'killed/checkpoints/step-*.h5' >/dev/null
kill -KILL "$process"
wait "$process" 2>/dev/null
newest=$(basename "$(printf '%s\n' killed/checkpoints/step-*.h5 | tail -n 1)" .h5)
report killed -o killed.html && ((status == 0)) && grep -q 'killed: its records end' killed.html &&
  run "$LOCKSTEP" resume killed --stop-after $((10#${newest#step-} + 2))
((status == 3)) && report killed -o killed.html && ((status == 0)) &&
  grep -q 'started again after step [0-9]*; before, it ended without a word' killed.html
verdict $? 'a run that was killed has a page, which a newer one replaces; its restart is a mark'

report done killed -o both.html --text
((status == 0)) && says '^Keys that differ' && says '^epochs +2 +1000' &&
  grep -q 'killed</text>' both.html
verdict $? 'several runs are laid over each other, and the keys that differ are a table'

python3 - <<'PY'
import json, os, random
os.makedirs("long")
random.seed(1)
with open("long/metrics.jsonl", "w") as file:
    write = lambda **record: file.write(json.dumps(record, separators=(",", ":")) + "\n")
    write(kind="start", run_id="0" * 16, from_step=0, ranks=8, hosts=["a", "b"], epochs=90,
          steps_per_epoch=5000, time_ms=10)
    for step in range(1, 90 * 5000 + 1):
        write(step=step, kind="step", time_ms=10 + 100 * step, epoch=1 + (step - 1) // 5000,
              loss=6 / (1 + step / 9000) + random.random(), top1=step / 9e5, lr=0.1, rows=256,
              samples=256 * step, data_ms=0.1, forward_ms=20 + random.random(), backward_ms=40.0,
              exposed_comm_ms=5000.0 if step == 123456 else 1.0, update_ms=2.0, other_ms=0.5,
              images_per_s=4000.0, memory_bytes=10**9)
        if step % 5000 == 0:
            write(epoch=step // 5000, kind="epoch", time_ms=10 + 100 * step, last_step=step,
                  train_loss=1.0, train_top1=0.5, val_loss=1.1, val_top1=step / 6e5)
            spread = lambda usual: {"min_ms": usual, "median_ms": usual, "max_ms": usual + 9,
                                    "slowest": 3, "ranks": [usual] * 3 + [usual + 9] + [usual] * 4}
            write(kind="ranks", time_ms=10 + 100 * step, epoch=step // 5000, until_step=step,
                  steps=5000, data=spread(0), forward=spread(20), backward=spread(40),
                  exposed_comm=spread(1), update=spread(2), other=spread(0))
    write(kind="end", status="finished", steps=450000, epochs=90, time_ms=5 * 10**7)
PY
report long -o long.html && (($(stat -c %s long.html) < 400000)) &&
  python3 - <<'PY'
import re
page = open("long.html").read()
paths = re.findall(r' d="([^"]*)" fill="none"', page)
assert max(path.count("L") + path.count("M") for path in paths) <= 2000
# One step took five seconds: it is in the picture, far above all others.
picture = page[page.index('aria-label="Time of a step"'):].split("</svg>")[0]
extremes = re.search(r'd="([^"]*)" fill="none"[^>]*stroke-opacity', picture).group(1)
high = [y for y in map(float, re.findall(r"[ML][0-9.]+ ([0-9.]+)", extremes)) if y < 150]
assert len(high) == 1 and high[0] < 60, high
PY
verdict $? 'a page of 90 x 5000 steps has less than 400 kB and 2000 points a curve'
report long --text
((status == 0)) && says 'rank 3 makes the others wait'
verdict $? 'it names the rank for which the others wait'

# A sacct on PATH, because a small machine has no energy plug-in: the real one then has no figure.
mkdir bin && cat >bin/sacct <<'END'
#!/bin/bash
[[ "$*" == '-n -P -X -D -j 4711 -o JobIDRaw,JobID,State,ConsumedEnergyRaw' ]] &&
  echo "4711|4711|$SACCT_ANSWER"
END
chmod +x bin/sacct
cp -r done in-job && sed -i '1s/"job":""/"job":"4711"/' in-job/metrics.jsonl
PATH=$PWD/bin:$PATH SACCT_ANSWER='COMPLETED|123400' report in-job --text
((status == 0)) && says 'Energy by Slurm, all of job 4711 +123.4 kJ' &&
  says 'Total Energy Consumed +not measured' && report done --text && ! says 'by Slurm'
verdict $? "Slurm's figure of a job's energy is told as Slurm's, apart from what the run measured"
PATH=$PWD/bin:$PATH SACCT_ANSWER='COMPLETED|0' report in-job --text
((status == 0)) && says 'all of job 4711 +not measured: .*AcctGatherEnergyType'
verdict $? 'where Slurm has no figure, the report says why'

# ---- what it refuses -----------------------------------------------------------------------------
refused() { report "${@:2}" && ((status == 2)) && says "error: .*$1" &&
  (($(grep -c error <<<"$said") == 1)); }
mkdir other half && printf '{"loss":1}\n{"loss":2}\n' >other/metrics.jsonl
echo 'my notes' >notes.html
refused "other/metrics.jsonl: 2 lines are not records of lockstep" done other -o x.html &&
  refused "absent is not a run's folder" absent -o x.html &&
  refused "half is not a run's folder" half -o x.html &&
  refused 'notes.html: there is a file that is not a report' done -o notes.html &&
  [[ $(<notes.html) == 'my notes' ]] &&
  refused 'is a folder' done -o half &&
  refused 'notes.html: Not a directory' done -o notes.html/x.html &&
  refused 'name the page' done && [[ ! -e x.html ]]
verdict $? 'bad input is one line that says what is wrong, and nothing is written over'
report done absent killed -o both.html
((status == 2)) && says "error: absent is not a run's folder" && [[ -s both.html ]]
verdict $? 'of several runs, one that is not there is an error, and the page has the others'
cp -r done hurt && rm -r hurt/config.toml hurt/binding.json hurt/summary.json hurt/checkpoints &&
  sed -i '3s/"step":[0-9]*/"step":x/' hurt/metrics.jsonl && report hurt -o hurt.html &&
  ((status == 0)) && says 'warning: hurt: .*1 line is not .* line 3' &&
  says 'warning: hurt: config.toml is missing' && grep -q 'finished: it finished' hurt.html
verdict $? 'a folder that is half deleted is a page that says what is missing'
