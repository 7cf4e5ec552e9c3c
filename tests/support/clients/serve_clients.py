#!/usr/bin/env python3
"""Other programs' clients ask `lockstep serve`:

  serve_clients.py triton|kserve PORT MODEL SHARD PREDICTIONS JPEG_SHARD JPEG_PREDICTIONS

Prints a line `PASS law` for each law that holds; ends at the first that does not. The server has
the model twice: MODEL, and MODEL-jpeg, whose images come as files.
"""
import asyncio
import sys

import h5py
import numpy as np


def rows_and_logits(shard, predictions):
    with h5py.File(shard) as file:
        images = file["images"][:]
    with h5py.File(predictions) as file:
        return images, file["logits"][:]


def same(got, want):
    return got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()


def law(holds, name):
    if not holds:
        sys.exit(f"FAIL {name}")
    print(f"PASS {name}")


def triton_errors(client, http, InferenceServerException, model, images):
    def refused(why, call):
        try:
            call()
        except InferenceServerException as error:
            return why in str(error)
        return False

    def infer(name=model, shape=(1, 32, 32, 3), input_name="images", **more):
        tensor = http.InferInput(input_name, list(shape), "UINT8")
        tensor.set_data_from_numpy(images[:1].reshape(shape))
        return client.infer(name, [tensor], **more)

    law(refused("no model 'none'", lambda: infer("none")) and
        refused("no version '77'", lambda: infer(model_version="77")) and
        refused("its shape is", lambda: infer(shape=(1, 3, 32, 32))) and
        refused("no input 'x'", lambda: infer(input_name="x")) and
        refused("no output 'y'", lambda: infer(outputs=[http.InferRequestedOutput("y")])),
        "tritonclient raises our sentence for an unknown model, version, shape, input and output")


def triton_files(client, http, name, shard, predictions):
    with h5py.File(shard) as file:
        ends = file["offsets"][:]
        jpegs = [file["jpegs"][ends[i] : ends[i + 1]].tobytes() for i in range(len(ends) - 1)]
    with h5py.File(predictions) as file:
        want = file["logits"][:]
    tensor = http.InferInput("image_bytes", [len(jpegs)], "BYTES")
    tensor.set_data_from_numpy(np.array(jpegs, dtype=object))
    answer = client.infer(name, [tensor])
    law(same(answer.as_numpy("logits"), want),
        "tritonclient sends JPEG files and gets predict's bits")


def triton(port, model, shard, predictions, jpegs, jpeg_predictions):
    import tritonclient.http as http
    from tritonclient.utils import InferenceServerException

    images, want = rows_and_logits(shard, predictions)
    client = http.InferenceServerClient(f"127.0.0.1:{port}", concurrency=4)
    law(client.is_server_live() and client.is_server_ready() and client.is_model_ready(model) and
        client.is_model_ready(model, "1"),
        "tritonclient sees that server and model live and are ready")
    config = client.get_model_config(model)
    about = client.get_model_metadata(model)
    law(config["max_batch_size"] >= 1 and config["input"][0]["dims"] == [32, 32, 3] and
        about["inputs"][0]["shape"] == [-1, 32, 32, 3] and
        "binary_tensor_data" in client.get_server_metadata()["extensions"] and
        model in [one["name"] for one in client.get_model_repository_index()],
        "tritonclient reads metadata, configuration and the repository's index")

    def ask(first, last, binary, **more):
        tensor = http.InferInput("images", [last - first, 32, 32, 3], "UINT8")
        tensor.set_data_from_numpy(images[first:last], binary_data=binary)
        return client.infer(model, [tensor], **more)

    outputs = [http.InferRequestedOutput("logits", binary_data=False),
               http.InferRequestedOutput("probabilities", binary_data=True)]
    mixed = ask(0, 3, False, outputs=outputs, request_id="seven")
    share = np.exp(want[:3] - want[:3].max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    law(all(same(ask(0, rows, binary).as_numpy("logits"), want[:rows])
            for rows in (1, 2, 17, 40) for binary in (True, False)),
        "tritonclient gets predict's bits for JSON and binary tensors of any number of rows")
    law(same(mixed.as_numpy("logits"), want[:3]) and mixed.get_response()["id"] == "seven" and
        np.abs(mixed.as_numpy("probabilities") - share).max() < 1e-6,
        "tritonclient gets one output as JSON and one as binary data")
    law(all(same(ask(0, 5, True, request_compression_algorithm=how,
                     response_compression_algorithm=how).as_numpy("logits"), want[:5])
            for how in ("gzip", "deflate")), "tritonclient's compressed requests are understood")
    top = ask(0, 2, True, outputs=[http.InferRequestedOutput("logits", class_count=3)])
    words = [word.decode().split(":") for word in top.as_numpy("logits")[1]]
    order = np.argsort(-want[1], kind="stable")[:3]
    law([int(word[1]) for word in words] == order.tolist() and
        all(np.float32(word[0]) == want[1][int(word[1])] and word[2] for word in words),
        "tritonclient's classification is the order of the logits, with values and labels")
    waiting = [client.async_infer(model, [tensor_of(http, images[i : i + 1])]) for i in range(40)]
    law(all(same(one.get_result().as_numpy("logits"), want[i : i + 1])
            for i, one in enumerate(waiting)),
        "tritonclient's requests at once get each its own bits")
    triton_errors(client, http, InferenceServerException, model, images)
    triton_files(client, http, model + "-jpeg", jpegs, jpeg_predictions)
    figures = client.get_inference_statistics(model)["model_stats"][0]
    law(figures["inference_count"] > figures["execution_count"] > 0 and
        figures["inference_stats"]["success"]["count"] > 50 and
        figures["inference_stats"]["fail"]["count"] >= 3,
        "tritonclient reads statistics, which show batches of several requests")


def tensor_of(http, pixels):
    tensor = http.InferInput("images", list(pixels.shape), "UINT8")
    tensor.set_data_from_numpy(pixels)
    return tensor


async def kserve(port, model, shard, predictions, *_):
    from kserve import InferenceRESTClient, InferInput, InferRequest
    from kserve.inference_client import RESTConfig

    images, want = rows_and_logits(shard, predictions)
    client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=60))
    at = f"http://127.0.0.1:{port}"
    law(await client.is_server_live(at) and await client.is_server_ready(at) and
        await client.is_model_ready(at, model),
        "kserve's client sees that server and model live and are ready")
    for binary in (True, False):
        tensor = InferInput("images", [4, 32, 32, 3], "UINT8")
        tensor.set_data_from_numpy(images[:4], binary_data=binary)
        answer = await client.infer(at, InferRequest(model, [tensor]), model_name=model)
        got = next(one for one in answer.outputs if one.name == "logits").as_numpy()
        law(same(got.reshape(4, -1), want[:4]),
            f"kserve's client gets predict's bits, {'binary' if binary else 'as JSON'}")


if __name__ == "__main__":
    if sys.argv[1] == "triton":
        triton(*sys.argv[2:])
    else:
        asyncio.run(kserve(*sys.argv[2:]))
