"""onnx_clients.py CLIENT CHECKPOINT SHARD FIGURES FILE...: lets `onnx`, `onnxruntime` or `openvino`
read ONNX files of a checkpoint. The last two compute a shard's logits: compared with numpy's, in
double precision from the checkpoint, and their loss and top-1 with the figures of `lockstep eval`.
Prints the largest difference, as a share of what is allowed."""

import json
import pathlib
import runpy
import sys

import numpy as np


def check(path):
    import onnx

    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    assert model.ir_version == 7 and [one.version for one in model.opset_import] == [13]
    notes = {one.key: one.value for one in model.metadata_props}
    assert notes["producer"] == "lockstep" and len(json.loads(notes["classes"])) == 10, notes


def by_onnxruntime(path):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda images: session.run(["logits", "probabilities"], {"images": images})


def by_openvino(path):
    import openvino

    core = openvino.Core()
    core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    model = core.compile_model(core.read_model(path), "CPU")

    def run(images):
        found = model({"images": images})
        return found["logits"], found["probabilities"]

    return run


def compare(run, path, images, labels, mean, stddev, want, figures):
    if "float" in path:
        images = ((images / 255 - mean) / stddev).astype(np.float32).transpose(0, 3, 1, 2)
        images = np.ascontiguousarray(images)
    logits, probabilities = (np.concatenate(part) for part in zip(*(
        run(images[first : first + 32]) for first in range(0, len(images), 32)
    )))  # fmt: skip
    logits = logits.astype(np.float64)
    found = logits - logits.max(1, keepdims=True)
    share = (np.abs(found - want) / (1e-4 + 1e-4 * np.abs(want))).max()
    assert share <= 1, (path, share)
    assert (found.argmax(1) == want.argmax(1)).all(), path
    assert np.abs(probabilities - np.exp(want) / np.exp(want).sum(1, keepdims=True)).max() < 1e-4
    loss = (np.log(np.exp(found).sum(1)) - found[np.arange(len(labels)), labels]).mean()
    assert abs(loss - figures["loss"]) <= 1e-4 * figures["loss"], (path, loss, figures["loss"])
    top1 = (found.argmax(1) == labels).mean()
    assert abs(top1 - figures["top1"]) < 1e-9, (path, top1, figures["top1"])
    print(f"{path}: {share:.3f}")


client, checkpoint, shard, figures, *paths = sys.argv[1:]
if client == "onnx":
    for path in paths:
        check(path)
else:
    import h5py

    sys.argv = ["run_network.py", checkpoint, shard]
    numpy_has = runpy.run_path(str(pathlib.Path(__file__).parents[1] / "run_network.py"))
    with h5py.File(checkpoint) as file:
        mean, stddev = file.attrs["mean"], file.attrs["stddev"]
    for path in paths:
        compare(
            {"onnxruntime": by_onnxruntime, "openvino": by_openvino}[client](path),
            path,
            numpy_has["images"],
            numpy_has["labels"],
            mean,
            stddev,
            numpy_has["found"],
            json.load(open(figures)),
        )
