"""delivered.py write: writes rows of each element, task and kind of no data, as NAME.h5: those of
delivered.sets, a line each: NAME TASK CLIP CURVE OPTION...; CLIP - means no limits
delivered.py compare NAME FILE.onnx TASK: what onnxruntime makes of these rows is what `predict` has
written to of-NAME/predictions.h5. Prints the largest difference, as a share of what is allowed."""

import sys

import h5py
import numpy as np

rows = 96
asked = slice(3, 9)  # of these rows, by clients
TYPES = {"u1": "UINT8", "u2": "UINT16", "i2": "INT16", "f2": "FP16", "f4": "FP32"}


def asked_rows(name):
    """Images, their datatype in requests, and what `predict` has said of them, by output."""
    with h5py.File(name + ".h5") as f, h5py.File(f"of-{name}/predictions.h5") as p:
        images = f["images"][asked]
        said = {"logits": p["logits"][()].reshape(rows, -1)[asked]}
        if "value" in p:
            said["values"] = p["value"][()].reshape(rows, -1)[asked]
        if "probability" in p:
            said["probabilities"] = p["probability"][asked]
    return images, TYPES[images.dtype.str[1:]], said


def write():
    random = np.random.default_rng(1)
    labels = (random.random((rows, 3)) < 0.4).astype("u1")
    share = random.random((rows, 2))
    values = np.stack([101325 + 500 * share[:, 0], 0.01 * share[:, 1]], 1)
    classes = random.integers(0, 2, rows)
    images = random.normal(100, 20, (rows, 16, 16, 12))
    images[..., :3] += 40 * labels[:, None, None]
    images[..., 3:5] += 60 * share[:, None, None]
    images[..., 5] += 50 * classes[:, None, None]
    holes = random.random(images.shape) < 0.1

    def rows_of(name, images, labels, task="labels", **attributes):
        with h5py.File(name + ".h5", "w") as f:
            f["images"], f["labels" if task == "labels" else "targets"] = images, labels
            f["images"].attrs.update(attributes)

    rows_of("bytes", images[..., :3].clip(0, 255).astype("u1"), labels)
    few = np.where(holes, 0, images.clip(0, 255))[..., 3:6]
    rows_of("holed", few.astype("u1"), values, "values")
    rows_of("wide", (images * 250).clip(0, 65535).astype("u2"), classes)
    filled = np.where(holes, -9999, images * 50)
    rows_of("signed", filled.astype("i2"), labels, _FillValue=np.int16(-9999))
    rows_of("half", (images[..., :5] / 100).astype("f2"), values, "values")
    rows_of("real", np.where(holes, np.nan, images / 1000).astype("f4"), labels)
    rows_of("single", images.astype("f4"), values[:, :1], "values")
    rows_of("bent", (images * 50).astype("i2"), labels)
    rows_of("logged", images[..., 3:6].clip(0, 255).astype("u1"), classes)
    rows_of("sunken", np.where(holes, np.nan, (images - 90) / 10).astype("f4"), labels)


def compare(name, path, task):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    said = "values" if task == "values" else "probabilities"
    assert [one.name for one in session.get_outputs()] == ["logits", said]
    with h5py.File(name + ".h5") as f, h5py.File(f"of-{name}/predictions.h5") as p:
        logits, found = (np.concatenate(part) for part in zip(*(
            session.run(None, {"images": f["images"][first : first + 32]})
            for first in range(0, rows, 32)
        )))  # fmt: skip
        of_rows = lambda column: p[column][()].reshape(rows, -1)  # noqa: E731
        shares = [np.abs(logits - of_rows("logits")).max() / 1e-4]
        if task == "values":
            units = f["targets"][()].std(0)
            said = of_rows("value")
            off = np.abs(found.astype("f8") - said) - np.spacing(np.abs(said))
            shares.append((off / (1e-4 * units)).max())
        elif task == "labels":
            shares.append(np.abs(found - of_rows("probability")).max() / 1e-4)
        else:
            likeliest = np.take_along_axis(found, of_rows("top_class").astype(int), 1)
            shares.append(np.abs(likeliest - of_rows("top_probability")).max() / 1e-4)
            assert np.allclose(found.sum(1), 1)
    print(f"{path}: {max(shares):.3f}")
    assert max(shares) <= 1, shares


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](*sys.argv[2:])
