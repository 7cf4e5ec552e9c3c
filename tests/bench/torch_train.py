#!/usr/bin/python3
"""Times PyTorch's training steps on the CPU, to compare with `lockstep bench train`.

  OMP_NUM_THREADS=2 tests/bench/torch_train.py --model resnet20 --precision fp32 --batch 128

Channels last, SGD with momentum and weight decay, bf16 by autocast. With --compile the network is
compiled by torch.compile, whose time belongs to the warm-up. Prints one line of JSON.
"""
import argparse
import time

import torch
from torch.nn import functional as F

from torch_networks import add_options, print_figures, resnet


def make_step(options):
    """Returns a function that runs one whole training step."""
    torch.manual_seed(0)
    network, usual_side, classes = resnet(options.model)
    side = options.image or usual_side
    network = network.to(memory_format=torch.channels_last).train()
    if options.compile:
        network = torch.compile(network)
    images = torch.randn(options.batch, 3, side, side)
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
    """Step times in ms; stops early when the time is up, but not before the second step."""
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
    add_options(parser)
    parser.add_argument('--compile', action='store_true', help='by torch.compile')
    parser.add_argument('--limit-s', type=float, default=600, help='seconds for all steps')
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print_figures(options, measure(options), compiled=options.compile)


if __name__ == '__main__':
    main()
