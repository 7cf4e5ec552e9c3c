"""run_network.py CHECKPOINT SHARD: runs the network of a checkpoint on a shard of pixels, by numpy
alone and in double precision, and prints rows, loss and top-1 as JSON. What it knows of the network
is what the checkpoint says (data/CHECKPOINT.md). The pixels must have the input's size."""

import json
import sys

import h5py
import numpy as np


def windows(x, node, fill):
    """All windows of a value [rows, height, width, channels]: [rows, high, wide, kernel, kernel, channels]."""
    kernel, stride, padding = node["kernel"], node["stride"], node["padding"]
    x = np.pad(x, [(0, 0), (padding, padding), (padding, padding), (0, 0)], constant_values=fill)
    all_of_them = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (1, 2))
    return all_of_them[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3)


def batch_norm(x, node, of):
    scale = of("weight") / np.sqrt(of("running_var") + node["epsilon"])
    return (x - of("running_mean")) * scale + of("bias")


def avg_pool(x, node, of):
    stride, (rows, height, width, channels) = node["stride"], x.shape
    high, wide = -(-height // stride), -(-width // stride)
    x = np.pad(
        x,
        [(0, 0), (0, high * stride - height), (0, wide * stride - width), (0, 0)],
        constant_values=np.nan,
    )
    return np.nanmean(x.reshape(rows, high, stride, wide, stride, channels), (2, 4))


def subsample_pad(x, node, of):
    x = x[:, :: node["stride"], :: node["stride"]]
    new = node["channels"] - x.shape[3]
    return np.pad(x, [(0, 0), (0, 0), (0, 0), (new // 2, new - new // 2)])


OPS = {
    "conv": lambda x, node, of: np.einsum(
        "nhwklc,ockl->nhwo", windows(x, node, 0), of("weight"), optimize=True
    ),
    "batch_norm": batch_norm,
    "relu": lambda x, node, of: np.maximum(x, 0),
    "max_pool": lambda x, node, of: windows(x, node, -np.inf).max((3, 4)),
    "avg_pool": avg_pool,
    "subsample_pad": subsample_pad,
    "global_avg_pool": lambda x, node, of: x.mean((1, 2)),
    "linear": lambda x, node, of: x @ of("weight").T + (of("bias") if node["bias"] else 0),
}


def logits(checkpoint, images):
    with h5py.File(checkpoint) as file:
        network = json.loads(file["network"][()].tobytes())
        x = (images / 255 - file.attrs["mean"]) / file.attrs["stddev"]
        values = {"input": x.astype(np.float64)}
        for node in network["nodes"]:
            of = lambda what: file[f"weights/{node['name']}.{what}"][()].astype(
                np.float64
            )  # noqa: E731
            inputs = [values[name] for name in node.get("inputs", [])]
            if node["op"] == "add":
                values[node["name"]] = inputs[0] + inputs[1]
            elif node["op"] == "loss":
                return inputs[0]
            elif inputs:
                values[node["name"]] = OPS[node["op"]](inputs[0], node, of)


checkpoint, shard = sys.argv[1:]
with h5py.File(shard) as file:
    images, labels = file["images"][()], file["labels"][()]
found = logits(checkpoint, images)
right = np.arange(len(labels)), labels
found -= found.max(1, keepdims=True)
loss = (np.log(np.exp(found).sum(1)) - found[right]).mean()
print(json.dumps({"rows": len(labels), "loss": loss, "top1": (found.argmax(1) == labels).mean()}))
