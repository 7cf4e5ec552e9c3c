"""hostile_checkpoint.py CHECKPOINT OUT: writes a checkpoint whose checksum is right but whose header
is not. It has the header of CHECKPOINT, none of its tensors, and six texts of eight bytes where one
belongs."""

import sys

import h5py
import numpy as np

USER_BLOCK = 512


def crc32c(data):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


source, target = sys.argv[1:]
with h5py.File(source) as right, h5py.File(target, "w", userblock_size=USER_BLOCK) as wrong:
    for name, value in right.attrs.items():
        wrong.attrs[name] = value
    for name in ("config", "network", "classes"):
        right.copy(name, wrong)
    del wrong.attrs["backend"]
    wrong.attrs.create("backend", np.full(6, b"overflow", "S8"))
with open(target, "r+b") as file:
    file.seek(USER_BLOCK)
    rest = file.read()
    file.seek(0)
    file.write(f"lockstep checkpoint 3\ncrc32c 0x{crc32c(rest):08x}\nbytes {len(rest)}\n".encode().ljust(USER_BLOCK, b"\0"))
