#!/usr/bin/env python3
"""Makes class folders of PNGs that a small network tells apart:  flowers.py FOLDER IMAGES_OF_EACH"""
import pathlib
import random
import struct
import sys
import zlib

COLOURS = {"daisy": (235, 235, 225), "rose": (200, 30, 60), "violet": (110, 60, 200)}
WIDTH, HEIGHT = 48, 40


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(colour, draw):
    """A disc of the colour on green."""
    x0, y0, radius = draw.uniform(16, 32), draw.uniform(12, 28), draw.uniform(8, 14)
    lines = bytearray()
    for y in range(HEIGHT):
        lines.append(0)
        for x in range(WIDTH):
            inside = (x - x0) ** 2 + (y - y0) ** 2 < radius**2
            lines += bytes(
                min(255, max(0, c + draw.randint(-20, 20)))
                for c in (colour if inside else (40, 120, 50))
            )
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(lines), 1))
        + chunk(b"IEND", b"")
    )


folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
for name, colour in COLOURS.items():
    (folder / name).mkdir(parents=True)
    for i in range(count):
        (folder / name / f"{i + 1}.png").write_bytes(png(colour, random.Random(f"{name} {i}")))
