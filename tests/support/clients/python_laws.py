"""What tests/e2e/data/python_file.sh asserts about data/lockstep.py and data/probe.py, with numpy
and h5py alone:

    python_laws.py LAW ARGUMENT...
"""
import glob
import json
import multiprocessing
import os
import pathlib
import pickle
import random
import shutil
import sys
import tempfile
import threading

import h5py
import lockstep
import numpy as np
import probe


def digest(data, rows):
    """Sum over rows, whatever their order; `data` is opened, or comes as a pickle."""
    return sum(int(np.frombuffer(bytes(image), np.uint8).sum()) * (label + 1) * (row + 1)
               for row in rows for image, label in [data[row]])


def rows(folder, predicted=None):
    data, at = lockstep.Shards(folder, check=True), 0
    for path in sorted(glob.glob(folder + "/*.h5")):
        with h5py.File(path) as file:
            for row, label in enumerate(file["labels"]):
                image = data[at][0]
                if "images" in file:
                    assert image.shape == (8, 8, 3)
                    assert (image == file["images"][row]).all(), (path, row)
                else:
                    begin, end = file["offsets"][row:row + 2]
                    assert image == file["jpegs"][begin:end].tobytes(), (path, row)
                assert type(data[at][1]) is int and data[at][1] == label == data.labels[at]
                at += 1
            classes = [name.decode() for name in file["classes"]]
            assert data.classes == classes and (data.mean == file.attrs["mean"]).all()
    assert at == len(data) == len(list(data)) and data[-1][1] == data[at - 1][1] == data.labels[-1]
    if predicted:
        assert (lockstep.predictions(predicted)["label"] == data.labels).all()
        image, plain = lockstep.Shards(folder, normalised=True)[5][0], data[5][0]
        wanted = (plain / 255 - data.mean) / data.stddev
        assert image.dtype == np.float32 and np.abs(image.transpose(1, 2, 0) - wanted).max() < 1e-6


def processes(folder):
    data = lockstep.Shards(folder, check=True)
    parts = [range(first, len(data), 4) for first in range(4)]
    wanted = [digest(data, part) for part in parts]  # so that this process has the files open
    for method in "fork", "spawn", "forkserver":
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.starmap(digest, [(data, part) for part in parts]) == wanted, method
    assert digest(pickle.loads(pickle.dumps(data)), parts[1]) == wanted[1]


def threads(folder):
    data, found = lockstep.Shards(folder), [0] * 8
    wanted = digest(data, range(len(data)))
    data.close()

    def read(place):
        found[place] = digest(data, random.Random(place).sample(range(len(data)), len(data)))

    readers = [threading.Thread(target=read, args=(place,)) for place in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert found == [wanted] * 8


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def resident_kb():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1])


def reads(folder, count):
    before = descriptors()
    data, order = lockstep.Shards(folder), random.Random(1)
    files = len(glob.glob(folder + "/*.h5"))
    wanted = [(image.tobytes(), label) for image, label in data]
    kb, opened = resident_kb(), descriptors()
    assert opened == before + files, (before, opened)
    for _ in range(int(count)):
        row = order.randrange(len(data))
        image, label = data[row]
        assert (image.tobytes(), label) == wanted[row], row
    assert descriptors() == opened and resident_kb() < kb + 2048, (kb, resident_kb())
    data.close()
    assert descriptors() == before
    assert data[0][1] == wanted[0][1] and descriptors() == before + 1
    del data
    assert descriptors() == before


def safetensors(path):
    """{name: array} by the format's description alone."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__")
    types = {"F32": np.float32, "I64": np.int64}
    return {name: np.frombuffer(data[slice(*one["data_offsets"])], types[one["dtype"]]).reshape(
        one["shape"]) for name, one in header.items()}


def weights(model, exported, average=""):
    found, wanted = lockstep.state_dict(model, bool(average)), safetensors(exported)
    assert set(found) == set(wanted) and len(found) == 116, set(found) ^ set(wanted)
    for name, values in wanted.items():
        assert found[name].dtype == values.dtype and found[name].shape == values.shape, name
        assert found[name].tobytes() == values.tobytes(), name
    names = list(found)
    assert names[:3] == ["conv1.weight", "bn1.weight", "bn1.bias"] and names[-1] == "fc.bias", names
    about = lockstep.about(model)
    assert about["network"]["name"] == "resnet20" and about["height"] == 8, about
    assert len(about["classes"]) == 10 and about["mean"].shape == (3,), about


def same(found, wanted):
    missing = wanted is None or wanted != wanted
    return found != found if missing and isinstance(found, float) else found == wanted


def records(run):
    whole = pathlib.Path(run, "metrics.jsonl").read_bytes()
    lines = [json.loads(line) for line in whole.splitlines()]
    for cut in b"", b'{"kind":"step","step":':
        pathlib.Path("cut.jsonl").write_bytes(whole + cut)
        found = lockstep.metrics("cut.jsonl")
        assert set(found) == {line["kind"] for line in lines}
        for kind, fields in found.items():
            records = [line for line in lines if line["kind"] == kind]
            for name, values in fields.items():
                outer, _, inner = name.partition(".")
                assert len(values) == len(records), name
                for value, record in zip(values, records):
                    one = record.get(outer)
                    assert same(value, one[inner] if inner else one), (kind, name, value, one)
    steps = lockstep.metrics(run)["step"]
    assert steps["step"].tolist() == list(range(1, 11)) and steps["loss"].dtype == np.float64
    assert lockstep.metrics(run)["ranks"]["data.max_ms"].dtype == np.float64


def predictions(folder):
    found = lockstep.predictions(folder)
    with h5py.File(folder + "/predictions.h5") as file:
        assert set(found) == set(file)
        for name, values in found.items():
            if name == "classes":
                assert values.tolist() == [one.decode() for one in file[name]]
            else:
                assert (values == file[name][()]).all() and values.dtype == file[name].dtype, name
    name = b"K\xe4se.png"  # not UTF-8, as a file's name may be
    with tempfile.TemporaryDirectory() as odd:
        with h5py.File(odd + "/predictions.h5", "w") as file:
            file.create_dataset("name", data=[name], dtype=h5py.string_dtype("utf-8", len(name)))
        assert os.fsencode(lockstep.predictions(odd)["name"][0]) == name


def write_shards(folder, to):
    train = lockstep.Shards(folder + "/train")
    for split, like in ("train", None), ("val", train):
        data = lockstep.Shards(f"{folder}/{split}")
        images, labels = np.stack([image for image, _ in data]), data.labels
        paths = lockstep.write_shards(f"{to}/{split}", images, labels, data.classes, like=like,
                                      rows_per_shard=100)
        mine = lockstep.Shards(f"{to}/{split}", check=True)
        there = sorted(os.listdir(f"{to}/{split}"))
        assert [os.path.basename(path) for path in paths] == there
        assert len(paths) == -(-len(data) // 100) and mine.classes == data.classes
        assert all((a[0] == b[0]).all() and a[1] == b[1] for a, b in zip(mine, data))
        assert (mine.mean == train.mean).all() and (mine.stddev == train.stddev).all(), mine.stddev
    large = np.random.default_rng(1).integers(0, 256, (700, 5, 3), np.uint8)
    lockstep.write_shards("grey", large, [0] * 700, ["one"], rows_per_shard=300)
    data = lockstep.Shards("grey", check=True)
    assert data.shape == (5, 3, 1) and (np.stack([one for one, _ in data])[..., 0] == large).all()


def relabel(folder, to, like=None):
    """The same images, with classes of other names in another order."""
    data, like = lockstep.Shards(folder), like and lockstep.Shards(like)
    names = [f"no {name}" for name in reversed(data.classes)]
    lockstep.write_shards(to, np.stack([image for image, _ in data]),
                          len(names) - 1 - data.labels, names, like=like)


def flip(folder):
    with h5py.File(folder + "/shard-00000-of-00003.h5", "r+") as file:
        file["images"][7, 1, 2, 0] ^= 1


def refusal(work):
    """What its BadFile says."""
    try:
        work()
    except lockstep.BadFile as error:
        return str(error)
    raise AssertionError("there was no error")


def refuses(pixels, jpegs, checkpoint):
    assert refusal(lambda: lockstep.Shards("none")).startswith("none: ")
    pathlib.Path("text.h5").write_text("text")
    for work in lockstep.Shards, lockstep.state_dict, lockstep.about, lockstep.predictions:
        assert refusal(lambda: work("text.h5")).startswith("text.h5: "), work
        assert refusal(lambda: work("none.h5")).startswith("none.h5: "), work
    pathlib.Path("bad.jsonl").write_text('{"kind":"step","step":1}\nno JSON\n')
    assert refusal(lambda: lockstep.metrics("bad.jsonl")).startswith("bad.jsonl: line 2: ")
    assert refusal(lambda: lockstep.Shards(checkpoint)).startswith(checkpoint)

    def broken(change, source=pixels):
        shutil.rmtree("broken", ignore_errors=True)
        shutil.copytree(source, "broken")
        path = sorted(glob.glob("broken/*.h5"))[1]
        with h5py.File(path, "r+") as file:
            change(file)
        said = refusal(lambda: list(lockstep.Shards("broken", check=True)))
        assert said.startswith(path + ": "), said
        return said

    def replace(name, values):
        def change(file):
            del file[name]
            file[name] = values
        return change

    assert "labels" in broken(lambda file: file.pop("labels"))
    assert "version" in broken(lambda file: file.attrs.pop("format_version"))
    assert "lockstep-shard 4" in broken(lambda file: file.attrs.update(format_version=4))
    assert "'targets' doesn't exist" in broken(
        lambda file: file.attrs.update(format_version=3, task="labels"))
    assert "task boxes" in broken(lambda file: file.attrs.update(format_version=3, task="boxes"))
    assert "differs from broken/" in broken(lambda file: file.attrs.update(mean=np.zeros(3, "f4")))
    assert "do not fit" in broken(replace("labels", np.zeros(7, np.int32)))
    assert "do not fit" in broken(replace("labels", np.full(100, 10, np.int32)))
    assert "do not fit" in broken(replace("offsets", np.zeros(41, np.uint64)), jpegs)

    def chunked(file):
        images = file.pop("images")[()]
        file.create_dataset("images", data=images, chunks=(1, 8, 8, 3))

    assert "one piece" in broken(chunked)
    assert "row 0 is damaged" in broken(lambda file: file["crc32c"].__setitem__(0, 1))
    shutil.rmtree("broken")
    shutil.copytree(pixels, "broken")
    data, path = lockstep.Shards("broken"), sorted(glob.glob("broken/*.h5"))[2]
    os.truncate(path, os.path.getsize(path) // 2)
    assert refusal(lambda: list(data)).startswith(path + ": it is cut off in row ")
    os.unlink(path)
    gone = os.path.basename(path)
    assert refusal(lambda: lockstep.Shards("broken")).startswith(f"broken: {gone} is missing")
    assert 0 < len(lockstep.Shards("broken/*.h5")) < len(data)
    with h5py.File("own.h5", "w") as file:
        file["images"] = np.zeros((4, 2, 2, 3), np.uint8)
    assert "pack --repack" in refusal(lambda: lockstep.Shards("own.h5"))
    whole = bytearray(pathlib.Path(checkpoint).read_bytes())
    whole[-1] ^= 1
    pathlib.Path("flipped.h5").write_bytes(whole)
    assert refusal(lambda: lockstep.state_dict("flipped.h5")).startswith("flipped.h5: it is torn")
    refuses_arrays()


def refuses_arrays():
    images, labels = np.zeros((4, 2, 2, 3), np.uint8), [0, 1, 0, 1]
    images[0] = 9
    for change, words in (
            ({"images": images / 255}, "float64"), ({"images": images[0, 0]}, "uint8 (2, 3)"),
            ({"labels": [0, 1, 2, 0]}, "from 0 to 1"), ({"labels": [0, 1]}, "4 whole numbers"),
            ({"labels": [0, -1, 0, 1]}, "from 0 to 1"), ({"labels": [0.5] * 4}, "whole numbers"),
            ({"images": images * 0}, "one value only"),
            ({"images": images[..., :1], "like": "small/train"}, "channels are not those"),
            ({"like": "small/train"}, "classes or channels"),
            ({"like": ["small/train"]}, "like=Shards("),
            ({"images": np.zeros((4, 3, 8, 8), np.uint8)}, ".transpose(0, 2, 3, 1)"),
            ({"images": np.zeros((4, 12, 120, 120), np.uint8)}, ".transpose(0, 2, 3, 1)"),
            ({"images": np.where(images, np.nan, 1).astype("f4")}, "NaN or infinite"),
            ({"channels": ["red", "green"]}, "2 names of 3 channels"),
            ({"classes": ["a", object()]}, "")):
        told = {"images": images, "labels": labels, "classes": ["a", "b"], **change}
        if isinstance(told.get("like"), str):
            told["like"] = lockstep.Shards(told["like"])
        try:
            lockstep.write_shards("refused", **told)
            raise AssertionError(f"there was no error: {words}")
        except lockstep.BadFile as error:
            assert str(error).startswith("refused: ") and words in str(error), error
        except TypeError:
            assert not words
        assert not os.path.exists("refused") or not os.listdir("refused")
    lockstep.write_shards("there", images, labels, ["a", "b"])
    before = os.listdir("there")
    assert "has shards" in refusal(lambda: lockstep.write_shards("there", images, labels, "ab"))
    assert os.listdir("there") == before


def lowest(train, val):
    """Away from the solution the loss only grows, by as much as its penalty says at least."""
    found = lockstep.predictions(train)
    x, y, classes = found["features"].astype(np.float64), found["label"], len(found["classes"])
    result = probe.probe(train, val)
    again = probe.probe(train, val)
    assert result["weight"].tobytes() == again["weight"].tobytes()

    def loss(weight, bias):
        logits = x @ weight.T + bias
        top = logits.max(1)
        right = logits[np.arange(len(y)), y]
        return (np.log(np.exp(logits - top[:, None]).sum(1)) + top - right).sum() \
            + (weight ** 2).sum() / 2

    best, draw = loss(result["weight"], result["bias"]), np.random.default_rng(1)
    assert best < loss(0 * result["weight"], 0 * result["bias"])
    for size in 1e-2, 1e-1, 1:
        for _ in range(20):
            step = size * draw.normal(size=result["weight"].shape)
            grown = loss(result["weight"] + step, result["bias"]) - best
            assert grown > 0.4 * (step ** 2).sum(), (size, grown)
    share = (x @ result["weight"].T + result["bias"]).argmax(1) == y
    assert result["train_top1"] == share.mean() and 0 <= result["val_top1"] <= 1


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
