"""edit_checkpoint.py FROM TO CHANGE VALUE: writes the checkpoint FROM with one change as TO, with a
right checksum:

    drop NAME       without this data set or attribute
    config TEXT     with this configuration
    network TEXT    with this network
    network @FILE   with the network in this file
    texts NAME      with six texts of eight bytes as this attribute, where one text belongs
    format NUMBER   of this format
"""

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


source, target, change, value = sys.argv[1:]
with open(source, "rb") as file:
    first_line = file.readline()
with h5py.File(source) as right, h5py.File(target, "w", userblock_size=USER_BLOCK) as wrong:
    for name, what in right.attrs.items():
        if (change, value) != ("drop", name):
            wrong.attrs[name] = what
    for name in right:
        if (change, value) != ("drop", name):
            right.copy(name, wrong)
    if change in ("config", "network"):
        text = open(value[1:], "rb").read() if value.startswith("@") else value.encode()
        del wrong[change]
        wrong[change] = np.frombuffer(text, np.uint8)
    if change == "texts":
        del wrong.attrs[value]
        wrong.attrs.create(value, np.full(6, b"overflow", "S8"))
if change == "format":
    first_line = f"lockstep checkpoint {value}\n".encode()
with open(target, "r+b") as file:
    file.seek(USER_BLOCK)
    rest = file.read()
    file.seek(0)
    file.write(
        (first_line + f"crc32c 0x{crc32c(rest):08x}\nbytes {len(rest)}\n".encode()).ljust(
            USER_BLOCK, b"\0"
        )
    )
