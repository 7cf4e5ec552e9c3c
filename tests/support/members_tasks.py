"""What members_tasks.sh checks by numpy: members_tasks.py FUNCTION ARGUMENT..."""

import csv
import json
import sys
import urllib.request

import h5py
import numpy as np

ROWS, NAMES = 288, ["red", "green", "blue", "white"]


def write():
    random = np.random.default_rng(1)
    images = random.integers(0, 9000, (ROWS, 16, 16, 4), np.uint16)
    labels = (random.random((ROWS, 4)) < [0.5, 0.3, 0.1, 0.4]).astype("u1")
    images += (12000 * labels[:, None, None, :]).astype("u2")
    share = random.random((ROWS, 2))
    values = np.stack([101325 + 500 * share[:, 0], 0.01 * share[:, 1]], 1)
    glow = (random.normal(0, 0.3, (ROWS, 16, 16, 2)) + share[:, None, None]).astype("f4")

    def put(path, images, wanted, names, values=False):
        with h5py.File(path + ".h5", "w") as f:
            f["images"], f["targets" if values else "labels"] = images, wanted
            f["classes"] = names

    put("labels", images, labels, NAMES)
    put("values", glow, values, ["pressure", "rain"], True)
    put("half", glow[:100], values[:100] * [1, 30] + [700, 1], ["pressure", "rain"], True)
    put("small", glow, values[:, :1], ["pressure"], True)
    put("classes", images, labels[:, 0].astype("i8"), ["c0", "c1"])
    put("labels-many", np.tile(images, (10, 1, 1, 1)), np.tile(labels, (10, 1)), NAMES)
    put("values-many", np.tile(glow, (10, 1, 1, 1)), np.tile(values, (10, 1)),
        ["pressure", "rain"], True)  # fmt: skip


def said(out):
    """What the CSV of a folder says of each row and output; its HDF5 says the same."""
    table = list(csv.reader(open(out + "/predictions.csv")))
    places = [i for i, name in enumerate(table[0]) if name.startswith(("probability_", "value_"))]
    numbers = np.array([[float(row[i]) for i in places] for row in table[1:]])
    with h5py.File(out + "/predictions.h5") as f:
        stored = f["value" if "value" in f else "probability"][()].reshape(numbers.shape)
    assert np.array_equal(stored, numbers.astype("f4")) and np.isfinite(numbers).all()
    assert [int(row[0]) for row in table[1:]] == list(range(len(numbers)))
    return numbers


def truth(name):
    with h5py.File(name + ".h5") as f:
        return f["labels" if "labels" in f else "targets"][()].astype("f8")


def average_precision(applies, scores):
    """Of scikit-learn: the sum of (recall step) * precision, equal scores together."""
    order = np.argsort(-scores, kind="stable")
    ends = np.r_[np.flatnonzero(np.diff(scores[order])), len(scores) - 1]
    right = np.cumsum(applies[order])[ends]
    return np.sum(np.diff(np.r_[0, right]) / right[-1] * right / (ends + 1))


def area(applies, scores):
    """Below the ROC curve: the share of pairs in order, a tie counts half."""
    on, off = scores[applies == 1][:, None], scores[applies == 0][None]
    return ((on > off).mean() + (on == off).mean() / 2) if on.size * off.size else np.nan


def close(a, b, allowed):
    assert abs(a - b) <= allowed, (a, b)


def scored(kind, out, report, allowed=1e-6):
    """The scores of an `eval`, by numpy from the CSV. Its numbers are float32s."""
    report = json.load(open(report))
    numbers, wanted = said(out), truth(kind + "-many" if out.startswith("parts-") else kind)
    assert report["rows"] == len(numbers)
    of, scores = report[kind], report["scores"]
    if kind == "labels":
        yes, on = numbers > 0.5, wanted == 1
        for k, one in enumerate(of):
            assert one["right"] == (yes & on)[:, k].sum(), one
            assert one["wrong"] == (yes & ~on)[:, k].sum(), one
            close(one["AP"], average_precision(wanted[:, k], numbers[:, k]), allowed)
            close(one["AUC"], area(wanted[:, k], numbers[:, k]), allowed)
        close(scores["mAP"], np.mean([one["AP"] for one in of]), 1e-9)
        both, some = (yes & on).sum(), yes.sum() + on.sum()
        close(scores["micro-F1"], 2 * both / some, 1e-9)
        close(scores["exact-match"], (yes == on).all(1).mean(), 1e-9)
    else:
        error = numbers - wanted.astype("f4")
        for k, one in enumerate(of):
            unit = wanted[:, k].std()
            close(one["RMSE"], np.sqrt((error[:, k] ** 2).mean()), 1e-4 * unit)
            close(one["MAE"], np.abs(error[:, k]).mean(), 1e-4 * unit)
            close(one["bias"], error[:, k].mean(), 1e-4 * unit)
            close(one["R2"], 1 - (error[:, k] ** 2).mean() / unit**2, 1e-3)


def mean(kind, out, *members):
    """The ensemble's predictions are the mean of its members'; and its eval judges these."""
    ensemble, each = said(out), np.stack([said(member) for member in members])
    unit = 1 if kind == "labels" else truth(kind).std(0)
    off = np.abs(ensemble - each.mean(0)) / unit
    assert off.max() < 1e-6 + 2 * np.max(np.spacing(np.abs(each).astype("f4")) / unit), off.max()
    spread = (np.abs(each - each[0]) / unit).max()
    assert spread > 0.05, spread  # the members do differ
    scored(kind, out, out + ".json")


def same(a, b):
    with h5py.File(a + "/predictions.h5") as one, h5py.File(b + "/predictions.h5") as other:
        for name in one:
            assert one[name][()].tobytes() == other[name][()].tobytes(), name


def scores(a, b):
    one, other = (json.load(open(name + ".json")) for name in (a, b))
    assert one["scores"] == other["scores"] and one["labels"] == other["labels"]
    assert one["checkpoint"] == "a.h5 + b.h5 + c.h5", one["checkpoint"]


def served(at, model, data):
    wanted = said(model)
    with h5py.File(data + ".h5") as f:
        images = f["images"][5:14]
    kind = {"u2": "UINT16", "f4": "FP32"}[images.dtype.str[1:]]
    tensor = {"name": "images", "datatype": kind, "shape": list(images.shape),
              "data": images.tolist()}  # fmt: skip
    body = json.dumps({"inputs": [tensor]}).encode()
    with urllib.request.urlopen(f"{at}/v2/models/{model}/infer", body) as answer:
        outputs = {one["name"]: one for one in json.load(answer)["outputs"]}
    got = outputs["values" if data == "values" else "probabilities"]
    got = np.array(got["data"], "f4").reshape(got["shape"])
    unit = 1 if data == "labels" else truth(data).std(0)
    off = np.abs(got - wanted[5:14]) / unit  # its batches are others than predict's
    assert off.max() < 1e-5 + np.max(np.spacing(np.abs(got)) / unit), off.max()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
