"""named_endings.py kinds FILE | healthy FILE: whether lockstep why names how runs ended.

kinds: the file's lines are KIND=RUN, how a run really ended. Prints the F1 of each kind, and what
was named wrongly; the mean of the F1 must be 0.97, over 60 runs of 12 kinds.
healthy: the lines are KIND=RUN, too, and each must be named exactly so.
"""
import collections
import json
import os
import subprocess
import sys


def why(run):
    said = subprocess.run([os.environ["LOCKSTEP"], "why", "--json", run], capture_output=True,
                          text=True)
    return json.loads(said.stdout) if said.returncode == 0 else {"ending": said.stderr}


what, path = sys.argv[1:]
hits, made, named = (collections.Counter() for _ in range(3))
for line in open(path):
    kind, run = line.rstrip().split("=")
    found = why(run)
    made[kind] += 1
    named[found["ending"]] += 1
    hits[kind] += kind == found["ending"]
    if kind != found["ending"]:
        print(f"{run}: {kind}, and why says {found}")
if what == "healthy":
    print(f"{hits.total()} of {made.total()} healthy runs are named as they are")
    sys.exit(not hits.total() == made.total() == 100)
f1 = {kind: 2 * hits[kind] / (made[kind] + named[kind]) for kind in made}
for kind in sorted(made):
    print(f"| {kind} | {made[kind]} | {hits[kind]} | {f1[kind]:.3f} |")
macro = sum(f1.values()) / len(f1)
print(f"macro-F1 {macro:.4f} of {made.total()} endings of {len(made)} kinds")
sys.exit(not (macro >= 0.97 and made.total() >= 60 and len(made) >= 12))
