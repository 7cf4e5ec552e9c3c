#!/usr/bin/env python3
"""Other programs' clients ask for the rows of delivered.py's files over gRPC, and compare with what
`predict` has written to of-NAME/predictions.h5:

  grpc_tasks.py triton|kserve PORT
"""
import asyncio
import sys

import numpy as np

from delivered import asked_rows
from grpc_clients import Triton, refused
from serve_clients import law, same

NAMES = "bytes", "holed", "wide", "signed", "half", "real", "single"
CONTENTS = {"UINT8": "uint_contents", "UINT16": "uint_contents", "INT16": "int_contents",
            "FP32": "fp32_contents"}  # fmt: skip


def all_same(outputs, wanted):
    return all(same(outputs[name], values) for name, values in wanted.items())


def triton_answers(triton, name):
    images, kind, wanted = asked_rows(name)
    about = triton.client.get_model_metadata(name)
    said = [one.name for one in about.outputs]
    law(about.inputs[0].datatype == kind and list(about.inputs[0].shape)[1:] ==
        list(images.shape[1:]) and said ==
        ["logits", "values" if "values" in wanted else "probabilities"],
        f"tritonclient.grpc reads of {name} that it takes {kind} and says {said[-1]}")
    tensor = triton.tensors.InferInput("images", list(images.shape), kind)
    tensor.set_data_from_numpy(images)
    answer = triton.client.infer(name, [tensor])
    law(all_same({one: answer.as_numpy(one) for one in wanted}, wanted),
        f"tritonclient.grpc gets predict's bits of {name} for raw {kind}")
    if kind == "FP16":
        law(refused("INVALID_ARGUMENT", "FP16, which 'raw_input_contents' takes",
                    lambda: triton.logits(triton.typed(images, kind, name, fp32_contents=[0.5]))),
            "FP16 in typed contents is an error that says what takes it")
    else:
        numbers = {CONTENTS[kind]: images.ravel().tolist()}
        law(same(triton.logits(triton.typed(images, kind, name, **numbers)), wanted["logits"]),
            f"typed contents of {kind} get predict's bits of {name}")
    other = "FP64" if kind == "UINT8" else "UINT8"
    wrong = triton.messages.ModelInferRequest(model_name=name)
    wrong.inputs.add(name="images", datatype=other, shape=list(images.shape))
    wrong.raw_input_contents.append(images.tobytes())
    law(refused("INVALID_ARGUMENT", f"the datatype {other} is not taken; {kind} is",
                lambda: triton.logits(wrong)), f"{name} refuses {other}, and says {kind}")


def triton_errors(triton):
    wide, _, _ = asked_rows("wide")
    signed, _, _ = asked_rows("signed")
    single, _, _ = asked_rows("single")
    broken = single[:2].copy()
    broken[1, 0, 0, 2] = np.nan
    tensor = triton.tensors.InferInput("images", list(broken.shape), "FP32")
    tensor.set_data_from_numpy(broken)
    count = wide[:1].size
    law(refused("INVALID_ARGUMENT", "from 0 to 65535", lambda: triton.logits(
            triton.typed(wide[:1], "UINT16", "wide", uint_contents=[65536] * count))) and
        refused("INVALID_ARGUMENT", "from -32768 to 32767", lambda: triton.logits(
            triton.typed(signed[:1], "INT16", "signed", int_contents=[-32769] * count))) and
        refused("INVALID_ARGUMENT", "values of another type than UINT16", lambda: triton.logits(
            triton.typed(wide[:1], "UINT16", "wide", int_contents=[1] * count))),
        "numbers that do not fit, or of another type, are INVALID_ARGUMENT")
    law(refused("INVALID_ARGUMENT", "row 1 has NaN (not a number) in channel 2",
                lambda: triton.client.infer("single", [tensor])) and
        refused("INVALID_ARGUMENT", "values have no classification", lambda: triton.client.infer(
            "holed", [holed(triton)], outputs=triton.wanted("values", class_count=2))),
        "NaN, and a classification of values, are INVALID_ARGUMENT")


def holed(triton):
    images, kind, _ = asked_rows("holed")
    tensor = triton.tensors.InferInput("images", list(images.shape), kind)
    tensor.set_data_from_numpy(images)
    return tensor


def triton(port):
    server = Triton(port)
    for name in NAMES:
        triton_answers(server, name)
    triton_errors(server)


async def kserve(port):
    from kserve import InferenceGRPCClient, InferInput, InferRequest

    client = InferenceGRPCClient(f"127.0.0.1:{port}")
    for name in NAMES:
        images, kind, wanted = asked_rows(name)
        for binary in (True, False) if kind != "FP16" else (True,):
            tensor = InferInput("images", list(images.shape), kind)
            tensor.set_data_from_numpy(images, binary_data=binary)
            answer = await client.infer(InferRequest(name, [tensor]))
            got = {one.name: one.as_numpy().reshape(wanted[one.name].shape)
                   for one in answer.outputs if one.name in wanted}  # fmt: skip
            law(all_same(got, wanted), f"kserve's client of gRPC gets predict's bits of {name} for "
                f"{'raw' if binary else 'typed'} {kind}")  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "triton":
        triton(sys.argv[2])
    else:
        asyncio.run(kserve(sys.argv[2]))
