#!/usr/bin/env python3
"""What tests/e2e/model/clients.sh asks PyTorch, torchvision and safetensors:

    model_clients.py has MODULE...          the status is 0 if all can be imported
    model_clients.py make MODEL             writes MODEL.pth and the forms in which people save it
    model_clients.py same MODEL FILE...     each file holds MODEL's tensors, bit for bit
    model_clients.py onnx MODEL             writes MODEL by torch.onnx, with batch norms or folded
    model_clients.py weights MODEL FILE...  the same but for the counters of batches
    model_clients.py bytes FILE             the safetensors library writes the same bytes
    model_clients.py loss MODEL SHARD JSON  an evaluation's figures are torch's
    model_clients.py step MODEL SHARD METRICS NPZ RATE   and so are a step's loss and weights
"""
import importlib
import json
import sys


def has(*modules):
    for module in modules:
        importlib.import_module(module)


def untrained(name):
    """torchvision's, or timm's."""
    import torchvision

    if hasattr(torchvision.models, name):
        return getattr(torchvision.models, name)(num_classes=10)
    import timm

    return timm.create_model(name, num_classes=10)


def network(name):
    import torch

    torch.manual_seed(1)
    model = untrained(name)
    with torch.no_grad():
        for _ in range(3):  # statistics of batch norms, and their counters
            model(torch.randn(8, 3, 32, 32))
    return model.eval()


def make(name):
    import torch

    model = network(name)
    state = model.state_dict()
    torch.save(state, f"{name}.pth")
    torch.save(state, f"{name}-old.pth", _use_new_zipfile_serialization=False)
    wrapped = {"epoch": 3, "best": 0.5, "args": None,
               "state_dict": {f"module.{key}": value for key, value in state.items()}}
    torch.save(wrapped, f"{name}-nested.pth")
    turned = {key: value.to(memory_format=torch.channels_last) if value.dim() == 4 else value
              for key, value in state.items()}
    torch.save(turned, f"{name}-turned.pth")
    torch.save(dict(model.named_parameters()) | dict(model.named_buffers()), f"{name}-raw.pth")
    half = {key: value.half() if value.is_floating_point() else value
            for key, value in state.items()}
    torch.save(half, f"{name}-half.pth")
    torch.save({key: value.float() if value.is_floating_point() else value
                for key, value in half.items()}, f"{name}-rounded.pth")
    try:
        from safetensors.torch import save_file
    except ImportError:
        return
    save_file(state, f"{name}.safetensors", metadata={"format": "pt"})


def export_onnx(name):
    """By both exporters, with batch norms as they are and as parts of convolutions."""
    import torch

    forms = {
        "plain": {"dynamo": True, "optimize": False, "external_data": False},
        "optimised": {"dynamo": True, "external_data": False},
        "preserved": {"dynamo": False, "training": torch.onnx.TrainingMode.PRESERVE,
                      "do_constant_folding": False},
        "folded": {"dynamo": False},
    }
    for form, options in forms.items():
        images = (torch.randn(1, 3, 32, 32),)
        torch.onnx.export(network(name), images, f"{name}-{form}.onnx", **options)


def read(path):
    import numpy
    import torch

    if path.endswith(".safetensors"):
        from safetensors.numpy import load_file

        return {key: torch.from_numpy(value) for key, value in load_file(path).items()}
    if path.endswith(".npz"):
        return {key: torch.from_numpy(numpy.array(value))
                for key, value in numpy.load(path, mmap_mode="r").items()}
    try:
        return torch.load(path, weights_only=True)
    except TypeError:  # PyTorch before 1.13
        return torch.load(path)


def weights(name, *paths):
    same(name, *paths, counters=False)


def same(name, *paths, counters=True):
    import torch

    wanted = torch.load(f"{name}.pth")
    images = torch.rand(4, 3, 64, 64)
    logits = network(name)(images)
    for path in paths:
        found = read(path)
        assert list(found) == list(wanted) or not path.endswith(".pth"), path
        assert set(found) == set(wanted), (path, set(found) ^ set(wanted))
        for key, value in wanted.items():
            if not counters and key.endswith("num_batches_tracked"):
                continue
            assert found[key].dtype == value.dtype and found[key].shape == value.shape, (path, key)
            assert found[key].numpy().tobytes() == value.numpy().tobytes(), (path, key)
        model = untrained(name).eval()
        model.load_state_dict(found, strict=True)
        assert (model(images) - logits).abs().max() <= 1e-4, path


def same_bytes(path):
    from safetensors import safe_open
    from safetensors.numpy import load_file, save

    ours = open(path, "rb").read()
    with safe_open(path, "np") as file:
        notes = file.metadata()
    theirs = save(load_file(path), metadata=notes)
    # The library writes the notes in any order.
    length = int.from_bytes(theirs[:8], "little")
    header = json.loads(theirs[8:8 + length])
    header["__metadata__"] = dict(sorted(notes.items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    assert len(text) <= length < len(text) + 8, (len(text), length)
    assert ours == theirs[:8] + text.ljust(length) + theirs[8 + length:]


def rows_of(shard):
    """Normalised images [rows, 3, height, width], and labels."""
    import h5py
    import torch

    with h5py.File(shard) as file:
        images = torch.from_numpy(file["images"][()]).permute(0, 3, 1, 2) / 255
        labels = torch.from_numpy(file["labels"][()]).long()
        mean, deviation = (torch.from_numpy(file.attrs[key]).view(1, 3, 1, 1)
                           for key in ("mean", "stddev"))
    return (images - mean) / deviation, labels


def step(name, shard, metrics, after, rate):
    """One step of SGD, next to torch's in float64, of which torch's own in float32 differs, too."""
    import torch

    images, labels = rows_of(shard)
    losses, states = {}, {}
    for kind in torch.float64, torch.float32:
        model = network(name).train().to(kind)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        value = torch.nn.functional.cross_entropy(model(images.to(kind)), labels)
        value.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= float(rate) * parameter.grad
        losses[kind], states[kind] = value.item(), model.state_dict()
    record = next(one for one in map(json.loads, open(metrics)) if one["kind"] == "step")
    exact = losses[torch.float64]
    assert abs(record["loss"] - exact) <= 1e-6 * exact, (record["loss"], exact)
    # Sums of the squares: a ReLU that flips changes many of a small tensor's values.
    moved = ours = theirs = 0
    for key, value in read(after).items():
        if key.endswith("num_batches_tracked"):
            continue
        wanted = states[torch.float64][key]
        moved += float(((wanted - before[key].double()) ** 2).sum())
        ours += float(((value.double() - wanted) ** 2).sum())
        theirs += float(((states[torch.float32][key].double() - wanted) ** 2).sum())
    print(name, "off by", (ours / moved) ** 0.5, "of the step; torch's float32",
          (theirs / moved) ** 0.5)
    assert ours <= max(4 * theirs, 1e-8 * moved)


def loss(name, shard, figures):
    import torch

    images, labels = rows_of(shard)
    model = network(name)
    with torch.no_grad():
        logits = model(images)
    wanted = torch.nn.functional.cross_entropy(logits, labels).item()
    found = json.load(open(figures))
    assert abs(found["loss"] - wanted) <= 1e-4 * wanted, (found["loss"], wanted)
    right = (logits.argmax(1) == labels).double().mean().item()
    assert abs(found["top1"] - right) <= 1.5 / len(labels), (found["top1"], right)


if __name__ == "__main__":
    {"has": has, "make": make, "onnx": export_onnx, "same": same, "weights": weights,
     "bytes": same_bytes, "loss": loss, "step": step}[sys.argv[1]](*sys.argv[2:])
