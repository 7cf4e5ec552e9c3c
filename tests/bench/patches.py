#!/usr/bin/env python3
"""Makes data sets in the form of BigEarthNet's Sentinel-2 patches, to measure with.

  patches.py FOLDER ROWS VALIDATION_ROWS    writes patches.h5, bytes.h5, high.h5 and three of
                                            validation

patches.h5: images [rows, 12, 120, 120] of uint16 from 1 to 15,596, channels first, whose bands have
means of 22 to 2,581; labels [rows, 19] of 0 and 1, which apply to 33 % down to 0.4 % of the rows.
The first 13 labels each say that the ratio of two bands is high, the others that one band has waves
of one length and direction. Brightness, a smooth field and noise say nothing. One row in 100 has a
stripe without data: 0 in all bands. bytes.h5: the same rows in bytes, of all bands by one range, 0
to 10,000, as reflectances become pictures. high.h5: their high bytes, as programs read numbers of
16 bits that only know 8.
"""
import pathlib
import sys

import h5py
import numpy as np

BANDS, SIDE, LABELS, RATIOS = 12, 120, 19, 13
MEANS = np.geomspace(22, 2581, BANDS)
WAVES = np.arange(1, LABELS, 3)  # which of the shares, in falling order, those of waves are
SHARES = np.geomspace(0.33, 0.004, LABELS)
SHARES = np.concatenate([np.delete(SHARES, WAVES), SHARES[WAVES]])
LARGEST, RANGE = 15596, 10000
OWN = 0.25  # deviation of the logarithm of a band's own level, of which ratios are made
WAVE = 0.12  # height of the waves, of the band's level
PIECE = 100


def pair(label):
    """The two bands of a ratio: each pair once, dim ones and bright ones."""
    return label % BANDS, (label * 5 + 3 + label // BANDS) % BANDS


def wave(label):
    """The band, and the wave's cycles in the image along both axes."""
    turn = (label - RATIOS) / (LABELS - RATIOS) * np.pi
    cycles = SIDE / (5 + label - RATIOS)
    return (label * 7) % BANDS, cycles * np.cos(turn), cycles * np.sin(turn)


def quantile(share, random=np.random.default_rng(0)):
    """Above which a normal number is with this probability."""
    return np.quantile(random.normal(size=1_000_000), 1 - share)


THRESHOLDS = [quantile(share) for share in SHARES[:RATIOS]]


def labelled(random, rows):
    """The bands' own levels as logarithms, and the labels."""
    levels = random.normal(0, OWN, (rows, BANDS))
    labels = np.zeros((rows, LABELS), np.uint8)
    for label, threshold in enumerate(THRESHOLDS):
        a, b = pair(label)
        labels[:, label] = levels[:, a] - levels[:, b] > threshold * OWN * 2**0.5
    labels[:, RATIOS:] = random.random((rows, LABELS - RATIOS)) < SHARES[RATIOS:]
    return levels, labels


def smooth(random, rows):
    """A field of 8 x 8 random numbers, between which it is linear."""
    coarse = random.normal(0, 0.3, (rows, 9, 9)).astype('f4')
    at = np.linspace(0, 8, SIDE, endpoint=False)
    low, part = at.astype(int), (at % 1).astype('f4')
    lines = coarse[:, low] * (1 - part)[:, None] + coarse[:, low + 1] * part[:, None]
    return lines[:, :, low] * (1 - part) + lines[:, :, low + 1] * part


def piece(random, rows):
    levels, labels = labelled(random, rows)
    logs = np.log(MEANS) + random.normal(0, 0.4, (rows, 1)) + levels
    images = logs.astype('f4')[:, :, None, None] + smooth(random, rows)[:, None]
    images += random.normal(0, 0.1, images.shape).astype('f4')
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    for row, label in np.argwhere(labels[:, RATIOS:]):
        band, down, right = wave(RATIOS + label)
        phase = random.random()
        images[row, band] += WAVE * np.sin(2 * np.pi * (down * y + right * x + phase))
    values = np.clip(np.exp(images).round(), 1, LARGEST).astype('u2')
    for row in np.flatnonzero(random.random(rows) < 0.01):
        begin = random.integers(0, SIDE - 30)
        values[row, :, :, begin:begin + random.integers(10, 30)] = 0
    return values, labels


KINDS = {  # how each file has the values
    'patches': lambda values: values,
    'bytes': lambda values: (np.minimum(values, RANGE) * (255 / RANGE)).round().astype('u1'),
    'high': lambda values: (values >> 8).astype('u1'),
}


def write(folder, ending, rows, seed):
    random = np.random.default_rng(seed)
    for kind, form in KINDS.items():
        with h5py.File(folder / f'{kind}{ending}.h5', 'w') as file:
            numbers = form(np.zeros(1, 'u2')).dtype
            file.create_dataset('images', (rows, BANDS, SIDE, SIDE), numbers)
            file.create_dataset('labels', (rows, LABELS), 'u1')
    for begin in range(0, rows, PIECE):
        end = min(begin + PIECE, rows)
        values, labels = piece(random, end - begin)
        for kind, form in KINDS.items():
            with h5py.File(folder / f'{kind}{ending}.h5', 'a') as file:
                file['images'][begin:end] = form(values)
                file['labels'][begin:end] = labels


def write_pixels(folder):
    """pixels.h5: the rows of patches.h5 with the channels last."""
    whole = folder / 'pixels.part'
    with h5py.File(folder / 'patches.h5') as planes, h5py.File(whole, 'w') as file:
        rows = len(planes['labels'])
        file.create_dataset('images', (rows, SIDE, SIDE, BANDS), 'u2')
        file['labels'] = planes['labels'][()]
        for begin in range(0, rows, PIECE):
            part = planes['images'][begin:begin + PIECE]
            file['images'][begin:begin + PIECE] = part.transpose(0, 2, 3, 1)
    whole.rename(folder / 'pixels.h5')


def main(folder, rows, validation_rows):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder, '', int(rows), 1)
    write(folder, '-val', int(validation_rows), 2)


if __name__ == '__main__':
    main(*sys.argv[1:])
