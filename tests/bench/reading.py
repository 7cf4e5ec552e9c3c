#!/usr/bin/python3
"""Measures reading rows, compared with pread and h5py on the same cores:

  tests/bench/reading.py [raw] [small] [gzip]          (all when none is named)

  raw    256 x 256 x 3 bytes, crop 224 and flip, compared with pread of the same bytes
  small  32 x 32 x 3 bytes, padded crop, flip and cutout
  gzip   chunks that h5py wrote (images with noise, gzip 4), in order, against one thread of h5py

BUILD=build, DIR=/dev/shm/lockstep-reading for the files, SECONDS=2 for each figure, ROUNDS=3. All
files are in the page cache. The contenders take turns; medians over the rounds.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import h5py
import numpy as np

BUILD = os.environ.get('BUILD', 'build')
DIR = os.environ.get('DIR', '/dev/shm/lockstep-reading')
SECONDS = os.environ.get('SECONDS', '2')
ROUNDS = int(os.environ.get('ROUNDS', '3'))


def crc32c_of_rows(rows):
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(rows.T):
        crc = (crc >> np.uint32(8)) ^ table[(crc ^ column) & 0xFF]
    return ~crc


def shard(name, rows, side):
    """A shard as data/FORMAT.md defines it."""
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (64, side, side, 3), np.uint8)
    labels = np.zeros(64, '<i4')
    crc = crc32c_of_rows(np.hstack([images.reshape(64, -1), labels.reshape(-1, 1).view(np.uint8)]))
    path = f'{DIR}/{name}.h5'
    with h5py.File(path, 'w') as f:
        f.attrs['format'], f.attrs['format_version'] = 'lockstep-shard', 2
        f.attrs['mean'] = f.attrs['stddev'] = np.full(3, 0.5, np.float32)
        f.create_dataset('images', (rows, side, side, 3), np.uint8)
        for row in range(0, rows, 64):
            f['images'][row:row + 64] = images[:min(64, rows - row)]
        f['labels'], f['crc32c'] = np.resize(labels, rows), np.resize(crc, rows)
        f.create_dataset('classes', data=['one'], dtype=h5py.string_dtype())
    return path


def chunked(name, rows, side, chunk):
    """Smooth images with some noise, which compress like photographs."""
    random = np.random.default_rng(1)
    base = random.integers(0, 256, (rows, side // 16, side // 16, 3)).repeat(16, 1).repeat(16, 2)
    images = np.clip(base + random.normal(0, 3, base.shape), 0, 255).astype(np.uint8)
    path = f'{DIR}/{name}.h5'
    with h5py.File(path, 'w') as f:
        f.create_dataset('images', data=images, chunks=(chunk, side, side, 3), compression='gzip')
        f['labels'] = np.zeros(rows, int)
    return path


def loader(path, workers, *options):
    result = f'{DIR}/result.json'
    subprocess.run(
        [
            f'{BUILD}/lockstep',
            'bench',
            'data',
            path,
            '--data.workers',
            str(workers),
            '--seconds',
            SECONDS,
            '--rounds',
            '1',
            '--loader-only',
            '--json',
            result,
            *options,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with open(result) as f:
        return json.load(f)['images_per_s']


def pread(path, row_bytes, threads):
    return float(
        subprocess.run(
            [f'{BUILD}/bench/pread', path, str(row_bytes), str(threads), SECONDS],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )


def by_h5py(path):
    with h5py.File(path) as f:
        images, done, start = f['images'], 0, time.perf_counter()
        chunk = images.chunks[0]
        while time.perf_counter() - start < float(SECONDS):
            first = done % len(images)
            done += len(images[first:first + chunk])  # its fastest way: whole chunks, in order
        return done / (time.perf_counter() - start)


def rounds(contenders):
    found = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, measure in contenders.items():
            found[name].append(measure())
    return {name: statistics.median(values) for name, values in found.items()}


def show(title, found, of):
    print(f'\n{title}\n')
    for name, rate in found.items():
        against = ', '.join(f'{rate / found[other]:.2f} x {other}' for other in of.get(name, []))
        print(f'| {name} | {rate:,.0f} rows/s | {against} |')


def raw():
    path = shard('raw', 2048, 256)
    options = ['--data.size', '224', '--data.crop', 'random', '--data.flip', 'true']
    mapped = options + ['--data.read', 'mmap']
    show('raw 256 x 256, crop 224, flip', rounds({
        'pread, 1 thread': lambda: pread(path, 196608, 1),
        'loader, 1 worker': lambda: loader(path, 1, *options),
        'loader, 1 worker, mmap': lambda: loader(path, 1, *mapped),
        'pread, 2 threads': lambda: pread(path, 196608, 2),
        'loader, 2 workers': lambda: loader(path, 2, *options),
        'loader, 2 workers, mmap': lambda: loader(path, 2, *mapped),
    }), {'loader, 1 worker': ['pread, 1 thread'], 'loader, 1 worker, mmap': ['pread, 1 thread'],
         'loader, 2 workers': ['pread, 2 threads', 'loader, 1 worker'],
         'loader, 2 workers, mmap': ['pread, 2 threads', 'loader, 1 worker, mmap']})


def small():
    path = shard('small', 50048, 32)
    options = ['--data.pad', '4', '--data.flip', 'true', '--data.cutout', '8', '--batch', '128']
    show('raw 32 x 32, padded crop, flip, cutout', rounds({
        'loader, 1 worker': lambda: loader(path, 1, *options),
        'loader, 1 worker, mmap': lambda: loader(path, 1, *options, '--data.read', 'mmap'),
        'loader, 2 workers': lambda: loader(path, 2, *options),
    }), {'loader, 2 workers': ['loader, 1 worker']})


def gzip():
    for chunk in (1, 16):
        path = chunked(f'gzip{chunk}', 1024, 128, chunk)
        options = ['--validation', '--data.cache-mb', '16']
        show(f'gzip, chunks of {chunk} row(s) of 128 x 128', rounds({
            'h5py, 1 thread': lambda: by_h5py(path),
            'loader, 1 worker': lambda: loader(path, 1, *options),
            'loader, 2 workers': lambda: loader(path, 2, *options),
        }), {'loader, 1 worker': ['h5py, 1 thread'],
             'loader, 2 workers': ['h5py, 1 thread', 'loader, 1 worker']})


def main():
    parts = {'raw': raw, 'small': small, 'gzip': gzip}
    wanted = sys.argv[1:] or list(parts)
    for name in wanted:
        if name not in parts:
            sys.exit(f'reading: "{name}" is not known; choose {" ".join(parts)}')
    os.makedirs(DIR, exist_ok=True)
    try:
        for name in wanted:
            parts[name]()
    finally:
        shutil.rmtree(DIR)


if __name__ == '__main__':
    main()
