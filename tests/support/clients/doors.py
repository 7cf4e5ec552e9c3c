#!/usr/bin/env python3
"""Connections to `lockstep serve` that are not to be trusted:

  doors.py silent PORT SECONDS            fails unless a connection without a byte is closed
  doors.py hostile PORT MODEL SECONDS     fails unless each kind of bad connection is closed, none
                                          of them gets a 200, and others are answered meanwhile
  doors.py patient PORT MODEL RATE ROWS   fails unless a request of ROWS images that comes by RATE
                                          bytes a second is answered
  doors.py crowd PORT MODEL COUNT PID     fails unless 16 busy connections are answered while COUNT
                                          are idle, for which PID takes less than 50 MB

A connection must be closed SECONDS after it stopped to be useful; the machine may be busy, so three
times that is allowed.
"""
import http.client
import pathlib
import select
import socket
import sys
import threading
import time

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from serving import LENGTH, binary  # noqa: E402


def dial(port):
    return socket.create_connection(("127.0.0.1", port), 60)


def ready(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/v2/health/ready")
    status = connection.getresponse().status
    connection.close()
    return status == 200


def until_closed(client, limit_s, drip=b""):
    """What came until the server closed the connection, while `drip` is sent each half second."""
    heard, until = b"", time.monotonic() + limit_s
    client.setblocking(False)
    while time.monotonic() < until:
        try:
            if select.select([client], [], [], 0.5)[0]:
                part = client.recv(65536)
                if not part:
                    return heard
                heard += part
            elif drip:
                client.send(drip)
        except BlockingIOError:
            pass
        except OSError:  # it was closed while something was on its way
            return heard
    raise SystemExit(f"not closed within {limit_s} s; it said {heard[:300]!r}")


def silent(port, limit_s):
    heard = until_closed(dial(port), 3 * limit_s)  # at most an alert of TLS
    assert b"HTTP" not in heard and len(heard) < 100, heard


def hostile(port, model, limit_s):
    post = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\n".encode()
    kinds = {
        "silent": (b"", b""),
        "drip": (b"GET /v2/health/ready HTTP/1.1\r\nX: ", b"x"),
        "half": (post + b"Content-Length: 3000\r\n\r\nhalf", b""),
        "slow body": (post + b"Content-Length: 3000\r\n\r\n", b"x"),
        "flood": (b"GET / HTTP/1.1\r\n" + b"X-Flood: y\r\n" * 90_000, b""),
    }
    opened = []
    for name, (begin, drip) in kinds.items():
        client = dial(port)
        try:
            client.sendall(begin)
        except OSError:
            pass  # it is closed already
        opened.append((name, client, drip))
    closed, faults = [], []

    def watch(name, client, drip):
        try:
            heard = until_closed(client, 3 * limit_s, drip)
            if heard and not heard.startswith(b"HTTP/1.1 4"):
                faults.append(f"{name}: {heard[:200]!r}")
            closed.append(name)
        except SystemExit as fault:
            faults.append(f"{name}: {fault}")

    threads = [threading.Thread(target=watch, args=one) for one in opened]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert ready(port)
        time.sleep(0.2)
    assert not faults, faults
    print("closed:", ", ".join(name for name in kinds if name in closed))


def patient(port, model, rate, rows):
    body, headers = binary(np.zeros((rows, 32, 32, 3), np.uint8))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    client = dial(port)
    client.sendall(f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                   f"Content-Length: {len(body)}\r\n{lines}\r\n".encode())
    began, sent = time.monotonic(), 0
    while sent < len(body):
        due = min(int((time.monotonic() - began) * rate), len(body))
        client.sendall(body[sent:due])
        sent = due
        time.sleep(0.1)
    took, heard = time.monotonic() - began, b""
    while part := client.recv(65536):
        heard += part
    assert heard.startswith(b"HTTP/1.1 200 "), heard[:300]
    print(f"answered: {len(body)} bytes in {took:.0f} s")


def resident_mb(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


def crowd(port, model, count, pid):
    body, headers = binary(np.zeros((1, 32, 32, 3), np.uint8))

    def ask(times):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(times):
            connection.request("POST", f"/v2/models/{model}/infer", body, headers)
            answer = connection.getresponse()
            if answer.status == 200 and answer.read() and answer.headers[LENGTH]:
                answered.append(1)

    def busy():
        answered.clear()
        threads = [threading.Thread(target=ask, args=(20,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answered) == 16 * 20, len(answered)

    answered = []
    busy()
    before = resident_mb(pid)
    idle = []
    for _ in range(count):  # each was answered once, and keeps its connection
        idle.append(dial(port))
        idle[-1].sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle[-1].recv(12) == b"HTTP/1.1 200"
    busy()
    more = resident_mb(pid) - before
    assert more < 50, f"{more} MB more"
    print(f"answered all next to {count} idle connections, {more:.1f} MB more")


if __name__ == "__main__":
    command, words = sys.argv[1], sys.argv[2:]
    if command == "silent":
        silent(int(words[0]), float(words[1]))
    elif command == "hostile":
        hostile(int(words[0]), words[1], float(words[2]))
    elif command == "patient":
        patient(int(words[0]), words[1], float(words[2]), int(words[3]))
    else:
        crowd(int(words[0]), words[1], int(words[2]), words[3])
