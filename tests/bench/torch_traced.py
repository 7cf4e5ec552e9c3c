#!/usr/bin/env python3
"""A training by PyTorch, instrumented as TraceML's documentation asks; alone/traceml.py runs it:

  traceml run tests/bench/torch_traced.py --args --data SET/train --batch 64 --figures FILE

It trains ResNet-20, or with --row-ms a model that has its parameters, but waits so long for each
row, as lockstep's clock backend does. Rows come from lockstep's shards; each is one pread. Several
ranks (torchrun's environment) sum their gradients by DDP over gloo; --batch counts the rows of all
of them. After --seconds rank 0 writes {"step_ms": mean, "steps": N, "loss": the last} to FILE.
"""
import argparse
import io
import json
import os
import pathlib
import time

import h5py
import torch
import traceml_ai as traceml
from torch import distributed, nn
from torch.nn import functional as F
from torch.utils import data

from torch_networks import resnet

STEPS_BEFORE = 10  # they are not in the mean
STEPS_TOGETHER = 20  # after as many the ranks agree on whether the time is over
ENDLESS = 10**9  # rows: no end of an epoch interrupts the loader's work


def as_stored(shape):
    """From a row's bytes to floats [channels, height, width]."""
    return lambda row: torch.frombuffer(bytearray(row), dtype=torch.uint8).view(
        shape).permute(2, 0, 1).float().div_(255)


def decoded(size, effects):
    """From a JPEG to floats [3, size, size]: a random crop, a flip, and costly effects if asked."""
    from PIL import Image
    from torchvision import transforms as t

    costly = [t.RandAugment(8), t.ColorJitter(0.4, 0, 0.4, 0.4)] if effects else []
    prepare = t.Compose([t.RandomResizedCrop(size), t.RandomHorizontalFlip(), *costly,
                         t.ToTensor()])
    return lambda row: prepare(Image.open(io.BytesIO(row)).convert('RGB'))


class Rows(data.Dataset):
    """The rows of a folder of shards, of pixels or of JPEGs, with their labels."""

    def __init__(self, folder, size, effects):
        self.places = []
        for path in sorted(folder.glob('*.h5')):
            with h5py.File(path) as file:
                jpeg = 'jpegs' in file
                images = file['jpegs' if jpeg else 'images']
                ends = file['offsets'][()].tolist() if jpeg else range(
                    0, images.size + 1, images.size // len(images))
                begin, labels = images.id.get_offset(), file['labels'][()].tolist()
                shape = images.shape[1:]
            descriptor = os.open(path, os.O_RDONLY)  # the loader's processes inherit it
            self.places += [(descriptor, begin + first, end - first, label)
                            for first, end, label in zip(ends, ends[1:], labels)]
        self.prepare = decoded(size, effects) if jpeg else as_stored(shape)

    def __len__(self):
        return len(self.places)

    def __getitem__(self, row):
        descriptor, first, length, label = self.places[row]
        return self.prepare(os.pread(descriptor, length, first)), label


class Wait(torch.autograd.Function):
    """Forward is a third of the time. The gradients are zeros."""

    @staticmethod
    def forward(context, images, row_ms, *weights):
        context.seconds = row_ms / 1e3 * len(images)
        context.save_for_backward(*weights)
        time.sleep(context.seconds / 3)
        return images.new_zeros(len(images), 10)

    @staticmethod
    def backward(context, _):
        time.sleep(context.seconds * 2 / 3)
        return None, None, *map(torch.zeros_like, context.saved_tensors)


class Waiting(nn.Module):
    def __init__(self, network, row_ms):
        super().__init__()
        self.weights, self.row_ms = nn.ParameterList(network.parameters()), row_ms

    def forward(self, images):
        return Wait.apply(images, self.row_ms, *self.weights)


def loader_of(options, rank, ranks):
    rows = Rows(options.data, options.size, options.effects)
    order = data.RandomSampler(rows, replacement=True, num_samples=ENDLESS,
                               generator=torch.Generator().manual_seed(rank))
    return data.DataLoader(rows, batch_size=options.batch // ranks, sampler=order,
                           num_workers=options.workers)


def over(end, ranks):
    """Whether rank 0 says that the time is over."""
    late = torch.tensor(float(time.monotonic() > end))
    if ranks > 1:
        distributed.broadcast(late, 0)
    return late.item() > 0


def train(options, rank, ranks):
    """Trains until the time is over; returns the figures."""
    network, _, _ = resnet('resnet20')
    if options.row_ms:
        network = Waiting(network, options.row_ms)
    model = nn.parallel.DistributedDataParallel(network) if ranks > 1 else network
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    step, end = 0, time.monotonic() + options.seconds
    for images, labels in loader_of(options, rank, ranks):
        with traceml.trace_step(network):
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        step += 1
        if step == STEPS_BEFORE:
            begin = time.monotonic()
        if step % STEPS_TOGETHER == 0 and over(end, ranks):
            break
    measured = step - STEPS_BEFORE
    return {'step_ms': (time.monotonic() - begin) * 1e3 / measured, 'steps': measured,
            'loss': loss.item()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--data', type=pathlib.Path, required=True)
    parser.add_argument('--figures', type=pathlib.Path, required=True)
    parser.add_argument('--row-ms', type=float, help='wait, for each row of a rank')
    parser.add_argument('--batch', type=int, default=64)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--workers', type=int, default=1, help="the loader's processes")
    parser.add_argument('--size', type=int, default=32, help='of crops from JPEGs')
    parser.add_argument('--effects', action='store_true', help='on JPEGs: RandAugment and colours')
    parser.add_argument('--seconds', type=float, default=60)
    options = parser.parse_args()
    rank, ranks = (int(os.environ.get(name, usual)) for name, usual in (
        ('RANK', 0), ('WORLD_SIZE', 1)))
    if ranks > 1:
        distributed.init_process_group('gloo')
    traceml.init(mode='auto')
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    figures = train(options, rank, ranks)
    if rank == 0:
        options.figures.write_text(json.dumps(figures))
    if ranks > 1:
        distributed.destroy_process_group()


if __name__ == '__main__':
    main()
