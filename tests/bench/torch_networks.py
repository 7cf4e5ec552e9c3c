"""The ResNets that the benchmarks run in PyTorch, the same as lockstep's, layer for layer; and the
options and figures that those of training and of inference share."""
import json
import os
import resource
import statistics

import torch
from torch import nn
from torch.nn import functional as F


class Subsample(nn.Module):
    """He et al. 2016, option A: every second pixel, new channels of zeros on both sides."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.stride = stride
        self.half = (channels - channels_in) // 2

    def forward(self, x):
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.half, self.half))


def projection(channels_in, channels, stride):
    """torchvision's shortcut, a 1 x 1 convolution."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))


class Block(nn.Module):
    """Convolutions with batch norm, a shortcut around them, ReLU."""

    def __init__(self, layers, shortcut):
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.shortcut = shortcut

    def forward(self, x):
        z = self.layers(x)
        z += x if self.shortcut is None else self.shortcut(x)
        return F.relu(z, inplace=True)


def conv(channels_in, channels, kernel, stride=1):
    return [nn.Conv2d(channels_in, channels, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(channels)]


def relu():
    return nn.ReLU(inplace=True)


def basic(channels_in, width, stride, shortcut):
    layers = [*conv(channels_in, width, 3, stride), relu(), *conv(width, width, 3)]
    same = stride == 1 and channels_in == width
    return Block(layers, None if same else shortcut(channels_in, width, stride)), width


def bottleneck(channels_in, width, stride, shortcut):
    """Version 1.5: the 3 x 3 convolution has the stride."""
    channels = 4 * width
    layers = [*conv(channels_in, width, 1), relu(), *conv(width, width, 3, stride), relu(),
              *conv(width, channels, 1)]
    same = stride == 1 and channels_in == channels
    return Block(layers, None if same else shortcut(channels_in, channels, stride)), channels


def stages(layers, channels, width, counts, block, shortcut, classes):
    """A whole network: the first layers, then stages of blocks, each half as large and twice as
    wide as the one before, then the classifier."""
    for stage, count in enumerate(counts):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            made, channels = block(channels, width << stage, stride, shortcut)
            layers.append(made)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(channels, classes))


IMAGENET = {
    'resnet18': (basic, (2, 2, 2, 2)),
    'resnet34': (basic, (3, 4, 6, 3)),
    'resnet50': (bottleneck, (3, 4, 6, 3)),
    'resnet101': (bottleneck, (3, 4, 23, 3)),
    'resnet152': (bottleneck, (3, 8, 36, 3)),
}


def resnet(model, channels=3, classes=None):
    """The network, the side of its usual images, and the number of its classes."""
    if model in IMAGENET:
        block, counts = IMAGENET[model]
        first = [*conv(channels, 64, 7, 2), relu(), nn.MaxPool2d(3, 2, 1)]
        return stages(first, 64, 64, counts, block, projection,
                      classes or 1000), 224, classes or 1000
    blocks = (int(model.removeprefix('resnet')) - 2) // 6
    first = [*conv(channels, 16, 3), relu()]
    return stages(first, 16, 16, (blocks,) * 3, basic, Subsample,
                  classes or 10), 32, classes or 10


def add_options(parser):
    """What to run; batches are steps."""
    parser.add_argument('--model', default='resnet20')
    parser.add_argument('--precision', default='fp32', choices=('fp32', 'bf16'))
    parser.add_argument(
        '--image', type=int, default=0, help="side of the images (0: the model's usual)"
    )
    parser.add_argument('--batch', type=int, default=128)
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--steps', type=int, default=10, help='measured steps')
    parser.add_argument('--warm-up', type=int, default=4, help='steps before the measured ones')


def print_figures(options, times_ms, **form):
    """One line of JSON: what ran, in which form, and how fast."""
    step_ms = statistics.median(times_ms)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({
        'model': options.model,
        'precision': options.precision,
        'batch': options.batch,
        'threads': options.threads,
        'torch': torch.__version__,
        **form,
        'tuned_allocator': 'MALLOC_MMAP_THRESHOLD_' in os.environ,
        'steps': len(times_ms),
        'step_ms': step_ms,
        'best_step_ms': min(times_ms),
        'images_per_s': options.batch / step_ms * 1e3,
        'peak_memory_bytes': peak_kib * 1024,
    }))
