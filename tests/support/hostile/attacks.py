#!/usr/bin/env python3
"""attacks.py PORT MODEL PID SECONDS [GRPC_PORT]: clients that want to cost `lockstep serve` much,
all at the same time, while others ask small things. Prints what these saw, and the server had:

  health=P:MAX png=MEDIAN:MAX wrong=N memory_mb=N answers=...

health: how long 9 of 10 questions took whether it is ready, and the longest; png: an image of 32 x
32 pixels, the median and the longest; in seconds. wrong: questions of both that got another answer
than 200. memory_mb: the largest resident size of PID. answers: what the attacks got. All attacks go
to 127.0.0.1, from a fixed number of connections.
"""
import collections
import http.client
import json
import pathlib
import socket
import statistics
import struct
import sys
import threading
import time
import zlib

LENGTH = "Inference-Header-Content-Length"


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, value=90):
    packer, row = zlib.compressobj(6), b"\0" + bytes([value]) * width
    at_once = max(1, (1 << 20) // len(row))
    data = b"".join(packer.compress(row * min(at_once, height - done))
                    for done in range(0, height, at_once)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
            + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def segment(marker, data):
    return bytes([0xff, marker]) + struct.pack(">H", len(data) + 2) + data


def scans(side, count):
    """A grey progressive JPEG without a single coefficient, which is gone through `count` times."""
    blocks = ((side + 7) // 8) ** 2
    run = 0x7fff  # an end of band for 32,767 blocks: the code 0 and 14 ones
    bits = (f"0{run & 0x3fff:014b}") * -(-blocks // run)
    bits += "1" * (-len(bits) % 8)
    bands = b"".join(bytes([int(bits[i:i + 8], 2)]) + (b"\0" if bits[i:i + 8] == "1" * 8 else b"")
                     for i in range(0, len(bits), 8))
    table = bytes([1] + [0] * 15)
    file = b"\xff\xd8" + segment(0xdb, b"\0" + bytes([1] * 64))
    file += segment(0xc2, struct.pack(">BHHB", 8, side, side, 1) + b"\1\x11\0")
    file += segment(0xc4, b"\0" + table + b"\0") + segment(0xc4, b"\x10" + table + b"\xe0")
    file += segment(0xda, b"\1\1\0\0\0\0") + bytes(-(-blocks // 8))
    made = 1
    for band in range(1, 64):
        for low in range(13, -1, -1):
            if made == count:
                break
            high = 0 if low == 13 else low + 1
            file += segment(0xda, bytes([1, 1, 0, band, band, high << 4 | low])) + bands
            made += 1
    return file + b"\xff\xd9"


def files_body(files):
    data = b"".join(struct.pack("<I", len(one)) + one for one in files)
    tensor = {"name": "image_bytes", "datatype": "BYTES", "shape": [len(files)],
              "parameters": {"binary_data_size": len(data)}}
    text = json.dumps({"inputs": [tensor]}).encode()
    return text + data, {LENGTH: str(len(text))}


class Attacks:
    def __init__(self, port, model, until, grpc_port):
        self.port, self.until, self.grpc_port = port, until, grpc_port
        self.path = f"/v2/models/{model}/infer"
        self.answers, self.lock = collections.Counter(), threading.Lock()
        self.small = png(32, 32)

    def note(self, what, answer):
        with self.lock:
            self.answers[f"{what}:{answer}"] += 1

    def over(self):
        return time.monotonic() >= self.until

    def ask(self, body, headers, patience_s=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience_s)
        try:
            connection.request("POST", self.path, body, headers)
            response = connection.getresponse()
            response.read()
            return response.status
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__
        finally:
            connection.close()

    def again(self, what, body, headers, pause_s=0.2):
        def work():
            while not self.over():
                self.note(what, self.ask(body, headers, max(self.until - time.monotonic(), 0.1)))
                time.sleep(pause_s)
        return work

    def leaves(self, body, headers):
        """Asks, and does not wait for the answer."""
        def work():
            while not self.over():
                self.note("gone", self.ask(body, headers, 0.3))
                time.sleep(0.2)
        return work

    def slow_reader(self):
        asks = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300
        while not self.over():
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)
                client.connect(("127.0.0.1", self.port))
                client.settimeout(0.5)
                try:
                    client.sendall(asks)
                except OSError:
                    pass
                while not self.over():
                    try:
                        if not client.recv(100):
                            break
                    except TimeoutError:
                        pass
                    except OSError:
                        break
                    time.sleep(0.3)
            self.note("slow", "closed")

    def silent_calls(self, window, count=100):
        """gRPC without a library: calls without a message, or without room for the reply."""
        def work():
            while not self.over():
                try:
                    with socket.create_connection(("127.0.0.1", self.grpc_port), 10) as client:
                        client.sendall(h2_begin(window))
                        for number in range(count):
                            client.sendall(h2_call(2 * number + 1, whole=window == 0))
                        client.settimeout(0.5)
                        while not self.over():
                            try:
                                if not client.recv(65536):
                                    break
                            except TimeoutError:
                                pass
                except OSError as error:
                    self.note("grpc", type(error).__name__)
                self.note("grpc", "closed")
        return work


def frame(kind, flags, stream, data):
    head = struct.pack(">I", len(data))[1:] + bytes([kind, flags]) + struct.pack(">I", stream)
    return head + data


def h2_begin(window=65535):
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, window))


def h2_call(stream, whole=True):
    fields = {":method": "POST", ":scheme": "http", ":authority": "localhost",
              ":path": "/inference.GRPCInferenceService/ServerLive",
              "content-type": "application/grpc", "te": "trailers"}
    block = b""
    for name, value in fields.items():
        block += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    message = frame(0, 1, stream, bytes(5)) if whole else b""
    return frame(1, 4, stream, block) + message


def live_over_grpc(port, patience_s=20):
    """True when a call of another client is answered with a message."""
    with socket.create_connection(("127.0.0.1", port), patience_s) as client:
        client.sendall(h2_begin() + frame(4, 1, 0, b"") + h2_call(1))
        heard = b""
        while True:
            while len(heard) >= 9 and len(heard) >= 9 + int.from_bytes(heard[:3], "big"):
                size, kind, stream = int.from_bytes(heard[:3], "big"), heard[3], heard[8]
                if stream == 1 and kind == 0:
                    return True
                if kind in (3, 7):
                    return False
                heard = heard[9 + size:]
            part = client.recv(65536)
            if not part:
                return False
            heard += part


def watch(attacks, pid, seen):
    """Asks small things, one after the other."""
    while not attacks.over():
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", attacks.port, timeout=60)
        connection.request("GET", "/v2/health/ready")
        seen["wrong"] += connection.getresponse().status != 200
        seen["health"].append(time.monotonic() - began)
        connection.close()
        began = time.monotonic()
        status = attacks.ask(attacks.small, {LENGTH: "0"})
        if status != 200:
            seen["wrong"] += 1
            attacks.note("png", status)
        seen["png"].append(time.monotonic() - began)
        if attacks.grpc_port and not live_over_grpc(attacks.grpc_port):
            seen["wrong"] += 1
            attacks.note("live", "no")
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        seen["memory"] = max(seen["memory"], int(status.split("VmRSS:")[1].split()[0]) / 1000)
        time.sleep(0.05)


def main(port, model, pid, seconds, grpc_port=0):
    keys = b'{"inputs":[],' + b",".join(b'"k%06x":0' % i for i in range(690_000)) + b"}"
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(60)) + packer.flush()
    many = scans(8000, 300)
    large, narrow, long = png(8000, 8000), png(1000, 64000), png(64_000_000, 1)
    attacks = Attacks(port, model, time.monotonic() + seconds, grpc_port)
    kinds = [attacks.again("keys", keys, {})] * 2
    kinds += [attacks.again("scans", *files_body([many] * 20))] * 2
    kinds += [attacks.again("large", *files_body([large] * 20))] * 2
    kinds += [attacks.again("narrow", narrow, {LENGTH: "0"})] * 2
    kinds += [attacks.again("long", long, {LENGTH: "0"})]
    kinds += [attacks.again("gzip", bomb, {LENGTH: "0", "Content-Encoding": "gzip"})] * 48
    kinds += [attacks.leaves(*files_body([large] * 20))] * 2
    kinds += [attacks.slow_reader] * 8
    if grpc_port:
        kinds += [attacks.silent_calls(65535)] * 3 + [attacks.silent_calls(0)] * 3
    threads = [threading.Thread(target=kind, daemon=True) for kind in kinds]
    seen = {"health": [], "png": [], "wrong": 0, "memory": 0}
    for thread in threads:
        thread.start()
    watch(attacks, pid, seen)
    health, images = sorted(seen["health"]), seen["png"]
    print(f"health={health[len(health) * 9 // 10]:.3f}:{health[-1]:.3f} "
          f"png={statistics.median(images):.3f}:{max(images):.3f} asked={len(images)} "
          f"wrong={seen['wrong']} memory_mb={seen['memory']:.0f} "
          f"answers={','.join(f'{k}={v}' for k, v in sorted(attacks.answers.items()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]),
                  int(sys.argv[5]) if len(sys.argv) > 5 else 0))
