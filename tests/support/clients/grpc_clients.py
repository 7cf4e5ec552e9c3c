#!/usr/bin/env python3
"""Other programs' clients ask `lockstep serve` over gRPC, at PORT of this machine:

  grpc_clients.py triton|kserve PORT SHARD PREDICTIONS JPEG_SHARD JPEG_PREDICTIONS

Prints a line `PASS law` for each law that holds; ends at the first that does not. The server has
the model twice: `m`, and `m-jpeg`, whose images come as files.
"""
import asyncio
import sys
import threading

import numpy as np

from serve_clients import law, rows_and_logits, same

UNARY = "/inference.GRPCInferenceService/"


def files_and_logits(shard, predictions):
    import h5py

    with h5py.File(shard) as file:
        ends = file["offsets"][:]
        jpegs = [file["jpegs"][ends[i] : ends[i + 1]].tobytes() for i in range(len(ends) - 1)]
    with h5py.File(predictions) as file:
        return jpegs, file["logits"][:]


def refused(code, why, call):
    """Whether the call ends with this code of gRPC, and a sentence with `why` in it."""
    import grpc
    from tritonclient.utils import InferenceServerException

    try:
        call()
    except InferenceServerException as error:
        got = error.status().removeprefix("StatusCode."), error.message()
    except grpc.RpcError as error:
        got = error.code().name, error.details()
    else:
        got = "OK", ""
    if got[0] != code or why not in got[1]:
        print(f"wanted {code} '{why}', got {got}")
        return False
    return True


class Triton:
    """tritonclient.grpc, and its messages where that hides what they can say."""

    def __init__(self, port):
        import grpc
        import tritonclient.grpc as client
        from tritonclient.grpc import service_pb2, service_pb2_grpc

        self.tensors, self.messages = client, service_pb2
        self.at = at = f"127.0.0.1:{port}"
        self.client = client.InferenceServerClient(at)
        options = [("grpc.max_send_message_length", -1)]
        self.channel = grpc.insecure_channel(at, options)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def pixels(self, images, name="images", shape=None):
        tensor = self.tensors.InferInput(name, list(shape or images.shape), "UINT8")
        tensor.set_data_from_numpy(images.reshape(shape or images.shape))
        return tensor

    def infer(self, images, model="m", outputs=None, name="images", shape=None, **more):
        return self.client.infer(model, [self.pixels(images, name, shape)], outputs=outputs, **more)

    def wanted(self, name="logits", **more):
        return [self.tensors.InferRequestedOutput(name, **more)]

    def typed(self, images, datatype="UINT8", model="m", shape=None, **contents):
        request = self.messages.ModelInferRequest(model_name=model, id="seven")
        tensor = request.inputs.add(name="image_bytes" if datatype == "BYTES" else "images",
                                    datatype=datatype, shape=list(shape or images.shape))
        for field, values in (contents or {"uint_contents": images.ravel().tolist()}).items():
            getattr(tensor.contents, field).extend(values)
        return request

    def logits(self, request, **more):
        answer = self.stub.ModelInfer(request, **more)
        at = [output.name for output in answer.outputs].index("logits")
        return np.frombuffer(answer.raw_output_contents[at], "<f4").reshape(
            answer.outputs[at].shape)


def triton_documents(triton):
    client = triton.client
    law(client.is_server_live() and client.is_server_ready() and client.is_model_ready("m") and
        client.is_model_ready("m", "1"),
        "tritonclient.grpc sees that server and model live and are ready")
    about, server = client.get_model_metadata("m"), client.get_server_metadata()
    law(list(about.inputs[0].shape) == [-1, 32, 32, 3] and about.inputs[0].datatype == "UINT8" and
        [one.name for one in about.outputs] == ["logits", "probabilities"] and
        list(about.versions) == ["1"] and server.name == "lockstep" and
        "statistics" in server.extensions, "tritonclient.grpc reads metadata")
    config = client.get_model_config("m").config
    law(config.max_batch_size >= 1 and list(config.input[0].dims) == [32, 32, 3] and
        config.input[0].data_type == 2 and config.input[1].optional and
        config.output[0].data_type == 11 and config.backend == "lockstep" and
        config.dynamic_batching.max_queue_delay_microseconds > 0 and
        config.parameters["model"].string_value.endswith(".h5"),
        "tritonclient.grpc reads the configuration")
    index = client.get_model_repository_index()
    law([(one.name, one.version, one.state) for one in index.models] ==
        [("m", "1", "READY"), ("m-jpeg", "1", "READY")],
        "tritonclient.grpc reads the repository's index")


def triton_answers(triton, images, want):
    law(all(same(triton.infer(images[:rows]).as_numpy("logits"), want[:rows])
            for rows in (1, 2, 17, 40)),
        "tritonclient.grpc gets predict's bits for any number of rows")
    law(all(same(triton.logits(triton.typed(images[:rows])), want[:rows]) for rows in (1, 3)),
        "typed contents get predict's bits, too")
    share = np.exp(want[:2] - want[:2].max(1, keepdims=True))
    both = triton.infer(images[:2], request_id="seven")
    law(both.get_response().id == "seven" and both.get_response().model_name == "m" and
        np.abs(both.as_numpy("probabilities") -
               share / share.sum(1, keepdims=True)).max() < 1e-6,
        "without a list of outputs all come, with the request's id")
    top = triton.infer(images[:2], outputs=triton.wanted(class_count=3)).as_numpy("logits")
    words, order = [one.decode().split(":") for one in top[1]], np.argsort(-want[1], kind="stable")
    law([int(word[1]) for word in words] == order[:3].tolist() and
        all(np.float32(word[0]) == want[1][int(word[1])] and word[2] for word in words),
        "a classification is the order of the logits, with values and labels")
    answers, came = [None] * 40, threading.Semaphore(0)

    def keep(i):
        def callback(result, error):
            answers[i] = error or result
            came.release()
        return callback

    for i in range(40):
        triton.client.async_infer("m", [triton.pixels(images[i : i + 1])], keep(i))
    law(all(came.acquire(timeout=60) for _ in range(40)) and
        all(same(one.as_numpy("logits"), want[i : i + 1]) for i, one in enumerate(answers)),
        "calls at once get each its own bits")


def triton_files(triton, jpegs, want):
    tensor = triton.tensors.InferInput("image_bytes", [len(jpegs)], "BYTES")
    tensor.set_data_from_numpy(np.array(jpegs, dtype=object))
    typed = triton.typed(None, "BYTES", "m-jpeg", [len(jpegs)], bytes_contents=jpegs)
    law(same(triton.client.infer("m-jpeg", [tensor]).as_numpy("logits"), want) and
        same(triton.logits(typed), want), "JPEG files, raw and typed, get predict's bits")


def triton_errors(triton, images):
    one = images[:1]
    law(refused("NOT_FOUND", "there is no model 'none'", lambda: triton.infer(one, "none")) and
        refused("NOT_FOUND", "there is no model 'm/stats'", lambda: triton.infer(one, "m/stats"))
        and refused("NOT_FOUND", "has no version '77'",
                    lambda: triton.infer(one, model_version="77")) and
        refused("NOT_FOUND", "there is no model 'none'",
                lambda: triton.client.is_model_ready("none")),
        "an unknown model or version is NOT_FOUND, with our sentence")
    law(refused("INVALID_ARGUMENT", "its shape is [1, 3, 32, 32]",
                lambda: triton.infer(one, shape=(1, 3, 32, 32))) and
        refused("INVALID_ARGUMENT", "the datatype FP32 is not taken", lambda: triton.logits(
            triton.typed(one, "FP32", fp32_contents=[0.5] * 3072))) and
        refused("INVALID_ARGUMENT", "no input 'x'", lambda: triton.infer(one, name="x")) and
        refused("INVALID_ARGUMENT", "no output 'y'",
                lambda: triton.infer(one, outputs=triton.wanted("y"))) and
        refused("INVALID_ARGUMENT", "neither a JPEG nor a PNG", lambda: triton.logits(
            triton.typed(None, "BYTES", shape=[1], bytes_contents=[b"hello"]))),
        "a wrong shape, datatype, input, output or file is INVALID_ARGUMENT, with our sentence")
    twice = triton.typed(one)
    twice.raw_input_contents.append(one.tobytes())
    fewer = triton.typed(one)
    fewer.raw_input_contents.extend([b"", b""])
    below = triton.typed(one, shape=[-1, 32, 32, 3])
    law(refused("INVALID_ARGUMENT", "from 0 to 255", lambda: triton.logits(
            triton.typed(one, uint_contents=[256] * 3072))) and
        refused("INVALID_ARGUMENT", "its shape is of 3072 values, but it has 1",
                lambda: triton.logits(triton.typed(one, uint_contents=[1]))) and
        refused("INVALID_ARGUMENT", "next to 'raw_input_contents'",
                lambda: triton.logits(twice)) and
        refused("INVALID_ARGUMENT", "1 inputs, but 2 in", lambda: triton.logits(fewer)) and
        refused("INVALID_ARGUMENT", "whole numbers from 1", lambda: triton.logits(below)),
        "contents that do not fit are INVALID_ARGUMENT, and the input is named")
    junk = triton.channel.unary_unary(UNARY + "ModelInfer")
    none = triton.channel.unary_unary(UNARY + "ModelDream")
    law(refused("INVALID_ARGUMENT", "not an inference.ModelInferRequest", lambda: junk(b"\xff" * 9))
        and refused("UNIMPLEMENTED", "ModelDream", lambda: none(b"")),
        "junk and an unknown method get their errors")
    law(refused("DEADLINE_EXCEEDED", "it was not computed within",
                lambda: triton.infer(one, timeout=1)) and
        refused("DEADLINE_EXCEEDED", "Deadline Exceeded",
                lambda: triton.infer(images, client_timeout=0.0005)),
        "a call that is late is DEADLINE_EXCEEDED: by its parameter, and by gRPC's deadline")


def triton_statistics(triton):
    figures = triton.client.get_inference_statistics("m").model_stats[0]
    law(figures.inference_count > figures.execution_count > 0 and
        figures.inference_stats.success.count > 40 and figures.inference_stats.fail.count >= 5 and
        figures.inference_stats.compute_infer.ns > 0 and
        sum(one.compute_infer.count for one in figures.batch_stats) == figures.execution_count and
        len(triton.client.get_inference_statistics().model_stats) == 2,
        "tritonclient.grpc reads statistics, which show batches of several calls")


def triton(port, shard, predictions, *files):
    server = Triton(port)
    images, want = rows_and_logits(shard, predictions)
    triton_documents(server)
    triton_answers(server, images, want)
    triton_files(server, *files_and_logits(*files))
    triton_errors(server, images)
    triton_statistics(server)


async def kserve(port, shard, predictions, *_):
    import grpc
    from kserve import InferenceGRPCClient, InferInput, InferRequest

    images, want = rows_and_logits(shard, predictions)
    client = InferenceGRPCClient(f"127.0.0.1:{port}")
    law(await client.is_server_live() and await client.is_server_ready() and
        await client.is_model_ready("m"),
        "kserve's client of gRPC sees that server and model live and are ready")
    for binary in (True, False):
        tensor = InferInput("images", [4, 32, 32, 3], "UINT8")
        tensor.set_data_from_numpy(images[:4], binary_data=binary)
        answer = await client.infer(InferRequest("m", [tensor]))
        got = next(one for one in answer.outputs if one.name == "logits").as_numpy()
        law(same(got.reshape(4, -1), want[:4]),
            f"kserve's client of gRPC gets predict's bits, {'raw' if binary else 'typed'}")
    try:
        await client.is_model_ready("none")
        code = None
    except grpc.RpcError as error:
        code = error.code(), error.details()
    law(code == (grpc.StatusCode.NOT_FOUND, "there is no model 'none'"),
        "kserve's client of gRPC gets our sentence for an unknown model")


if __name__ == "__main__":
    if sys.argv[1] == "triton":
        triton(*sys.argv[2:])
    else:
        asyncio.run(kserve(*sys.argv[2:]))
