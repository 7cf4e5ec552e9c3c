"""replay.py SEARCH APPEARED LEAST LOG...: replays what the workers of a search decided, from its
files alone, in the order in which results appeared, and compares it with their logs, which tell of
LEAST results at least."""

import collections
import json
import re
import sys

search, appeared, least, logs = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
plan = json.load(open(f"{search}/search.json"))
keep, epochs = plan["keep_one_of"], plan["epochs"]
results = [{} for _ in epochs]  # score by trial
due = [set() for _ in epochs]   # all that were ever among the best of the rung below


def best(rung, settled):
    order = sorted(results[rung], key=lambda trial: (-results[rung][trial], trial))
    return order[:max(len(order) // keep, 1 if settled else 0)]


def settled_ones():
    expected = set(range(plan["trials"]))
    for rung in range(len(epochs)):
        settled = expected <= set(results[rung])
        yield settled
        expected = set(best(rung, settled)) if settled else expected | {None}


seen = collections.Counter()
for name in map(str.strip, open(appeared)):
    if not re.fullmatch(r"\d+\.\d+\.json", name):
        continue  # being written
    seen[name] += 1
    leg = json.load(open(f"{search}/results/{name}"))
    trial, rung = leg["trial"], leg["rung"]
    assert name == f"{trial}.{rung}.json" and leg["end"] == "done", leg
    assert rung == 0 or trial in due[rung], f"{name}: it was never among the best"
    results[rung][trial] = leg["score"]
    for above, settled in enumerate(list(settled_ones())[:-1], 1):
        if plan["mode"] == "async" or settled:
            due[above] |= set(best(above - 1, settled))
last = [best(rung, settled) for rung, settled in enumerate(settled_ones())]
assert max(seen.values()) == 1, seen.most_common(3)
assert set(results[0]) == set(range(plan["trials"])), "a trial is lost"
for rung in range(1, len(epochs)):
    # Others were among the best only until more results came.
    lost = set(last[rung - 1]) - set(results[rung])
    assert not lost, f"rung {rung}: {lost}"

told = collections.Counter()
for log in logs:
    for trial, epoch, score in re.findall(r"^trial (\d+), epoch (\d+): top-1 (\S+)",
                                          open(log).read(), re.M):
        rung = epochs.index(int(epoch))
        told[f"{trial}.{rung}.json"] += 1
        assert f"{results[rung][int(trial)]:.4f}" == score, (log, trial, epoch)
assert max(told.values()) == 1, told.most_common(3)
assert least <= len(told) <= len(seen), (len(told), len(seen))
print(f"{len(seen)} results, {len(told)} of them told")
