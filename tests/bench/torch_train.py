#!/usr/bin/python3
"""Times PyTorch's training steps on the CPU; the peer of `lockstep bench train`.

  OMP_NUM_THREADS=2 tests/bench/torch_train.py --model resnet20 --precision fp32 --batch 128

Channels last, SGD with momentum and weight decay, bf16 by autocast. Prints one line of JSON.
"""
import argparse
import json
import os
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    """He et al. 2016, with the shortcut that has no parameters (option A)."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.new_channels = channels - channels_in

    def shortcut(self, x):
        if self.new_channels == 0:
            return x
        half = self.new_channels // 2
        x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, half, self.new_channels - half))

    def forward(self, x):
        z = F.relu(self.bn1(self.conv1(x)), inplace=True)
        z = self.bn2(self.conv2(z)) + self.shortcut(x)
        return F.relu(z, inplace=True)


def cifar_resnet(depth):
    """6 n + 2 layers: three stages of n blocks, for images of 32 x 32 in 10 classes."""
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    channels_in = 16
    for stage, channels in enumerate((16, 32, 64)):
        for block in range((depth - 2) // 6):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(BasicBlock(channels_in, channels, stride))
            channels_in = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def make_network(model, image):
    """The network and its number of classes: the CIFAR family for small images."""
    if image <= 32:
        return cifar_resnet(int(model.removeprefix('resnet'))), 10
    import torchvision  # only the ImageNet family needs it
    return torchvision.models.get_model(model, weights=None), 1000


def make_step(options):
    """A function that does one whole training step."""
    torch.manual_seed(0)
    network, classes = make_network(options.model, options.image)
    network = network.to(memory_format=torch.channels_last).train()
    images = torch.randn(options.batch, 3, options.image, options.image)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (options.batch,))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast('cpu', torch.bfloat16, enabled=options.precision == 'bf16'):
            loss = F.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()

    return step


def measure(options):
    """Step times in ms; stops early, but not before the second step, when the time is up."""
    step = make_step(options)
    end = time.perf_counter() + options.limit_s
    for _ in range(options.warm_up):
        if time.perf_counter() < end:
            step()
    times = []
    while len(times) < options.steps and (len(times) < 2 or time.perf_counter() < end):
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--model', default='resnet20')
    parser.add_argument('--precision', default='fp32', choices=('fp32', 'bf16'))
    parser.add_argument('--image', type=int, default=32, help='side of the images')
    parser.add_argument('--batch', type=int, default=128)
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--steps', type=int, default=10, help='steps that count')
    parser.add_argument('--warm-up', type=int, default=3, help='steps before them')
    parser.add_argument('--limit-s', type=float, default=600, help='seconds for all steps')
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    times = measure(options)
    step_ms = statistics.median(times)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({
        'model': options.model,
        'precision': options.precision,
        'batch': options.batch,
        'threads': options.threads,
        'torch': torch.__version__,
        'tuned_allocator': 'MALLOC_MMAP_THRESHOLD_' in os.environ,
        'steps': len(times),
        'step_ms': step_ms,
        'best_step_ms': min(times),
        'images_per_s': options.batch / step_ms * 1e3,
        'peak_memory_bytes': peak_kib * 1024,
    }))


if __name__ == '__main__':
    main()
