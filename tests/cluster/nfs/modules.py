"""modules.py FOLDER NAME...: loads kernel modules and those that they need, without modprobe."""

import ctypes
import errno
import os
import sys

finit_module = 313  # on x86-64


def load(folder, file, needs, loaded):
    if file in loaded:
        return
    loaded.add(file)
    for other in reversed(needs[file]):
        load(folder, other, needs, loaded)
    module = os.open(f"{folder}/{file}", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(finit_module, module, b"", 0) and ctypes.get_errno() != errno.EEXIST:
        sys.exit(f"{file}: {os.strerror(ctypes.get_errno())}")
    os.close(module)


def main(folder, names):
    needs = {}
    for line in open(f"{folder}/modules.dep"):
        file, others = line.rstrip("\n").split(":", 1)
        needs[file] = others.split()
    files = {os.path.basename(file).removesuffix(".ko"): file for file in needs}
    loaded = set()
    for name in names:
        load(folder, files[name], needs, loaded)


main(sys.argv[1], sys.argv[2:])
