#!/usr/bin/env python3
"""Times PyTorch's training steps on a GPU; the peer of `lockstep bench train --backend cuda`.

  tests/bench/torch_gpu.py --model resnet50 --precision fp16 --batch 256 [--compile]

Channels last, SGD with momentum and weight decay, fp16 (with loss scaling) and bf16 by autocast,
cuDNN's benchmark mode. The images lie on the device already. Prints one line of JSON.
"""
import argparse
import json
import statistics

import torch
from torch import nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    """He et al. 2016; option A's shortcut for CIFAR, which has no parameters."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.half = (channels - channels_in) // 2

    def forward(self, x):
        z = F.relu(self.bn1(self.conv1(x)))
        z = self.bn2(self.conv2(z))
        if self.half:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.half, self.half))
        return F.relu(z + x)


class Bottleneck(nn.Module):
    """Of ResNet-50 in its version 1.5: the 3 x 3 convolution strides."""

    def __init__(self, channels_in, width, stride):
        super().__init__()
        channels = 4 * width
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels)
        self.down = None
        if stride != 1 or channels_in != channels:
            self.down = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        z = F.relu(self.bn1(self.conv1(x)))
        z = F.relu(self.bn2(self.conv2(z)))
        z = self.bn3(self.conv3(z))
        return F.relu(z + (x if self.down is None else self.down(x)))


def resnet20():
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    channels_in = 16
    for stage, channels in enumerate((16, 32, 64)):
        for block in range(3):
            layers.append(BasicBlock(channels_in, channels, 2 if stage and not block else 1))
            channels_in = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
              nn.MaxPool2d(3, 2, 1)]
    channels_in = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            layers.append(Bottleneck(channels_in, width, 2 if stage and not block else 1))
            channels_in = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


# The network, the side of its images, its classes.
MODELS = {'resnet20': (resnet20, 32, 10), 'resnet50': (resnet50, 224, 1000)}
AUTOCAST = {'fp16': torch.float16, 'bf16': torch.bfloat16}


def make_step(options):
    """A function that does one whole training step; it does not wait for the device."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    allow_tf32 = options.precision != 'fp32'
    torch.backends.cudnn.allow_tf32 = allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allow_tf32
    make, side, classes = MODELS[options.model]
    network = make().cuda().to(memory_format=torch.channels_last).train()
    run = torch.compile(network) if options.compile else network
    images = torch.randn(options.batch, 3, side, side, device='cuda')
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (options.batch,), device='cuda')
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4,
                                fused=True)
    scaler = torch.amp.GradScaler('cuda', enabled=options.precision == 'fp16')
    kind = AUTOCAST.get(options.precision)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast('cuda', kind, enabled=kind is not None):
            loss = F.cross_entropy(run(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def measure(step, options):
    """Milliseconds of each step, by the device's own clock."""
    for _ in range(options.warm_up):
        step()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(options.steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--model', default='resnet50', choices=MODELS)
    parser.add_argument('--precision', default='fp16', choices=('fp32', 'tf32', 'bf16', 'fp16'))
    parser.add_argument('--batch', type=int, default=256)
    parser.add_argument('--compile', action='store_true', help='torch.compile the network')
    parser.add_argument('--steps', type=int, default=30, help='steps that count')
    parser.add_argument('--warm-up', type=int, default=10, help='steps before them')
    options = parser.parse_args()
    times = measure(make_step(options), options)
    step_ms = statistics.median(times)
    print(json.dumps({
        'model': options.model,
        'precision': options.precision,
        'batch': options.batch,
        'compile': options.compile,
        'torch': torch.__version__,
        'cudnn': torch.backends.cudnn.version(),
        'device': torch.cuda.get_device_name(),
        'steps': len(times),
        'step_ms': step_ms,
        'best_step_ms': min(times),
        'images_per_s': options.batch / step_ms * 1e3,
        'peak_memory_bytes': torch.cuda.max_memory_reserved(),
    }))


if __name__ == '__main__':
    main()
