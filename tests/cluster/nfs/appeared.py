"""appeared.py FOLDER: prints the names of files as they appear there, in their order."""

import ctypes
import os
import struct
import sys

created, moved_here = 0x100, 0x80


def main(folder):
    libc = ctypes.CDLL(None, use_errno=True)
    notices = libc.inotify_init()
    if libc.inotify_add_watch(notices, folder.encode(), created | moved_here) < 0:
        sys.exit(f"{folder}: {os.strerror(ctypes.get_errno())}")
    while data := os.read(notices, 1 << 16):
        while data:
            length = struct.unpack("iIII", data[:16])[3]
            print(data[16:16 + length].rstrip(b"\0").decode(), flush=True)
            data = data[16 + length:]


main(sys.argv[1])
