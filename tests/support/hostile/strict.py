#!/usr/bin/env python3
"""strict.py PORT: sends requests that a proxy and a server may understand in different ways, each
over a separate connection, with a whole request after it. Prints a law for each; fails unless what
is wrong gets one 400 and a closed connection, and what is right its answers.
"""
import re
import socket
import sys

HOST = b"Host: localhost\r\n"
GET = b"GET /v2/health/live HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST /v2/models/m/infer HTTP/1.1\r\n" + HOST
LIVE = b"GET /v2/health/live HTTP/1.1\r\n"
WRONG = {
    "a length next to chunks":
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET,
    "chunks next to a length":
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 60\r\n\r\n0\r\n\r\n" + GET,
    "two lengths": POST + b"Content-Length: 0\r\nContent-Length: 62\r\n\r\n" + GET,
    "two lengths in the other order":
        POST + b"Content-Length: 62\r\nContent-Length: 0\r\n\r\n" + GET,
    "one length twice": POST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n" + GET,
    "another coding": POST + b"Content-Length: 0\r\nTransfer-Encoding: xchunked\r\n\r\n" + GET,
    "another coding without a length": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + GET,
    "two codings": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + GET,
    "the coding twice":
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET,
    "a blank before the colon":
        POST + b"Transfer-Encoding : chunked\r\nContent-Length: 0\r\n\r\n" + GET,
    "a tab before the colon": POST + b"X\t: y\r\nContent-Length: 0\r\n\r\n" + GET,
    "a length with a sign": POST + b"Content-Length: +5\r\n\r\nhello" + GET,
    "a list of lengths": POST + b"Content-Length: 5,5\r\n\r\nhello" + GET,
    "a length in hex": POST + b"Content-Length: 0x5\r\n\r\nhello" + GET,
    "a negative length": POST + b"Content-Length: -1\r\n\r\nhello" + GET,
    "lines that end with LF alone": b"GET /v2/health/live HTTP/1.1\nHost: localhost\n\n" + GET,
    "one line that ends with LF alone": LIVE + b"X: y\n" + HOST + b"\r\n" + GET,
    "a folded header": LIVE + HOST + b"X: a\r\n Transfer-Encoding: chunked\r\n\r\n" + GET,
    "a fold of letters alone": LIVE + HOST + b"X: a\r\n b\r\n\r\n" + GET,
    "a fold of a header without a value": LIVE + HOST + b"X:\r\n\tb\r\n\r\n" + GET,
    "a fold of the last of two headers": LIVE + HOST + b"X: a\r\nY: b\r\n c\r\n\r\n" + GET,
    "two folds": LIVE + b"X: a\r\n b\r\n c\r\n" + HOST + b"\r\n" + GET,
    "a header with a CR": LIVE + HOST + b"X: a\rb\r\n\r\n" + GET,
    "no Host": LIVE + b"\r\n" + GET,
    "two Hosts": LIVE + HOST + HOST + b"\r\n" + GET,
    "two tokens": LIVE + HOST + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n" + GET,
    "a header with a NUL": LIVE + HOST + b"X: a\0b\r\n\r\n" + GET,
    "a header's name with a bracket": LIVE + HOST + b"X(y): z\r\n\r\n" + GET,
    "a header without a colon": LIVE + HOST + b"nothing\r\n\r\n" + GET,
    "a path with a NUL": b"GET /v2/models/m%00/ready HTTP/1.1\r\n" + HOST + b"\r\n" + GET,
}
RIGHT = {  # and the statuses of all answers
    "two requests in a row": (GET + GET, [200, 200]),
    "a header twice, of those that are lists":
        (LIVE + HOST + b"Accept: a/b\r\nAccept: c/d\r\n\r\n" + GET, [200, 200]),
    "chunks": (POST + b"Inference-Header-Content-Length: 0\r\nTransfer-Encoding: CHUNKED\r\n\r\n"
               b"3\r\nabc\r\n0\r\n\r\n" + GET, [400, 200]),
    "a request of HTTP/1.0 without Host": (b"GET /v2/health/live HTTP/1.0\r\n\r\n", [200]),
    "blanks and tabs before a header's value, and none":
        (LIVE + HOST + b"X: \t  \ty z\r\nY:z\r\nZ:\r\n\r\n" + GET, [200, 200]),
    "HEAD": (b"HEAD /v2/health/live HTTP/1.1\r\n" + HOST + b"\r\n" + GET, [200, 200]),
    "a GET with a body": (LIVE + HOST + b"Content-Length: 5\r\n\r\nhello" + GET, [200, 200]),
    "an escaped path": (b"GET /v2/models/..%2f..%2fetc/ HTTP/1.1\r\n" + HOST + b"\r\n" + GET,
                        [404, 200]),
    "another method":
        (b"OPTIONS /v2/models/m/infer HTTP/1.1\r\n" + HOST + b"\r\n" + GET, [405, 200]),
    "another host's name":
        (b"GET /v2/health/live HTTP/1.1\r\nHost: evil.example\r\n\r\n" + GET, [421, 200]),
    "an address as the host":
        (b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n" + GET, [200, 200]),
}
ENDS = {  # each a request that is answered by one error at most, and ends its connection
    "a chunk of too many bytes":
        POST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF0\r\nabc" + GET,
    "a chunk whose length is no number": POST + b"Transfer-Encoding: chunked\r\n\r\nx\r\nabc" + GET,
    "headers of 40 kB": LIVE + HOST + b"X: " + b"a" * 40000 + b"\r\n\r\n" + GET,
    "a path of 40 kB": b"GET /v2/" + b"a" * 40000 + b" HTTP/1.1\r\n" + HOST + b"\r\n" + GET,
    "a path with a blank": b"GET /v2/health/live x HTTP/1.1\r\n" + HOST + b"\r\n" + GET,
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + GET,
}


def ask(port, data, statuses=0):
    """The statuses of what came until the server closed, or all `statuses` were there."""
    client = socket.create_connection(("127.0.0.1", port), 30)
    heard, closed = b"", False
    found = []
    try:
        client.sendall(data)
        while not closed and not (statuses and len(found) >= statuses):
            part = client.recv(65536)
            closed = not part
            heard += part
            found = [int(one) for one in re.findall(rb"HTTP/1\.[01] (\d+)", heard)]
    except (ConnectionResetError, BrokenPipeError):
        closed = True
    except TimeoutError:
        pass
    return found, closed


def main(port):
    faults = 0

    def law(holds, name, seen):
        nonlocal faults
        faults += not holds
        print(f"PASS {name}" if holds else f"{seen}\nFAIL {name}")

    for name, data in WRONG.items():
        found, closed = ask(port, data)
        # The library writes the head of an error that it finds twice.
        law(closed and found in ([400], [400, 400]),
            f"HTTP: {name}: 400, and the connection is closed", (found, closed))
    for name, data in ENDS.items():
        found, closed = ask(port, data)
        law(closed and len(found) <= 1 and 200 not in found,
            f"HTTP: {name}: an error, and the connection is closed", (found, closed))
    for name, (data, statuses) in RIGHT.items():
        seen = ask(port, data, len(statuses))
        law(seen[0] == statuses, f"HTTP: {name}: {statuses}", seen)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
