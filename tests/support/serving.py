#!/usr/bin/env python3
"""A client of `lockstep serve` that needs numpy and h5py only:

  serving.py bodies SHARD            writes bodies of requests for its first rows
  serving.py same PREDICTIONS ANSWER JSON_LENGTH ROW...
                                     fails unless the answer has the bits of these rows' logits
  serving.py files PORT MODEL FOLDER_OR_SHARD PREDICTIONS
                                     asks for each PNG of a folder, or JPEG of a shard, by its name
  serving.py wrong PORT MODEL        sends what is wrong, and fails unless each gets its status
  serving.py load PORT MODEL SHARD CLIENTS PREDICTIONS...
                                     asks until a 503, or until the file `enough` is there; fails
                                     when an answer has other bits than PREDICTIONS of its version
"""
import collections
import errno
import gzip
import http.client
import json
import pathlib
import random
import socket
import struct
import sys
import threading

import h5py
import numpy as np

LENGTH = "Inference-Header-Content-Length"


def head(shape, name="images", datatype="UINT8", **more):
    tensor = {"name": name, "datatype": datatype, "shape": list(shape), **more}
    return {"inputs": [tensor], "outputs": [{"name": "logits"}]}


def binary(pixels):
    """A request for rows of pixels: its body, and its headers."""
    request = head(pixels.shape, parameters={"binary_data_size": pixels.nbytes})
    request["parameters"] = {"binary_data_output": True}
    text = json.dumps(request).encode()
    return text + pixels.tobytes(), {LENGTH: str(len(text))}


def logits_of(answer, length):
    told = json.loads(answer[:length] if length else answer)
    output = next(one for one in told["outputs"] if one["name"] == "logits")
    values = output["data"] if "data" in output else None
    if values is None:
        values = np.frombuffer(answer, "<f4", output["parameters"]["binary_data_size"] // 4, length)
    return np.asarray(values, np.float32).reshape(output["shape"]), told


def same(got, want):
    return got.shape == want.shape and got.tobytes() == want.tobytes()


def images_of(shard):
    with h5py.File(shard) as file:
        return file["images"][:]


def predicted(path):
    """The logits by row and, where the rows have names, by name."""
    with h5py.File(path) as file:
        logits = file["logits"][:]
        names = [name.decode() for name in file["name"][:]] if "name" in file else []
    return logits, dict(zip(names, logits))


def ask(connection, path, body, headers):
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read(), int(answer.headers.get(LENGTH) or 0)


def bodies(shard):
    rows = images_of(shard)
    pathlib.Path("json.body").write_text(json.dumps(head(rows[:3].shape, data=rows[:3].tolist())))
    body, headers = binary(rows[3:24])
    pathlib.Path("binary.body").write_bytes(body)
    pathlib.Path("binary.length").write_text(headers[LENGTH])
    pathlib.Path("gzip.body").write_bytes(gzip.compress(body))
    pathlib.Path("raw.body").write_bytes(rows[24].tobytes())


def same_rows(predictions, answer, length, *rows):
    got, _ = logits_of(pathlib.Path(answer).read_bytes(), int(length))
    want = predicted(predictions)[0][[int(row) for row in rows]]
    assert same(got, want), (got, want)


def files(port, model, source, predictions):
    want = predicted(predictions)[1]
    source = pathlib.Path(source)
    if source.is_dir():
        named = {str(path.relative_to(source)): path.read_bytes() for path in source.rglob("*.png")}
    else:
        with h5py.File(source) as file:
            ends = file["offsets"][:]
            names = [name.decode() for name in file["file_names"][:]]
            named = {name: file["jpegs"][ends[i] : ends[i + 1]].tobytes().rstrip(b"\0")
                     for i, name in enumerate(names)}
    assert named and set(named) == set(want), (sorted(named)[:3], sorted(want)[:3])
    data = b"".join(struct.pack("<I", len(one)) + one for one in named.values())
    text = json.dumps(head([len(named)], "image_bytes", "BYTES",
                           parameters={"binary_data_size": len(data)})).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    status, answer, length = ask(connection, f"/v2/models/{model}/infer", text + data,
                                 {LENGTH: str(len(text))})
    assert status == 200, answer
    got, _ = logits_of(answer, length)
    assert same(got, np.stack([want[name] for name in named])), "other bits"
    for name, one in named.items():
        status, answer, length = ask(connection, f"/v2/models/{model}/infer", one, {LENGTH: "0"})
        assert status == 200 and same(logits_of(answer, length)[0][0], want[name]), (name, answer)


def wrong(port, model):
    infer = f"/v2/models/{model}/infer"
    pixels = [1, 32, 32, 3]
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 60000, 60000) + bytes(20)
    file = struct.pack("<I", len(png)) + png
    cases = [
        (404, "no model 'other'", "/v2/models/other/infer", b"{}", {}),
        (404, "no version '9'", f"/v2/models/{model}/versions/9/infer", b"{}", {}),
        (404, "nothing is at this path", "/v2/nowhere", b"", {}),
        (405, "takes GET, HEAD", f"/v2/models/{model}", b"", {}),
        (400, "not JSON", infer, b"{", {}),
        (400, "nested deeper", infer, b"[" * 100000, {}),
        (400, "its shape is [1, 3, 32, 32]", infer,
         json.dumps(head([1, 3, 32, 32], data=[0] * 3072)).encode(), {}),
        (400, "datatype FP32 is not taken", infer,
         json.dumps(head(pixels, datatype="FP32", data=[0] * 3072)).encode(), {}),
        (400, "no input 'x'", infer, json.dumps(head(pixels, "x", data=[0] * 3072)).encode(), {}),
        (400, "shape is of 3072 values", infer, json.dumps(head(pixels, data=[0])).encode(), {}),
        (400, "from 0 to 255", infer, json.dumps(head(pixels, data=[256] * 3072)).encode(), {}),
        (400, "is not a number of bytes", infer, b"{}", {LENGTH: "7"}),
        (400, "neither a JPEG nor a PNG", infer, b"hello", {LENGTH: "0"}),
        (400, "neither a JPEG nor a PNG", infer, b"", {LENGTH: "0"}),
        (400, "3600000000 pixels", infer, png, {LENGTH: "0"}),
        (400, "image 0", infer, b"\xff\xd8\xff\xe0" + bytes(50), {LENGTH: "0"}),
        (400, "damaged", infer, b"junk", {"Content-Encoding": "gzip"}),
        (415, "'br' is not known", infer, b"junk", {"Content-Encoding": "br"}),
        (413, "when it is decoded", infer, gzip.compress(bytes(70_000_000), 1),
         {"Content-Encoding": "gzip"}),
        (413, "at most", infer, bytes(65_000_000), {}),
    ]
    text = json.dumps(head([1], "image_bytes", "BYTES",
                           parameters={"binary_data_size": len(file)})).encode()
    cases.append((400, "3600000000 pixels", infer, text + file, {LENGTH: str(len(text))}))
    output = json.dumps({**head(pixels, data=[0] * 3072), "outputs": [{"name": "x"}]}).encode()
    cases.append((400, "no output 'x'", infer, output, {}))
    many, size = [2000, *pixels[1:]], 2000 * 3072
    rows = json.dumps(head(many, parameters={"binary_data_size": size})).encode()
    cases.append((400, "at most 1024 images", infer, rows + bytes(size), {LENGTH: str(len(rows))}))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for status, why, path, body, headers in cases:
        got, answer, _ = ask(connection, path, body, headers)
        said = json.loads(answer)
        assert got == status and list(said) == ["error"], (why, got, answer)
        assert why in said["error"], (why, answer)
        assert answer.count(b"\n") == 1 and answer.endswith(b"\n"), answer
    for junk in (b"\0" * 1000, b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                 b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20000, b"POST / HTTP/1.1\r\nHo"):
        with socket.create_connection(("127.0.0.1", port), 20) as raw:
            try:
                raw.sendall(junk)
                raw.shutdown(socket.SHUT_WR)
                assert b"200 OK" not in raw.recv(1000)
            except OSError as error:  # the server has closed it; but it must not wait
                assert error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN), error
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/v2/health/ready")
    assert connection.getresponse().status == 200
    print(len(cases), "wrong requests got their errors")


class Load:
    """Clients that ask until one gets a 503, or it is enough."""

    def __init__(self, port, model, shard, predictions):
        self.port, self.path = port, f"/v2/models/{model}/infer"
        self.rows = images_of(shard)
        self.want = [predicted(path)[0] for path in predictions]
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.versions = []

    def note(self, what):
        with self.lock:
            self.counts[what] += 1

    def client(self, seed):
        chosen = random.Random(seed)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not pathlib.Path("enough").exists():
            first = chosen.randrange(len(self.rows))
            last = min(first + chosen.choice([1, 1, 1, 2, 3, 7, 17]), len(self.rows))
            body, headers = binary(self.rows[first:last])
            try:
                status, answer, length = ask(connection, self.path, body, headers)
            except (OSError, http.client.HTTPException) as error:
                print(f"failed: {error!r}")
                return self.note("failed")
            if status == 503:
                return self.note("refused")
            if status != 200:
                print(f"failed: {status} {answer[:200]}")
                return self.note("failed")
            got, told = logits_of(answer, length)
            version = int(told["model_version"])
            with self.lock:
                self.versions.append(version)
            self.note("answered")
            if not same(got, self.want[min(version, len(self.want)) - 1][first:last]):
                return self.note("wrong")

    def run(self, clients):
        threads = [threading.Thread(target=self.client, args=(i,)) for i in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(" ".join(f"{what}={self.counts[what]}"
                       for what in ("answered", "refused", "failed", "wrong")),
              "versions=" + ",".join(map(str, sorted(set(self.versions)))))
        return 1 if self.counts["failed"] or self.counts["wrong"] else 0


def main(command, *words):
    if command == "load":
        port, model, shard, clients = words[:4]
        return Load(int(port), model, shard, words[4:]).run(int(clients))
    if command == "bodies":
        bodies(*words)
    elif command == "same":
        same_rows(*words)
    elif command == "files":
        files(int(words[0]), *words[1:])
    else:
        wrong(int(words[0]), words[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
