"""compare_runs.py RUN OTHER STEPS LOSSES WEIGHTS: how far two runs are apart after some steps.

Prints the largest relative difference of a step's loss, and the largest difference of a weight. The
status is 1 where one is above its limit, is not a number, or where there is nothing to compare."""

import json
import sys

import h5py
import numpy as np


def losses(run, steps):
    with open(f"{run}/metrics.jsonl") as file:
        records = [json.loads(line) for line in file]
    return {r["step"]: r["loss"] for r in records if r.get("kind", r.get("type")) == "step"
            and r["step"] <= steps}


def weights(run, steps):
    found = {}
    with h5py.File(f"{run}/checkpoints/step-{steps:08d}.h5") as file:
        file["weights"].visititems(
            lambda name, what: found.update({name: what[()].astype(float)})
            if isinstance(what, h5py.Dataset) else None)
    return found


run, other, steps, most_loss, most_weight = sys.argv[1:]
steps = int(steps)
one, two = losses(run, steps), losses(other, steps)
assert len(one) == steps and one.keys() == two.keys(), "losses of the steps"
loss = max(abs(one[step] - two[step]) / abs(one[step]) for step in one)
a, b = weights(run, steps), weights(other, steps)
assert len(a) > 10 and a.keys() == b.keys(), "weights"
weight = max(np.abs(a[name] - b[name]).max() for name in a)
same = sum((a[name] == b[name]).all() for name in a)
print(f"losses within {loss:.2g}, weights within {weight:.2g}; {same} of {len(a)} tensors are equal")
sys.exit(not (loss <= float(most_loss) and weight <= float(most_weight)))
