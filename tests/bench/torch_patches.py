#!/usr/bin/env python3
"""PyTorch on data sets that patches.py makes.

  torch_patches.py train TRAINING VALIDATION RECIPE    trains a network; RECIPE is JSON
  torch_patches.py load TRAINING WORKERS BATCH SECONDS    DataLoader over h5py, as floats

Prints JSON: the mean average precision and the seconds of an epoch, or rows/s.
"""
import json
import math
import sys
import time

import h5py
import numpy as np
import torch
from torch.nn import functional as F

import torch_networks


class Rows:
    """A set in memory, normalised by its own mean and deviation, in which 0 is no data."""

    def __init__(self, path, statistics=None):
        with h5py.File(path) as file:
            self.images = torch.from_numpy(file['images'][()])
            self.labels = torch.from_numpy(file['labels'][()]).float()
        self.mean, self.deviation = statistics or self.of_rows(self.images[:1024])

    @staticmethod
    def of_rows(images):
        """Of each channel, without no data."""
        channels = [images[:, c].double() for c in range(images.shape[1])]
        known = [channel[channel != 0] for channel in channels]
        return [torch.stack([form(one) for one in known]).float()[:, None, None]
                for form in (torch.mean, torch.std)]

    def batch(self, rows, places, side):
        """A part of each row; where a place is negative, mirrored."""
        parts = []
        for row, (top, left, mirrored) in zip(rows, places):
            part = self.images[row, :, top:top + side, left:left + side].float()
            part = torch.where(part == 0, 0, (part - self.mean) / self.deviation)
            parts.append(part.flip(2) if mirrored else part)
        images = torch.stack(parts).to(memory_format=torch.channels_last)
        return images, self.labels[rows]


def begin(network):
    """torchvision's first weights."""
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, mode='fan_out', nonlinearity='relu')


def rate(recipe, step, steps, warm_up):
    if step < warm_up:
        return recipe['lr'] * (step + 1) / warm_up
    return recipe['lr'] * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up)))


def average_precision(network, rows, recipe):
    from sklearn.metrics import average_precision_score
    network.eval()
    side = recipe['side']
    centre = (rows.images.shape[2] - side) // 2
    scores = []
    with torch.no_grad():
        for part in torch.arange(len(rows.labels)).split(100):
            images, _ = rows.batch(part, [(centre, centre, False)] * len(part), side)
            scores.append(network(images))
    scores, labels = torch.cat(scores).numpy(), rows.labels.numpy()
    some = labels.any(0)
    return float(average_precision_score(labels[:, some], scores[:, some], average='macro'))


def train(training, validation, recipe):
    recipe = json.loads(recipe)
    torch.set_num_threads(recipe['threads'])
    torch.manual_seed(recipe['seed'])
    random = np.random.default_rng(recipe['seed'])
    rows = Rows(training)
    network, _, _ = torch_networks.resnet(recipe['model'], rows.images.shape[1],
                                          rows.labels.shape[1])
    begin(network)
    network = network.to(memory_format=torch.channels_last).train()
    rule = torch.optim.SGD(network.parameters(), lr=1, momentum=recipe['momentum'],
                           weight_decay=recipe['weight_decay'])
    batch, side = recipe['batch'], recipe['side']
    a_epoch = len(rows.labels) // batch
    steps, warm_up = recipe['epochs'] * a_epoch, recipe['warm_up'] * a_epoch
    room = rows.images.shape[2] - side + 1
    began = time.perf_counter()
    for step in range(steps):
        if step % a_epoch == 0:
            order = random.permutation(len(rows.labels))
        taken = order[step % a_epoch * batch:][:batch]
        places = np.stack([random.integers(0, room, batch), random.integers(0, room, batch),
                           random.integers(0, 2, batch)], 1)
        images, labels = rows.batch(torch.from_numpy(taken), places, side)
        for group in rule.param_groups:
            group['lr'] = rate(recipe, step, steps, warm_up)
        rule.zero_grad(set_to_none=True)
        F.binary_cross_entropy_with_logits(network(images), labels).backward()
        rule.step()
    seconds = time.perf_counter() - began
    validated = Rows(validation, (rows.mean, rows.deviation))
    return {'mAP': average_precision(network, validated, recipe),
            'epoch_s': seconds / recipe['epochs'], 'torch': torch.__version__}


class Stored(torch.utils.data.Dataset):
    """Rows of a file, which each worker opens; as floats, normalised."""

    def __init__(self, path):
        self.path, self.file = path, None
        with h5py.File(path) as file:
            self.count = len(file['labels'])
            some = file['images'][:100].astype('f4')
        self.mean = torch.from_numpy(some.mean((0, 2, 3)))[:, None, None]
        self.deviation = torch.from_numpy(some.std((0, 2, 3)))[:, None, None]

    def __len__(self):
        return self.count

    def __getitem__(self, row):
        if self.file is None:
            self.file = h5py.File(self.path)
        image = torch.from_numpy(self.file['images'][row].astype('f4'))
        return (image - self.mean) / self.deviation, torch.from_numpy(self.file['labels'][row])


def load(training, workers, batch, seconds):
    torch.set_num_threads(1)
    data = Stored(training)
    loader = torch.utils.data.DataLoader(data, batch_size=int(batch), shuffle=True, drop_last=True,
                                         num_workers=int(workers),
                                         persistent_workers=int(workers) > 0)
    for _ in loader:  # the workers start
        pass
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < float(seconds):  # whole epochs
        for images, _ in loader:
            done += len(images)
    return {'rows_per_s': done / (time.perf_counter() - began), 'torch': torch.__version__}


if __name__ == '__main__':
    print(json.dumps({'train': train, 'load': load}[sys.argv[1]](*sys.argv[2:])))
