"""Writes other programs' HDF5 files of which one part is not whole, for h5_whole.sh. Each line of
its output is a cell of the matrix: SET STORAGE FAULT FILE, then words of the message."""
import os

import h5py
import numpy as np

ROWS = 24
pixels = np.random.default_rng(1).integers(0, 256, (ROWS, 8, 8, 3), np.uint8)
values = {"images": pixels, "labels": np.arange(ROWS) % 3}
names = {"images": "pixels", "labels": "kinds"}  # in sources: so that no other set is one's own


def raw(folder, which, fault, rows=slice(None)):
    """[(file, offset, bytes)] of values in a raw file."""
    data, path = values[which][rows], f"{folder}/{which}.{rows.start or 0}.raw"
    return data, [(path, 0, data.nbytes)]


def spoil(path, fault):
    if fault == "missing":
        os.remove(path)
    elif fault == "unreadable":
        os.chmod(path, 0)
    elif fault == "cut":
        os.truncate(path, os.path.getsize(path) // 2)
    elif fault == "never written":
        os.truncate(path, 0)


def external(file, name, folder, which, fault, rows=slice(None)):
    data, where = raw(folder, which, fault, rows)
    made = file.create_dataset(name, data.shape, data.dtype, external=where)
    made[...] = data
    file.flush()
    return where[0][0]


def plain(file, folder, which, fault):
    data = values[which]
    if fault == "never written":
        file.create_dataset(which, data.shape, data.dtype)
    elif fault == "shorter":
        file[which] = data[:20]
    elif fault != "missing":
        file[which] = data


def chunked(file, folder, which, fault):
    data = values[which]
    if fault == "missing":
        return
    rows = 20 if fault == "shorter" else ROWS
    made = file.create_dataset(which, (rows, *data.shape[1:]), data.dtype,
                               chunks=(4, *data.shape[1:]), compression="gzip")
    if fault == "hole":
        made[:8], made[12:] = data[:8], data[12:]
    elif fault != "never written":
        made[...] = data[:rows]


def virtual(file, folder, which, fault, inner=None):
    data = values[which]
    half, source = ROWS // 2, f"{folder}/{which}.12.h5"
    layout = h5py.VirtualLayout(data.shape, data.dtype)
    name = names[which]
    for first in 0, half:
        path, rows = f"{folder}/{which}.{first}.h5", slice(first, first + half)
        spoilt = first > 0
        with h5py.File(path, "w") as part:
            if spoilt and fault == "shorter":
                rows = slice(first, first + half - 4)
            called = "other" if spoilt and fault == "renamed" else name
            if inner:
                where = external(part, called, folder, which, fault, rows)
            elif spoilt and fault == "never written":
                part.create_dataset(called, data[rows].shape, data.dtype)
            else:
                part[called] = data[rows]
        begin = first - 4 if spoilt and fault == "hole" else first
        layout[begin:begin + half] = h5py.VirtualSource(
            os.path.basename(path), name, (half, *data.shape[1:]))
    file.create_virtual_dataset(which, layout)
    if inner and fault in ("missing", "unreadable", "cut", "never written"):
        return spoil(where, fault)
    if fault != "never written":
        spoil(source, fault)


def over_external(file, folder, which, fault):
    virtual(file, folder, which, fault, inner=True)


def in_raw_file(file, folder, which, fault):
    spoil(external(file, which, folder, which, fault), fault)


storages = {"plain": plain, "chunked": chunked, "virtual": virtual, "external": in_raw_file,
            "virtual-external": over_external}
# What cannot be: a hole in values that lie in one piece; another name of what has no name, or is
# the only name; the file itself that is missing, unreadable or cut, which is the whole file.
cannot = {("plain", "unreadable"), ("plain", "hole"), ("plain", "renamed"), ("chunked", "renamed"),
          ("chunked", "unreadable"), ("external", "hole"), ("external", "renamed"),
          ("external", "shorter")}
faults = "none", "missing", "unreadable", "hole", "renamed", "shorter", "never written", "cut"
words = {"missing": "No such file|is missing|holds no ", "unreadable": "Permission denied",
         "hole": "4 of the 24 rows|1 of the 6 chunks", "renamed": "has no data set",
         "shorter": "does not have|is not one label|holds no labels", "cut": "trunc|short",
         "never written": "never written|too short"}

for which in values:
    other = "labels" if which == "images" else "images"
    for storage, write in storages.items():
        for fault in faults:
            if (storage, fault) in cannot:
                continue
            folder = f"{which}/{storage}/{fault.replace(' ', '-')}"
            os.makedirs(folder)
            path = f"{folder}/a.h5"
            with h5py.File(path, "w") as file:
                file[other] = values[other]
                write(file, folder, which, fault)
            if fault == "cut" and storage in ("plain", "chunked"):
                spoil(path, fault)
            print(f"{which}\t{storage}\t{fault}\t{path}\t{words.get(fault, '')}")
