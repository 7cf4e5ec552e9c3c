"""lockstep's files in Python, with numpy and h5py alone. Copy this file to where you need it.

    Shards(data)          a data set of shards, row by row; torch's DataLoader takes it
    write_shards(folder)  arrays in memory as a data set for `lockstep train`
    state_dict(model)     a checkpoint's weights by torchvision's names; about() explains the rest
    metrics(run)          the records of a run, as arrays
    predictions(folder)   what `lockstep predict` wrote, as arrays

README.md, FORMAT.md and CHECKPOINT.md describe the files. What is wrong with one is a BadFile."""
from __future__ import annotations

import contextlib
import functools
import glob
import io
import json
import os
import re
from typing import Any, Callable, Iterator, Sequence

import h5py
import numpy as np

Path = str | os.PathLike[str]


class BadFile(Exception):
    """A file that cannot be used. The text is "FILE: what is wrong with it"."""


def _require(holds: Any, path: str, what: str) -> None:
    if not holds:
        raise BadFile(f"{path}: {what}")


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """What libraries say is wrong with a file gets its name."""
    try:
        yield
    except (OSError, LookupError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise BadFile(f"{path}: {error.args[-1]}") from error


def _file_in(folder: Path, name: str) -> str:
    return os.path.join(folder, name) if os.path.isdir(folder) else os.fspath(folder)


@functools.lru_cache(maxsize=64)
def _crc_tables(block: int) -> tuple[np.ndarray, np.ndarray]:
    """[256]: the next state for a byte; [4, 256]: what a state's bytes are after `block` zeros."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    later = np.arange(256, dtype=np.uint32) << np.array([[0], [8], [16], [24]], np.uint32)
    for _ in range(block):
        later = (later >> 8) ^ table[later & 0xFF]
    return table, later


def crc32c(rows: np.ndarray) -> np.ndarray:
    """CRC-32C of each row of a uint8 array [rows, bytes] of at least 4 bytes: uint32 [rows].
    It is linear: the sums of a row's blocks are computed together, then joined."""
    block = 1 << (rows.shape[1].bit_length() + 1) // 2
    blocks = -(-rows.shape[1] // block)
    table, later = _crc_tables(block)
    padded = np.zeros((len(rows), blocks * block), np.uint8)  # zeros in front change nothing
    padded[:, -rows.shape[1]:] = rows
    padded[:, -rows.shape[1]:][:, :4] ^= 0xFF  # the initial value
    crcs = np.zeros((len(rows), blocks), np.uint32)
    for column in np.moveaxis(padded.reshape(len(rows), blocks, block), 2, 0):
        crcs = (crcs >> 8) ^ table[(crcs ^ column) & 0xFF]
    total = np.zeros(len(rows), np.uint32)
    for one in crcs.T:
        total = one ^ later[0][total & 0xFF] ^ later[1][total >> 8 & 0xFF] \
            ^ later[2][total >> 16 & 0xFF] ^ later[3][total >> 24]
    return ~total


def _row_crcs(images: np.ndarray, said: np.ndarray) -> np.ndarray:
    """`said`: labels [rows], or targets [rows, outputs], of which a row's own sum counts."""
    if said.ndim == 2:
        said = crc32c(np.where(np.isnan(said), np.nan, said).astype("<f4").view(np.uint8))
    labels = said.astype("<u4").reshape(-1, 1).view(np.uint8)
    images = np.ascontiguousarray(images, images.dtype.newbyteorder("<"))
    return crc32c(np.hstack([images.reshape(len(images), -1).view(np.uint8), labels]))


_ELEMENTS = "uint8", "uint16", "int16", "float16", "float32"
_TASKS = "classes", "labels", "values"


def _moments(images: np.ndarray, no_data: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each channel, of value / 255 where they are uint8, without no data."""
    unit, channels = 255 if images.dtype == np.uint8 else 1, images.shape[3]
    count, total, squares = np.zeros((3, channels))
    mean: Any = 0
    for seen in total, squares:  # the second time round of the distance from the mean
        for image in images:
            values = image.reshape(-1, channels).astype(np.float64)
            data = ~_stands_for(image.reshape(-1, channels), no_data)
            count += data.sum(0) if seen is total else 0
            seen += np.where(data, values if seen is total else (values - mean) ** 2, 0).sum(0)
        mean = total / np.maximum(count, 1)
    return mean / unit, np.sqrt(squares / np.maximum(count, 1)) / unit


def _stands_for(values: np.ndarray, no_data: float | None) -> np.ndarray:
    """Where values stand for no data: those equal to it, and NaN if it is NaN."""
    if no_data is None:
        return np.zeros(values.shape, bool)
    return np.isnan(values) if np.isnan(no_data) else values == np.float32(no_data)


def _fit(targets: np.ndarray, rows: int, outputs: Sequence[str], task: str) -> bool:
    """A number for each row and output, or NaN; of labels 0 or 1."""
    known = targets[~np.isnan(targets)]
    return targets.shape == (rows, len(outputs)) and bool(
        np.all(np.isin(known, (0, 1)) if task == "labels" else np.isfinite(known)))


class _Shard:
    """One file, closed: what all files of a set share, its labels, and where its rows are."""

    def __init__(self, path: str) -> None:
        self.path = path
        with _named(path), h5py.File(path, "r") as file:
            _require("format" in file.attrs, path,
                     "it is another HDF5 file, no shard: lockstep pack --repack makes shards of it")
            kind = f"{np.asarray(file.attrs['format']).astype(str)} {file.attrs['format_version']}"
            jpeg = kind == "lockstep-jpeg-shard 1"
            wide = kind == "lockstep-shard 3"
            _require(jpeg or wide or kind == "lockstep-shard 2", path,
                     f"it is no known shard, but {kind}")
            task = str(np.asarray(file.attrs["task"] if wide else "classes").astype(str))
            _require(task in _TASKS, path, f"it has the task {task}, not one of {_TASKS}")
            self.labels, self.crcs = file["labels"][()].astype(np.int32), file["crc32c"][()]
            self.targets = None if task == "classes" else file["targets"][()].astype(np.float32)
            self.said = self.labels if self.targets is None else self.targets
            images, classes = file["jpegs" if jpeg else "images"], file["classes"].asstr()[()]
            shape = () if jpeg else images.shape[1:]
            row = max(1, int(np.prod(shape)) * images.dtype.itemsize)
            self.places = file["offsets"][()] if jpeg else np.arange(len(images) + 1,
                                                                     dtype=np.uint64) * row
            names = file["channels"].asstr()[()] if wide and "channels" in file else ()
            no_data = np.float32(file.attrs["no_data"]) if "no_data" in file.attrs else ()
            self.facts = jpeg, shape, images.dtype.newbyteorder("="), task, str(no_data), *(
                tuple(one) for one in (file.attrs["mean"], file.attrs["stddev"], classes, names))
            self.dtype, self.no_data = images.dtype, no_data
            self.begin = images.id.get_offset()
            _require(self.begin is not None, path,
                     "its images are not in one piece: lockstep pack --repack writes them so")
            _require(len(self.labels) == len(self.crcs) == len(self.places) - 1 > 0
                     and images.dtype.name in (_ELEMENTS if wide else _ELEMENTS[:1])
                     and images.ndim == (1 if jpeg else 4)
                     and self.places[-1] <= images.size * images.dtype.itemsize
                     and np.all(self.places[:-1] < self.places[1:])
                     and 0 <= self.labels.min() and self.labels.max() < len(classes)
                     and (self.targets is None or _fit(self.targets, len(images), classes, task)),
                     path, "its data sets do not fit each other")


def _missing(paths: list[str]) -> str:
    """A shard that is not there, though the names of others count it; empty: all are."""
    names = {os.path.basename(path) for path in paths}
    parts = [re.fullmatch(r"(.*-)(\d{5,9})(-of-(\d{5,9})\..*)", name) for name in names]
    return next((name for part in filter(None, parts) for number in range(int(part[4]))
                 if (name := f"{part[1]}{number:0{len(part[2])}}{part[3]}") not in names), "")


class _Descriptor:
    """An open file. It closes when no name holds it: two threads may have opened it at once."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class Shards:
    """A data set of shards: a file, a folder of them, or a pattern such as 'part*.h5'.

    len() counts rows; [row] gives (image, label), or (image, targets) where `task` is not classes:
    float32 for each of `classes`, a label of 0 or 1 or a value; NaN: not known. The image is
    [height, width, channels] of uint8 or, in shards of version 3, of other numbers; or the bytes of
    a JPEG, which `decode` makes pixels, by Pillow. With `normalised` it is as networks take it:
    float32 [channels, height, width], (value - mean) / stddev, of uint8 value / 255, and 0 for no
    data. `transform` gets it last. `check` compares each row with its CRC-32C. It can be pickled. A
    process opens a file when it first reads a row of it, keeps at most 64 open, and reads at
    positions: so processes and threads do not disturb each other."""

    def __init__(self, data: Path, *, decode: bool = False, normalised: bool = False,
                 transform: Callable[[Any], Any] | None = None, check: bool = False) -> None:
        data = os.fspath(data)
        pattern = os.path.join(glob.escape(data), "*.h5") if os.path.isdir(data) else data
        paths = [data] if os.path.isfile(data) else sorted(glob.glob(pattern), key=os.fsencode)
        _require(paths, data, "there is no shard")
        # A pattern may leave some out, and pack did where it skipped all images of one.
        whole = os.path.isdir(data) and not os.path.exists(os.path.join(data, "..", "skipped.txt"))
        missing = _missing(paths) if whole else ""
        _require(not missing, data, f"{missing} is missing, which the names of the others count")
        self.decode, self.normalised = decode or normalised, normalised
        self.transform, self.check = transform, check
        self._shards = [_Shard(path) for path in paths]
        for one in self._shards:
            _require(one.facts == self._shards[0].facts, one.path, f"it differs from {paths[0]}")
        self.is_jpeg, self.shape, self.dtype, self.task, _, mean, stddev, classes, names = \
            self._shards[0].facts
        no_data = self._shards[0].no_data
        self.channels, self.no_data = list(names), None if no_data == () else float(no_data)
        self.mean, self.stddev, self.classes = np.float32(mean), np.float32(stddev), list(classes)
        self.labels = np.concatenate([one.labels for one in self._shards])  # int32 [rows]
        self.targets = None if self.task == "classes" else np.concatenate(
            [one.targets for one in self._shards])  # float32 [rows, outputs]
        self._firsts = np.cumsum([0, *(len(one.labels) for one in self._shards)])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        row = range(len(self))[row]
        number = int(np.searchsorted(self._firsts, row, "right")) - 1
        shard, at = self._shards[number], row - int(self._firsts[number])
        first, last = map(int, shard.places[at:at + 2])
        image: Any = np.empty(last - first, np.uint8)
        with _named(shard.path):
            read = os.preadv((held := self._files(number)).number, [image], shard.begin + first)
        _require(read == last - first, shard.path, f"it is cut off in row {at}")
        if self.check:
            _require(_row_crcs(image[None], shard.said[at:at + 1])[0] == shard.crcs[at],
                     shard.path, f"row {at} is damaged")
        image = image.tobytes() if self.is_jpeg else image.view(shard.dtype).astype(
            self.dtype, copy=False).reshape(self.shape)
        if self.is_jpeg and self.decode:
            from PIL import Image
            with _named(f"{shard.path}: row {at}"):
                pixels = Image.open(io.BytesIO(image)).convert(["L", "RGB"][len(self.mean) > 1])
            image = np.array(pixels).reshape(pixels.height, pixels.width, -1)
        if self.normalised:
            values = image / np.float32(255) if self.dtype == np.uint8 else np.float32(image)
            values = (values - self.mean) / self.stddev
            values[_stands_for(image, self.no_data)] = 0
            image = values.transpose(2, 0, 1).copy()
        said = int(shard.labels[at]) if shard.targets is None else shard.targets[at].copy()
        return (self.transform(image) if self.transform else image), said

    @functools.cached_property
    def _files(self) -> Callable[[int], _Descriptor]:
        flags, paths = os.O_RDONLY | os.O_CLOEXEC, [one.path for one in self._shards]
        return functools.lru_cache(64)(lambda number: _Descriptor(os.open(paths[number], flags)))

    def close(self) -> None:
        """Closes all files. Reading opens them again."""
        self.__dict__.pop("_files", None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_files"}


def _fill(file: h5py.File, images: np.ndarray, said: np.ndarray,
          names: dict[str, Sequence[str]]) -> None:
    file["images"] = images
    file["labels"] = np.zeros(len(said), np.int32) if said.ndim == 2 else said.astype(np.int32)
    if said.ndim == 2:
        file["targets"] = said
    file["crc32c"] = np.concatenate([_row_crcs(images[k:k + 256], said[k:k + 256])
                                     for k in range(0, len(images), 256)])
    for item, texts in names.items():
        if len(texts) > 0:
            file.create_dataset(item, data=list(texts), dtype=h5py.string_dtype())


def _said(labels: np.ndarray, rows: int, outputs: Sequence[str], task: str,
          folder: str) -> np.ndarray:
    """What rows say, as a shard has it."""
    _require(task in _TASKS, folder, f"the task {task} is not one of {_TASKS}")
    if task == "classes":
        _require(labels.shape == (rows,) and labels.dtype.kind in "iu" and labels.min() >= 0
                 and labels.max() < len(outputs), folder,
                 f"labels must be {rows} whole numbers from 0 to {len(outputs) - 1}")
        return labels
    _require(_fit(labels := labels.astype(np.float32), rows, outputs, task), folder,
             f"{task} must be [{rows}, {len(outputs)}] numbers, "
             f"{'0 or 1' if task == 'labels' else 'finite'}, or NaN where they are not known")
    return labels


def write_shards(folder: Path, images: np.ndarray, labels: Any, classes: Sequence[str], *,
                 task: str = "classes", like: Shards | None = None, rows_per_shard: int = 1 << 16,
                 channels: Sequence[str] = (), no_data: float | None = None) -> list[str]:
    """Writes arrays as shards, in their order, and returns the files' names.

    images: [rows, height, width, channels], or without channels, of uint8, uint16, int16, float16
    or float32. labels: [rows], from 0; classes: their names. With the `task` labels or values they
    are [rows, classes]: 0 or 1 for each of several labels, or values; NaN: not known. `channels`:
    the channels' names; `no_data`: the value (or NaN) that stands for none. `like`: the training
    set, whose mean and deviation, and the last two, a validation set has.
    A folder that has shards is an error. An error leaves no file."""
    folder, images, labels = os.fspath(folder), np.asarray(images), np.asarray(labels)
    images = images[..., None] if images.ndim == 3 else images
    _require(images.dtype.name in _ELEMENTS and images.ndim == 4 and images.size, folder,
             f"images are {images.dtype} {images.shape}, not [rows, height, width, channels] of "
             f"{', '.join(_ELEMENTS)}")
    height, width, count = images.shape[1:]  # many channels are fewer than rows and columns
    _require(count <= 4 or count <= 64 and count < min(height, width), folder,
             f"images are {images.shape}: 1 to 64 channels come last, as by .transpose(0, 2, 3, 1)")
    _require(like is None or isinstance(like, Shards), folder,
             "like is the training set, opened: like=Shards(its folder)")
    labels = _said(labels, len(images), classes, task, folder)
    _require(not glob.glob(os.path.join(glob.escape(folder), "*.h5")), folder, "it has shards")
    if like:
        channels, no_data = channels or like.channels, like.no_data if no_data is None else no_data
    _require(len(channels) in (0, count), folder, f"{len(channels)} names of {count} channels")
    _require(all(np.all(np.isfinite(one) | _stands_for(one, no_data)) for one in images), folder,
             "images have NaN or infinite numbers")
    mean, stddev = (like.mean, like.stddev) if like else _moments(images, no_data)
    _require(np.all(stddev > 0), folder, "a channel has one value only")
    no_data = None if no_data is None else float(np.float32(no_data))
    same = not like or (like.task, like.classes, len(mean), like.channels, like.dtype,
                        str(like.no_data)) == (task, list(classes), count, list(channels),
                                               images.dtype, str(no_data))
    _require(same, folder, "its task, classes or channels are not those of the training set")
    wide = images.dtype != np.uint8 or len(channels) > 0 or no_data is not None or task != "classes"
    more: dict[str, Any] = {"task": task} if wide else {}
    more |= {} if no_data is None else {"no_data": np.float32(no_data)}
    os.makedirs(folder, exist_ok=True)
    files, parts = {}, range(0, len(images), rows_per_shard)
    try:
        for number, first in enumerate(parts):
            path = os.path.join(folder, f"shard-{number:05}-of-{len(parts):05}.h5")
            files[temporary := f"{path}.tmp{os.getpid()}"] = path
            some, ours = (of[first:first + rows_per_shard] for of in (images, labels))
            with h5py.File(temporary, "w") as file:
                file.attrs.update(
                    format="lockstep-shard", format_version=3 if wide else 2,
                    mean=np.float32(mean), stddev=np.float32(stddev), **more)
                _fill(file, some, ours, {"classes": classes, "channels": channels})
            with open(temporary, "rb") as written:
                os.fsync(written.fileno())
        for temporary, path in files.items():
            os.rename(temporary, path)
    finally:
        for temporary in filter(os.path.exists, files):
            os.unlink(temporary)
    return list(files.values())


@contextlib.contextmanager
def _checkpoint(model: Path) -> Iterator[h5py.File]:
    """A checkpoint, or the best one of a run's folder, once its checksum is found right."""
    path = _file_in(model, "checkpoints/best.h5")
    with _named(path):
        whole = np.fromfile(path, np.uint8)
    match = re.match(rb"lockstep checkpoint [3-7]\ncrc32c 0x(.{8})\nbytes (\d+)\n"
                     rb"(?:then (\d+)\n)?\0", whole[:512].tobytes())
    _require(match and len(whole) > 1024, path, "it is no checkpoint of format 3 to 7")
    sum_of_part, part, more = match.groups(b"0")
    end = 512 + int(part)
    _require(len(whole) == end + int(more)
             and b"%08x" % crc32c(whole[None, 512:end])[0] == sum_of_part, path,
             "it is torn or was altered: its checksum does not fit")
    with _named(path), h5py.File(path, "r") as file:
        yield file


def about(model: Path) -> dict[str, Any]:
    """What explains a checkpoint, or the best one of a run: attributes, `classes` and `network`."""
    with _checkpoint(model) as file:
        return {**{name: value[0] if np.size(value) == 1 else value
                   for name, value in file.attrs.items()},
                "network": json.loads(file["network"][()].tobytes()),
                "classes": file["classes"].asstr()[()].tolist()}


def state_dict(model: Path, average: bool = False) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint, or of the best one of a run, as `lockstep export` writes them:
    torchvision's names and order, with num_batches_tracked. `average`: those of `optim.ema`."""
    tensors = {}
    with _checkpoint(model) as file:
        weights = file["ema" if average else "weights"]
        for node in json.loads(file["network"][()].tobytes())["nodes"]:
            for what in "weight", "bias", "running_mean", "running_var":
                if (name := f"{node['name']}.{what}") in weights:
                    tensors[name] = weights[name][()]
            if node["op"] == "batch_norm":
                steps = np.array(file.attrs["step"], np.int64).reshape(())
                tensors[f"{node['name']}.num_batches_tracked"] = steps
    return tensors


def metrics(run: Path) -> dict[str, dict[str, np.ndarray]]:
    """The records of a run by kind: metrics(run)["step"]["loss"]. Each field is an array over the
    records of its kind, in order; a number that is missing is NaN. Fields inside of a field are
    joined by a point (metrics(run)["ranks"]["data.max_ms"]). A line without its end is left out."""
    path, kinds = _file_in(run, "metrics.jsonl"), {}
    with _named(path), open(path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]
    for number, line in enumerate(lines, 1):
        with _named(f"{path}: line {number}"):
            record = {field + (f".{inner}" if inner else ""): one
                      for field, value in json.loads(line).items()
                      for inner, one in (value if isinstance(value, dict) else {"": value}).items()}
            kinds.setdefault(record.pop("kind"), []).append(record)
    return {kind: {name: _column([one.get(name) for one in records])
                   for name in dict.fromkeys(name for one in records for name in one)}
            for kind, records in kinds.items()}


def _column(values: list[Any]) -> np.ndarray:
    if any(isinstance(value, (str, list)) for value in values):
        return np.array([*values, None], object)[:-1]
    return np.array([np.nan if value is None else value for value in values])


def predictions(folder: Path) -> dict[str, np.ndarray]:
    """The data sets of predictions.h5 (README.md lists them) by name; texts are str, where bytes
    that are not UTF-8 are as in Python's names of files (surrogateescape)."""
    path = _file_in(folder, "predictions.h5")
    with _named(path), h5py.File(path, "r") as file:
        return {name: (item.asstr(errors="surrogateescape") if item.dtype.kind in "SO" else
                       item)[()] for name, item in file.items()}
