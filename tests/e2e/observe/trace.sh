#!/bin/bash
# The timeline of some steps on all ranks: it is right, costs no bits, and never stops a training.
# Holistic Trace Analysis reads it and finds the rank that keeps the others waiting.
# computes
# alone, so that no other part slows its ranks
# clients
root=$PWD
source "$(dirname "$0")/../../support/e2e.bash"
source "$root/tests/support/clients/clients.bash"
pack_small
any=("$LOCKSTEP" train --data.train small/train --threads 1 --winograd false)
train=("${any[@]}" --batch 25 --optim.lr 0.01 --epochs 2)

# ---- what it has ---------------------------------------------------------------------------------
run ranks 2 "${train[@]}" --out off
((status == 0)) && [[ ! -e off/trace ]] && ! says 'trace' &&
  run ranks 2 "${train[@]}" --out on --trace 5:8 &&
  cmp <(tensors off/checkpoints/step-00000020.h5) <(tensors on/checkpoints/step-00000020.h5) &&
  cmp <(without_times off) <(without_times on)
verdict $? 'a trace changes no weight and no metric, and there is none without the key'

says 'trace of steps 5 to 8: on/trace/5-8.json; the ranks have one clock; a step.s last reduction ends within [0-9]+ us on all ranks' &&
  [[ $(cd on/trace && echo * */*) == '5-8 5-8.json 5-8/rank-0.json 5-8/rank-1.json' ]] &&
  python3 - on <<'PY'
import collections, json, sys
run = sys.argv[1]
trace = json.load(open(run + "/trace/5-8.json"))
about, worst = trace["otherData"], trace["otherData"]["uncertainty_us"]
assert worst == 0 and all(clock["ahead_us"] == [0, 0] for clock in about["clocks"]), about
spans = [one for one in trace["traceEvents"] if one["ph"] == "X"]
steps = collections.defaultdict(set)
sums = collections.defaultdict(list)
for one in spans:
    end = one["ts"] + one["dur"]
    if one["cat"] == "step":
        steps[one["pid"]].add(one["args"]["step"])
    if one["cat"] == "reduction":
        sums[one["args"]["step"], one["name"]].append((one["ts"], end))
assert steps == {0: {5, 6, 7, 8}, 1: {5, 6, 7, 8}}, steps
for name, ranks in sums.items():
    assert len(ranks) == 2, name
    first_end, last_begin = min(end for _, end in ranks), max(begin for begin, _ in ranks)
    assert first_end >= last_begin - 0.01, (name, ranks)
assert {step for step, _ in sums} == {5, 6, 7, 8}
# What the trace says of a step's parts is what its record says.
records = [json.loads(line) for line in open(run + "/metrics.jsonl")]
records = {one["step"]: one for one in records if one["kind"] == "step"}
mine = [one for one in spans if one["pid"] == 0 and one["name"] in ("forward", "backward")]
for step in (5, 6, 7, 8):
    ms = sum(one["dur"] for one in mine if one["args"]["step"] == step) / 1e3
    want = records[step]["forward_ms"] + records[step]["backward_ms"]
    assert abs(ms - want) <= 0.05 * want + 0.2, (step, ms, want)
PY
verdict $? "a merged trace has all ranks' steps by one clock, with its uncertainty, and their reductions"

# ---- what is wrong never stops a training --------------------------------------------------------
refused() {
  run "${train[@]}" --out bad --trace "$1"
  ((status == 2)) && says "$2" && (($(wc -l <<<"$said") == 1)) && [[ ! -e bad ]]
}
refused 8:5 "trace: '8:5' ends before it begins: FIRST:LAST, as in 200:210" &&
  refused 5 "trace: '5' is not FIRST:LAST, two steps of the run, such as 200:210" &&
  refused 0:5 "trace: '0:5' is not FIRST:LAST" && refused -1:5 "'-1:5' is not FIRST:LAST" &&
  refused 5:x "'5:x' is not FIRST:LAST" &&
  refused 1:5000 "trace: '1:5000' has 5000 steps; a trace is kept in memory, 1000 steps at most"
verdict $? 'a range that is malformed, reversed or too long is one line before the start'

# told RUN LINE RANGE: trains, with one warning.
told() {
  run "${train[@]}" --out "$1" --trace "$3" "${@:4}"
  ((status == 0 || status == 3)) && says "$2" && (($(grep -c 'warning: trace' <<<"$said") == 1))
}
told past 'trace = 30:40: the run ends with step 20: nothing is traced' 30:40 &&
  [[ ! -e past/trace ]] &&
  told over 'trace = 18:40: the run ends with step 20, and so does the trace' 18:40 &&
  [[ -e over/trace/18-20.json ]] &&
  told late 'trace = 12:14: the run ends with step 10: nothing is traced' 12:14 --stop-after 10 &&
  told late 'trace = 3:5: this start begins after step 10: nothing is traced' 3:5 --resume auto
verdict $? 'a range beyond the run costs one line, and no training'

mkdir blocked && echo text >blocked/trace
told blocked 'trace: cannot create .*blocked/trace.*; training continues without' 5:8 &&
  [[ $(cat blocked/trace) == text ]] && (($(grep -c '"kind":"step"' blocked/metrics.jsonl) == 20))
verdict $? 'a folder that cannot be made costs one line, and no training'

law='a full disk costs one line, and no training'
mkdir -p full/trace
if mount -t tmpfs -o size=8k tmpfs full/trace 2>/dev/null; then
  told full 'trace: cannot write full/trace/5-8/rank-0.json: No space left on device; training continues without' 5:8 &&
    (($(grep -c '"kind":"step"' full/metrics.jsonl) == 20))
  verdict $? "$law"
  umount full/trace
else
  echo "SKIP $law: no small file system can be mounted here"
fi

# ---- Holistic Trace Analysis ---------------------------------------------------------------------
clients_or_skip 'Holistic Trace Analysis finds the rank that keeps the others waiting' hta
# It looks only at reductions that take more than a hundredth of a step, also on the late rank: so
# there are few rows, and one bucket.
mpirun --oversubscribe --bind-to none -np 2 "${any[@]}" --batch 8 --optim.lr 0.01 \
  --epochs 100000 --checkpoint.every-epochs 0 --audit.every-steps 0 --comm.bucket-mb 4 \
  --out slow --trace 100:139 >slow.log 2>&1 &
mpirun=$!
first_step slow.log
rank_pids $mpirun
# Most of the time the rank does not run, as on a core that others use.
python3 - "${pids[1]}" <<'PY' &
import os, signal, sys, time
rank = int(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: (os.kill(rank, signal.SIGCONT), sys.exit()))
while True:
    os.kill(rank, signal.SIGSTOP)
    time.sleep(0.006)
    os.kill(rank, signal.SIGCONT)
    time.sleep(0.002)
PY
slowed=$!
traced() { [[ -e slow/trace/100-139.json ]]; }
happens 1200 traced
kill $slowed
kill -USR1 $mpirun
finish slow
run "$python" - slow/trace/100-139 <<'PY'
import logging, sys
logging.disable(logging.WARNING)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1])
assert sorted(analysis.t.get_all_traces()) == [0, 1]
# It leaves out the last step.
assert analysis.get_profiler_steps() == list(range(100, 139)), analysis.get_profiler_steps()
found = analysis.get_potential_stragglers(num_candidates=1)
assert found == [1], found
overlap = analysis.get_comm_comp_overlap(visualize=False)
print(overlap)
assert len(overlap) == 2
print(analysis.get_temporal_breakdown(visualize=False))
PY
((status == 0))
verdict $? 'Holistic Trace Analysis finds the rank that keeps the others waiting'
