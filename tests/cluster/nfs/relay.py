"""relay.py PORT TO FILE: passes connections on to a port of this machine. While FILE exists, what
comes back from there is lost, and its bytes are printed. It speaks to the server from ports below
1024, as NFS wants it."""

import os
import socket
import sys
import threading


def pump(source, target, lost):
    try:
        while data := source.recv(65536):
            if lost and os.path.exists(lost):
                print(len(data), flush=True)
            else:
                target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def connection(port):
    for own in range(500, 1000):
        server = socket.socket()
        try:
            server.bind(("127.0.0.1", own))
            server.connect(("127.0.0.1", port))
            return server
        except ConnectionRefusedError:
            server.close()
            return None  # it is down; the guest tries again
        except OSError:
            server.close()  # this port is in use
    return None


def main(port, to, lost):
    listener = socket.create_server(("", port), backlog=64)
    while True:
        guest, _ = listener.accept()
        server = connection(to)
        if server is None:
            guest.close()
            continue
        for ends in ((guest, server, None), (server, guest, lost)):
            threading.Thread(target=pump, args=ends, daemon=True).start()


main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
