"""What tests/e2e/data/python_clients.sh asks of other programs about data/lockstep.py:

    python_clients.py COMMAND ARGUMENT...
"""
import sys
import time

import lockstep
import numpy as np


def regression(train, val):
    from sklearn.linear_model import LogisticRegression

    import probe

    began = time.monotonic()
    mine = probe.probe(train, val)
    print(f"probe: {time.monotonic() - began:.2f} s")
    (x, y, _), (x_val, y_val, _) = probe.read(train), probe.read(val)
    began = time.monotonic()
    theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=10000).fit(x.astype(np.float64), y)
    print(f"scikit-learn: {time.monotonic() - began:.2f} s")
    for name, features, labels in ("train_top1", x, y), ("val_top1", x_val, y_val):
        score = theirs.score(features, labels)
        print(f"{name}: {mine[name]:.4f}, scikit-learn {score:.4f}")
        assert abs(mine[name] - score) <= 0.001, name
    # The bias is unique up to what is added to all classes.
    away = np.abs(mine["weight"] - theirs.coef_).max()
    assert away <= 1e-2 * np.abs(theirs.coef_).max(), away


def jpegs(packed, pixels):
    rows, wanted = lockstep.Shards(packed, decode=True, check=True), lockstep.Shards(pixels)
    files = lockstep.Shards(packed)
    assert len(rows) == len(wanted) and files[0][0][:2] == b"\xff\xd8"
    for (image, label), (right, right_label) in zip(rows, wanted):
        assert label == right_label and image.shape == right.shape and image.dtype == np.uint8
        assert np.abs(image.astype(int) - right).max() <= 2, np.abs(image.astype(int) - right).max()


def row_and_digest(image):
    return image if isinstance(image, np.ndarray) else np.array([len(image), *image[-9:]])


def loader(folder):
    from torch.utils.data import DataLoader

    data = lockstep.Shards(folder, transform=row_and_digest)
    wanted = sorted((image.tobytes(), label) for image, label in data)
    for method in "fork", "spawn", "forkserver":
        batches = DataLoader(data, batch_size=32, shuffle=True, num_workers=4,
                             multiprocessing_context=method)
        found = sorted((image.numpy().tobytes(), int(label)) for images, labels in batches
                       for image, label in zip(images, labels))
        assert found == wanted, method


def network(name, checkpoint, folder, logits):
    import torch
    import torchvision

    state = {key: torch.from_numpy(value) for key, value in lockstep.state_dict(checkpoint).items()}
    classes = len(lockstep.about(checkpoint)["classes"])
    model = getattr(torchvision.models, name)(num_classes=classes)
    assert list(state) == list(model.state_dict())
    model.load_state_dict(state, strict=True)
    rows = lockstep.Shards(folder, normalised=True)
    with torch.no_grad():
        found = model.eval()(torch.from_numpy(np.stack([image for image, _ in rows]))).numpy()
    wanted = lockstep.predictions(logits)
    assert (wanted["label"] == rows.labels).all()
    away = np.abs(found - wanted["logits"]).max()
    print(f"{len(rows)} rows, logits differ by at most {away:.2e}")
    assert away <= 1e-4 * (1 + np.abs(found).max()), away


def safetensors(checkpoint, path):
    from safetensors.numpy import load_file

    found, wanted = lockstep.state_dict(checkpoint), load_file(path)
    assert set(found) == set(wanted)
    for key, value in wanted.items():
        assert found[key].dtype == value.dtype and found[key].shape == value.shape, key
        assert found[key].tobytes() == value.tobytes(), key


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
