#!/bin/bash
# tests/run reads verdicts correctly, keeps to its lanes, and counts retries.
# ci
# waits
source "$(dirname "$0")/../../support/e2e.bash"

# law NAME: the Python program on standard input holds.
law() {
  { cat <<'END'; cat; } >law.py
import collections, os, pathlib, re, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, os.environ["RUNNER"])
import lanes, verdicts
from lanes import Job

def found(*lines, status=0, may_be_empty=False):
    return verdicts.judge("part", "".join(line + "\n" for line in lines), status, may_be_empty)

def counts(verdicts):
    return verdicts.passed, verdicts.failed, verdicts.skipped

def run(*jobs):
    """Runs them; each job writes when it began and ended."""
    ended = []
    lanes.run(jobs, pathlib.Path("."), dict(os.environ), ended.append)
    return ended

def times(result):
    return [float(word) for word in result.said.split()]

CLOCK = ["bash", "-c", "echo $EPOCHREALTIME; sleep 0.3; echo $EPOCHREALTIME"]

def meets(own, other):
    """A job that ends only when the other one runs at the same time; it writes times, too."""
    return ["bash", "-c", f"echo $EPOCHREALTIME; touch {own}.runs; until [ -e {other}.runs ]; "
                          "do sleep 0.05; done; echo $EPOCHREALTIME"]
END
  run env RUNNER="$support/runner" python3 law.py
  verdict $status "$1"
}

law 'a failure is shown with all output before it, and with what its ranks say after it' <<'END'
it = found("PASS one", "word", "FAIL two", "late word", "PASS three", "unseen", "SKIP four: why",
           status=1)
assert counts(it) == (2, 1, 1), it
assert it.shown == "FAIL two\nword\nlate word\nSKIP four: why\n", it.shown
END

law 'a case that says SKIPPED and passes counts as skipped' <<'END'
it = found("TEST one", "SKIPPED: no GPU", "PASS one", "TEST two", "PASS two")
assert counts(it) == (1, 0, 1) and it.shown == "SKIP one: no GPU\n", it
END

law 'a job that ends with an error in a case or after it, or that says nothing, has failed' <<'END'
it = found("TEST one", "PASS one", "TEST two", "word", status=124)
assert counts(it) == (1, 1, 0) and "word" in it.shown, it
assert "two (part ran out of time in it" in it.shown, it
it = found("PASS one", status=3)
assert counts(it) == (1, 1, 0) and "part: ended with status 3" in it.shown, it
it = found()
assert counts(it) == (0, 1, 0) and "reported no result" in it.shown, it
assert counts(found(may_be_empty=True)) == (0, 0, 0)
END

law 'retries are counted by name' <<'END'
assert found("RETRIED a", "RETRIED b", "RETRIED a", "PASS c").retries == {"a": 2, "b": 1}
END

law 'one job computes while others build, at most four wait, and jobs with the same "apart" never overlap' <<'END'
jobs = [Job(f"c{i}", CLOCK, 9) for i in range(3)]
jobs += [Job(f"b{i}", CLOCK, 9, lane="builds") for i in range(4)]
jobs += [Job(f"w{i}", CLOCK, 9, lane="waits", apart="crowd" if i < 2 else "") for i in range(6)]
jobs += [Job("x", meets("x", "y"), 60, lane="waits"), Job("y", meets("y", "x"), 60, lane="waits")]
ended = run(*jobs)
assert len(ended) == 15 and all(result.status == 0 for result in ended), ended

def most(some):
    edges = sorted(edge for result in some for edge in zip(times(result), (1, -1)))
    at_once = peak = 0
    for _, step in edges:
        at_once += step
        peak = max(peak, at_once)
    return peak

lane = collections.defaultdict(list)
for result in ended:
    lane[result.job.lane].append(result)
    lane[result.job.apart].append(result)
assert most(lane["computes"]) == 1 and most(lane["crowd"]) == 1, lane
assert most(lane["waits"]) <= 4, lane
END

law 'two jobs compute when nothing is left to build, but not with one that must be alone' <<'END'
ended = run(Job("c0", meets("c0", "c2"), 60), Job("c1", CLOCK, 9, alone=True),
            Job("c2", meets("c2", "c0"), 60), Job("c3", CLOCK, 9))
assert all(result.status == 0 for result in ended), ended
spans = {result.job.name: times(result) for result in ended}
overlap = lambda a, b: spans[a][0] < spans[b][1] and spans[b][0] < spans[a][1]
assert not any(overlap("c1", other) for other in ("c0", "c2", "c3")), spans
END

law 'three jobs compute when nothing is left to build and none that waits' <<'END'
ended = run(Job("t0", meets("t0", "t2"), 60), Job("t1", meets("t1", "t2"), 60),
            Job("t2", meets("t2", "t0"), 60), Job("w", ["sleep", "0.2"], 9, lane="waits"))
assert all(result.status == 0 for result in ended), ended
assert ended[0].job.name == "w", ended
END

law 'a job waits for the job that builds it, and fails when that one fails' <<'END'
good = run(Job("later", CLOCK, 9, after="build"), Job("build", CLOCK, 9, lane="builds"))
assert [result.job.name for result in good] == ["build", "later"]
assert times(good[0])[1] <= times(good[1])[0]
bad = run(Job("later", CLOCK, 9, after="build"), Job("build", ["false"], 9, lane="builds"))
assert [result.status for result in bad] == [1, 1], bad
assert bad[1].said == "FAIL later: was not built\n", bad
END

law 'a job that runs out of time is ended, and its folder is removed' <<'END'
result, = run(Job("long", ["bash", "-c", "echo $WORK; sleep 60"], 1, lane="waits", script=True))
# On the busiest machine a second of a core takes 20 by the clock (limited.py, LEAST).
assert result.status == 124 and result.seconds < 40, result
assert not os.path.exists(result.said.split()[0]), result
END

law 'a job that runs out of time says what its processes wait for' <<'END'
result, = run(Job("long", ["bash", "-c", "echo last words; sleep 61 & wait"], 1, lane="waits"))
lines = result.said.splitlines()
assert lines[0] == "last words", lines
assert re.match(r"ran out of time after 1 s \(\d+ s by the clock\); its", lines[1]), lines
assert "bash -c" in lines[2] and lines[3].startswith("  ") and "sleep 61" in lines[3], lines
it = verdicts.judge("long", result.said, result.status, False)
assert it.failed == 1, it.shown
assert "FAIL long: ran out of time" in it.shown and "sleep 61" in it.shown, it.shown
END

law 'a job has more time while other processes want the cores' <<'END'
import subprocess
cores = len(os.sched_getaffinity(0))
busy = [subprocess.Popen(["nice", "bash", "-c", "while :; do :; done"]) for _ in range(4 * cores)]
try:
    result, = run(Job("slow", ["sleep", "2"], 1, lane="waits"))
finally:
    for one in busy:
        one.kill()
assert result.status == 0, result.said
END

law 'the share of a core that a job has is what its threads get, whatever others there are' <<'END'
import subprocess
import limited
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
SPINS = ["bash", "-c", "while :; do :; done"]
starved, other = subprocess.Popen(["nice", "-n", "19", *SPINS]), subprocess.Popen(SPINS)
try:
    share = limited.Share(starved)
    share.look()
    time.sleep(3)
    assert share.look()[0] < 0.2
finally:
    starved.kill()
    other.kill()
END

law 'what a job leaves running ends with it' <<'END'
result, = run(Job("left", ["bash", "-c", "sleep 62 & echo $!"], 9, lane="waits"))
pid, ends = result.said.strip(), time.monotonic() + 5
def is_there():
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False
while is_there():
    assert time.monotonic() < ends, "sleep 62 is still there"
    time.sleep(0.05)
END

law 'an mpirun that stays after its ranks have ended is ended, and no other, whatever names there are' <<'END'
import subprocess
import launchers
launchers.LOOK_S = 0.1
os.symlink(sys.executable, "mpirun")
STAYS = "import os, time; os.fork() or os._exit(1); time.sleep(60)"
WORKS = "import os, time; os.fork() or time.sleep(60); time.sleep(60)"
PATIENT = STAYS + "  # --mca odls_base_sigkill_timeout 60"
starts = [("ours", STAYS), ("theirs", STAYS), ("ours", WORKS), ("ours", PATIENT)]
stays, *others = [subprocess.Popen(["./mpirun", "-c", program], start_new_session=True,
                                   env={**os.environ, "LOCKSTEP": whose})
                  for whose, program in starts]
NAMELESS = r"import time; open('/proc/self/comm', 'wb').write(b'caf\xe9'); time.sleep(60)"
others.append(subprocess.Popen([sys.executable, "-c", NAMELESS], start_new_session=True))
time.sleep(0.5)
launchers.watch("ours")
assert stays.wait(10) == -9
time.sleep(0.5)
assert all(one.poll() is None for one in others), others
for one in others:
    os.killpg(one.pid, 9)
END

law 'continuous integration runs all of make test and every script that is not nightly, test-all these, too' <<'END'
import parts
os.chdir(pathlib.Path(os.environ["RUNNER"]).parents[2])

def of(tier, *named):
    wish = parts.Wish(pathlib.Path("build"), "", tier, False)
    return {job.name: job for job in parts.jobs_of(list(named) or wish.parts(), wish)}

def listed(path, begin):
    text = pathlib.Path(path).read_text().replace("\\\n", " ")
    return re.search(begin + r" tests/run --make([a-z0-9 \t]*)", text)[1].split()

test, ci = of("test"), of("ci", *listed(".ci/run", "TIER=ci exec"))
every = of("all", *listed("Makefile", r"TIER=all\b.*"))
assert test.keys() < ci.keys(), test.keys() - ci.keys()
assert ci.keys() - every.keys() <= {"format"}, ci.keys() - every.keys()
scripts = {path.stem: path.read_text() for folder in ("e2e", "cluster")
           for path in pathlib.Path("tests", folder).rglob("*.sh")}
left = {name for name in scripts if not {f"e2e/{name}", f"cluster/{name}"} & ci.keys()}
assert left and all("\n# nightly\n" in scripts[name] for name in left), left
left = {name for name in scripts if not {f"e2e/{name}", f"cluster/{name}"} & every.keys()}
assert not left, left
END

# ---- e2e.bash ------------------------------------------------------------------------------------
# script: runs the lines of standard input as a test script; what it reports must not be read as a
# verdict of this one.
script() {
  rm -rf inner && mkdir inner
  { echo "source '$support/e2e.bash'"; cat; } >inner.sh
  run env WORK="$PWD/inner" bash inner.sh
  said=$(sed 's/^/script: /' <<<"$said")
}

script <<'END'
echo 'rank 0: error: word' >run.log
begin() { until_it 2 test -e nothing; }
begin
echo "PASS after it"
END
((status == 1)) && says 'FAIL e2e.bash:[0-9]* < inner.sh:[0-9]* < inner.sh:[0-9]*: ' &&
  says 'rank 0: error: word' &&
  says 'this, which did not happen: test -e nothing' && says 'bash inner.sh' && ! says 'PASS'
verdict $? 'a script that waits in vain for what it needs fails there, with its place, its logs and its processes'

script <<'END'
happens 2 test -e nothing
verdict 0 'one'
verdict 0 'two'
END
says 'did not happen: test -e nothing' && says 'FAIL one' && says 'PASS two'
verdict $? \
  'a verdict fails when what was waited for before it did not happen, and only that verdict'

script <<'END'
broken() { echo "$unset"; verdict 0 'one'; }
fine() { verdict 0 'two'; }
at_once 2 broken fine
END
says 'unset: unbound variable' && says 'FAIL broken: it stopped in the middle' && says 'PASS two'
verdict $? 'one of several functions at once that stops in the middle has failed'

script <<'END'
mkdir empty
echo '{"kind":"start"}' >empty/metrics.jsonl
for of in tensors without_times; do
  for run in none empty; do
    cmp <($of $run) <($of $run)
    verdict $? "equal: $of $run"
    $of $run >$of.$run
    verdict $? "found: $of $run"
    same=$($of $run)
    [[ $same == "$($of $run)" ]]
    verdict $? "the same text: $of $run"
  done
done
END
(($(grep -c 'FAIL' <<<"$said") == 12))
verdict $? 'two runs are not equal where neither has a checkpoint, or a record'
