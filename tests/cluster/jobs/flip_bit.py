"""flip_bit.py PID MODEL.safetensors: changes a bit of that model's weights in the memory of a rank."""
import json
import sys

pid, weights = sys.argv[1:]
with open(weights, "rb") as file:
    head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    first = file.tell() + head["fc.weight"]["data_offsets"][0]
    file.seek(first)
    wanted = file.read(64)
found = 0
with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
    for line in open(f"/proc/{pid}/maps"):
        ends, rights = line.split()[:2]
        begin, end = (int(one, 16) for one in ends.split("-"))
        if rights[:2] != "rw":
            continue
        memory.seek(begin)
        try:
            bytes_of = memory.read(end - begin)
        except OSError:
            continue
        at = bytes_of.find(wanted)
        while at >= 0:
            memory.seek(begin + at)
            memory.write(bytes([wanted[0] ^ 4]))
            found += 1
            at = bytes_of.find(wanted, at + 1)
sys.exit(not found)
