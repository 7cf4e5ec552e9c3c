#!/usr/bin/env python3
"""tritonclient asks `lockstep serve` over gRPC, at PORT of this machine, for what it refuses:

  grpc_limits.py description PROTO                     are our messages part of tritonclient's?
  grpc_limits.py limits PORT TOKEN SHARD PREDICTIONS   of a server with a token, 1 MB for a message,
                                                       which may take 2 s, and 16 calls at once
  grpc_limits.py load PORT SHARD PREDICTIONS CLIENTS   until none gets an answer

Prints a line `PASS law` for each law that holds; ends at the first that does not. The model is `m`.
"""
import collections
import pathlib
import subprocess
import sys
import threading

import numpy as np

from grpc_clients import UNARY, Triton, refused
from serve_clients import law, rows_and_logits, same


def description(proto):
    """Each message, field and method of PROTO, as protoc reads it, is in tritonclient's."""
    from google.protobuf import descriptor_pb2
    from tritonclient.grpc import model_config_pb2, service_pb2

    subprocess.run(["protoc", f"-I{pathlib.Path(proto).parent}", "--descriptor_set_out=ours.pb",
                    proto], check=True)
    ours = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path("ours.pb").read_bytes()).file[0]
    theirs = descriptor_pb2.FileDescriptorProto()
    for module in (service_pb2, model_config_pb2):
        part = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(part)
        theirs.MergeFrom(part)
    count = 0

    def compare(message, other):
        nonlocal count
        fields = {field.name: field for field in other.field}
        for field in message.field:
            known, count = fields[field.name], count + 1
            law_of = [(one.number, one.type, one.label, one.type_name) for one in (field, known)]
            if law_of[0] != law_of[1]:
                sys.exit(f"FAIL {message.name}.{field.name}: {law_of}")
        for kind in ("nested_type", "message_type"):
            inner = {one.name: one for one in getattr(other, kind, [])}
            for one in getattr(message, kind, []):
                compare(one, inner[one.name])

    ours_whole, theirs_whole = descriptor_pb2.DescriptorProto(), descriptor_pb2.DescriptorProto()
    ours_whole.nested_type.extend(ours.message_type)
    theirs_whole.nested_type.extend(theirs.message_type)
    compare(ours_whole, theirs_whole)
    numbers = {one.name: one.number for one in theirs.enum_type[0].value}
    assert all(numbers[one.name] == one.number for one in ours.enum_type[0].value), numbers
    methods = {one.name: (one.input_type, one.output_type) for one in theirs.service[0].method}
    assert all(methods[one.name] == (one.input_type, one.output_type)
               for one in ours.service[0].method), methods
    law(count > 60, f"{count} fields of our messages are tritonclient's")


def limits(port, token, shard, predictions):
    import grpc

    server = Triton(port)
    images, want = rows_and_logits(shard, predictions)
    headers = {"authorization": f"Bearer {token}"}
    large = np.repeat(images, 8, 0)
    law(refused("UNAUTHENTICATED", "a token is needed", lambda: server.infer(images[:1])) and
        refused("UNAUTHENTICATED", "a token is needed",
                lambda: server.infer(images[:1], headers={"authorization": "Bearer wrong"})) and
        refused("UNAUTHENTICATED", "a token is needed", server.client.get_server_metadata) and
        server.client.is_server_ready() and
        same(server.infer(images[:1], headers=headers).as_numpy("logits"), want[:1]),
        "with a token only the server's health is open")
    law(refused("UNAUTHENTICATED", "a token is needed", lambda: server.infer(large)),
        "without the token a large message is not read")
    law(refused("RESOURCE_EXHAUSTED", "larger than max",
                lambda: server.infer(large, headers=headers)),
        "a message that is larger than the limit is RESOURCE_EXHAUSTED")
    law(refused("UNIMPLEMENTED", "ompress", lambda: server.infer(
            images[:1], headers=headers, compression_algorithm="gzip")),
        "a compressed message is UNIMPLEMENTED")
    slow = threading.Event()

    def drip():
        slow.wait(60)
        yield b""

    metadata = [("authorization", f"Bearer {token}")]
    silent = server.channel.stream_unary(UNARY + "ModelInfer")
    waiting = [silent.future(drip(), metadata=metadata) for _ in range(16)]
    law(same(server.infer(images[:1], headers=headers).as_numpy("logits"), want[:1]) and
        all(call.exception(60).code() == grpc.StatusCode.CANCELLED for call in waiting),
        "calls whose message does not come end, and others wait for that")
    slow.set()


def load(port, shard, predictions, clients):
    server = Triton(port)
    images, want = rows_and_logits(shard, predictions)
    counts, lock, told = collections.Counter(), threading.Lock(), threading.Event()

    def client(seed):
        chosen = np.random.default_rng(seed)
        triton_client = server.tensors.InferenceServerClient(server.at)
        while True:
            first = int(chosen.integers(len(images) - 20))
            last = first + int(chosen.choice([1, 1, 2, 7, 17]))
            try:
                answer = triton_client.infer("m", [server.pixels(images[first:last])])
                result = ("answered" if same(answer.as_numpy("logits"), want[first:last])
                          else "wrong")
            except Exception as error:  # pylint: disable=broad-except
                result = "refused" if "the server ends" in str(error) else "failed"
                print(f"{result}: {error!r}")
            with lock:
                counts[result] += 1
                if counts["answered"] == 100:
                    print("answers come", flush=True)
            if result != "answered":
                return

    def watch():
        while server.client.is_server_ready():
            told.wait(0.01)
        server.infer(images[:1])
        print("unready, and answers", flush=True)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(int(clients))]
    threads.append(threading.Thread(target=watch))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(" ".join(f"{what}={counts[what]}" for what in ("answered", "refused", "failed", "wrong")))
    sys.exit(1 if counts["failed"] or counts["wrong"] else 0)


if __name__ == "__main__":
    {"description": description, "limits": limits, "load": load}[sys.argv[1]](*sys.argv[2:])
