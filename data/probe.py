"""A linear classifier on a network's features, in seconds, with numpy alone:

    lockstep predict MODEL TRAIN --features --out features/train
    lockstep predict MODEL VAL --features --out features/val
    python3 probe.py features/train features/val [--l2 1]

For shards of other classes than the network's: `predict --unlabelled`, and `probe.py ... --labels
TRAIN VAL`. It needs lockstep.py in the same folder. The same files give the same numbers.
"""
from __future__ import annotations

import argparse
from collections import deque
from typing import Any, Callable, Sequence

import numpy as np

import lockstep
from lockstep import Path

Function = Callable[[np.ndarray], tuple[float, np.ndarray]]


def _direction(gradient: np.ndarray, pairs: deque[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The inverse of an estimated second derivative, times -gradient (Nocedal and Wright, Numerical
    Optimization, algorithm 7.4). pairs: how far each of the last steps moved, and how much the
    gradient changed."""
    direction, factors = -gradient, []
    for moved, bent in reversed(pairs):
        factors.append(moved @ direction / (moved @ bent))
        direction -= factors[-1] * bent
    if not pairs:
        return direction / max(1.0, float(np.linalg.norm(gradient)))
    moved, bent = pairs[-1]
    direction *= (moved @ bent) / (bent @ bent)
    for (moved, bent), factor in zip(pairs, reversed(factors)):
        direction += (factor - bent @ direction / (moved @ bent)) * moved
    return direction


def minimum(function: Function, x: np.ndarray, tolerance: float, steps: int = 2000) -> np.ndarray:
    """Where a smooth, strictly convex function, which gives its value and gradient, is lowest: no
    part of the gradient exceeds the tolerance there. L-BFGS; each step is halved until it goes
    down."""
    value, gradient = function(x)
    pairs: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=10)
    for _ in range(steps):
        if np.abs(gradient).max() <= tolerance:
            break
        direction, size = _direction(gradient, pairs), 1.0
        slope = gradient @ direction
        while (found := function(x + size * direction))[0] > value + 1e-4 * size * slope:
            size /= 2
            if size < 1e-12:  # as low as its rounding shows
                return x
        moved, bent = size * direction, found[1] - gradient
        x, (value, gradient) = x + moved, found
        if moved @ bent > 0:
            pairs.append((moved, bent))
    return x


def fit(features: np.ndarray, labels: np.ndarray, classes: int,
        l2: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Multinomial logistic regression: weight [classes, features] and bias [classes] that minimise
    the sum of the rows' cross-entropies plus l2 / 2 times the sum of weight**2. scikit-learn's
    LogisticRegression has 1 / C for l2."""
    rows, width = features.shape
    x, right = features.astype(np.float64), (np.arange(rows), labels)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight, bias = flat[:-classes].reshape(classes, width), flat[-classes:]
        logits = x @ weight.T + bias
        logits -= logits.max(1, keepdims=True)
        share = np.exp(logits)
        total = share.sum(1, keepdims=True)
        value = np.log(total).sum() - logits[right].sum() + l2 / 2 * (weight ** 2).sum()
        share /= total
        share[right] -= 1
        slope = np.concatenate([(share.T @ x + l2 * weight).ravel(), share.sum(0)])
        return value / rows, slope / rows

    flat = minimum(loss, np.zeros(classes * (width + 1)), 1e-6)
    return flat[:-classes].reshape(classes, width), flat[-classes:]


def read(folder: Path, shards: Path | None = None) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Features, labels and class names of predictions, or labels and names of the shards that were
    predicted. Rows without a label are left out."""
    found = lockstep.predictions(folder)
    if shards is not None:
        rows = lockstep.Shards(shards)
        if len(rows) != len(found["row"]):
            raise lockstep.BadFile(f"{folder}: has {len(found['row'])} rows, {shards} {len(rows)}")
        found["label"], found["classes"] = rows.labels[found["row"].astype(int)], rows.classes
    if not {"features", "label"} <= set(found):
        raise lockstep.BadFile(f"{folder}: has no features with labels: predict --features")
    use = (found["label"] >= 0) & np.isfinite(found["features"]).all(1)
    if not use.any():
        raise lockstep.BadFile(f"{folder}: has no row with a label")
    return found["features"][use], found["label"][use], list(found["classes"])


def probe(train: Path, val: Path, l2: float = 1.0,
          labels: Sequence[Path | None] = (None, None)) -> dict[str, Any]:
    """Fits to one folder of predictions, and counts top-1 (0 to 1) in both:
    {"train_top1", "val_top1", "weight", "bias"}. `labels`: shards that have the labels of each."""
    (x, y, classes), (x_val, y_val, others) = map(read, (train, val), labels)
    if classes != others or x.shape[1] != x_val.shape[1]:
        raise lockstep.BadFile(f"{val}: has other classes or features than {train}")
    weight, bias = fit(x, y, len(classes), l2)

    def top1(features: np.ndarray, labels: np.ndarray) -> float:
        return float(((features @ weight.T + bias).argmax(1) == labels).mean())

    return {"train_top1": top1(x, y), "val_top1": top1(x_val, y_val), "weight": weight,
            "bias": bias}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="fits a linear classifier to features")
    parser.add_argument("train", help="a folder that `lockstep predict --features` wrote")
    parser.add_argument("val", help="the same of the validation rows")
    parser.add_argument("--l2", type=float, default=1.0, help="the penalty's strength, above 0 (1)")
    parser.add_argument("--labels", nargs=2, metavar=("TRAIN", "VAL"), default=(None, None),
                        help="shards whose labels to take, where the predictions have none")
    told = parser.parse_args()
    if told.l2 <= 0:
        parser.error("--l2 must be above 0")
    try:
        result = probe(told.train, told.val, told.l2, told.labels)
    except lockstep.BadFile as error:
        parser.exit(2, f"error: {error}\n")
    print(f"top-1: training {100 * result['train_top1']:.2f} %, "
          f"validation {100 * result['val_top1']:.2f} %")
