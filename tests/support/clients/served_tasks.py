"""served_tasks.py AT: asks the server there for the rows of delivered.py's files, as numbers, and
compares with what `predict` has written to of-NAME/predictions.h5. Plain HTTP."""

import json
import sys
import urllib.error
import urllib.request

import numpy as np

from delivered import TYPES, asked_rows

at = sys.argv[1]


def ask(path, body=None, **headers):
    request = urllib.request.Request(at + path, body, headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


def infer(name, tensor, binary=b"", **more):
    text = json.dumps({"inputs": [{"name": "images", **tensor}], **more}).encode()
    length = {"Inference-Header-Content-Length": str(len(text))} if binary else {}
    status, body, headers = ask(f"/v2/models/{name}/infer", text + binary, **length)
    end = int(headers.get("Inference-Header-Content-Length", len(body)))
    return status, json.loads(body[:end])


def described(images, datatype=None, **more):
    kind = datatype or TYPES[images.dtype.str[1:]]
    return {"datatype": kind, "shape": list(images.shape), **more}


def refused(name, tensor, why, binary=b""):
    status, said = infer(name, tensor, binary)
    assert status == 400 and why in said["error"], (name, status, said)


def judge(name, said, wanted):
    outputs = {one["name"]: np.array(one["data"], "f4").reshape(one["shape"])
               for one in said["outputs"]}  # fmt: skip
    assert outputs["logits"].tobytes() == wanted["logits"].tobytes(), name
    if "values" in wanted:
        assert outputs["values"].tobytes() == wanted["values"].tobytes(), name
    elif "probabilities" in wanted:
        assert outputs["probabilities"].tobytes() == wanted["probabilities"].tobytes(), name
    else:
        assert np.allclose(outputs["probabilities"].sum(1), 1), name


for name in ("bytes", "holed", "wide", "signed", "half", "real", "single", "bent", "logged",
             "sunken"):  # fmt: skip
    images, kind, wanted = asked_rows(name)
    size = images.nbytes
    takes_files = kind == "UINT8" and images.shape[3] in (1, 3)
    about = json.loads(ask(f"/v2/models/{name}")[1])
    assert about["inputs"][0]["datatype"] == kind, about
    assert len(about["inputs"]) == 1 + takes_files, about
    assert [one["name"] for one in about["outputs"]] == [
        "logits", "values" if "values" in wanted else "probabilities"]  # fmt: skip
    config = json.loads(ask(f"/v2/models/{name}/config")[1])
    assert config["input"][0]["data_type"] == "TYPE_" + kind, config

    binary = described(images, parameters={"binary_data_size": size})
    status, said = infer(name, binary, images.tobytes())
    assert status == 200, said
    judge(name, said, wanted)
    if kind == "FP16":
        refused(name, described(images, data=images.tolist()), "FP16 comes as binary data alone")
    elif name not in ("real", "sunken"):  # JSON has no NaN
        status, said = infer(name, described(images, data=images.tolist()))
        assert status == 200, said
        judge(name, said, wanted)
    other = "FP64" if kind == "UINT8" else "UINT8"
    refused(name, described(images, other, data=[1]), f"datatype {other} is not taken; {kind} is")
    if not takes_files:
        refused(name, {"datatype": "BYTES", "shape": [1], "data": ["a"]}, f"not taken; {kind} is")
    cut = described(images, parameters={"binary_data_size": size - 1})
    refused(name, cut, "but it has", images.tobytes()[1:])
    status, text, _ = ask(f"/v2/models/{name}/infer", images[0].tobytes(), Accept="text/plain",
                          **{"Inference-Header-Content-Length": "0"})  # fmt: skip
    assert status == 200 and len(text.splitlines()) == min(5, wanted["logits"].shape[1]), text
    if not takes_files:
        status, said, _ = ask(f"/v2/models/{name}/infer", b"\xff\xd8\xff",
                              **{"Inference-Header-Content-Length": "0"})  # fmt: skip
        assert status == 400 and b"the body has 3 bytes, but an image" in said, said

status, said = infer("bytes", described(np.zeros((1, 16, 16, 3), "u1"), data=[7] * 768),
                     outputs=[{"name": "probabilities",
                               "parameters": {"classification": 2}}])  # fmt: skip
assert status == 200 and len(said["outputs"][0]["data"]) == 2, said
status, said = infer("single", described(np.zeros((1, 16, 16, 12), "f4"), data=[7.5] * 3072),
                     outputs=[{"name": "values", "parameters": {"classification": 2}}])  # fmt: skip
assert status == 400 and "values have no classification" in said["error"], said
for name, number, why in ("single", np.nan, "row 1 has NaN (not a number) in channel 2"), (
    "real", np.inf, "row 1 has an infinite number in channel 2"):  # fmt: skip
    broken = np.zeros((2, 16, 16, 12), "f4")
    broken[1, 0, 0, 2] = number
    refused(name, described(broken, parameters={"binary_data_size": broken.nbytes}), why,
            broken.tobytes())  # fmt: skip
print("all answers are those of predict")
