#!/usr/bin/python3
"""Times PyTorch's inference on the CPU, to compare with `lockstep bench inference`.

  OMP_NUM_THREADS=2 tests/bench/torch_inference.py --model resnet20 --precision fp32 --form frozen

Channels last; in bf16 the whole network and the images are bf16, which is faster than autocast.
Forms: eager; frozen (traced, frozen and optimized for inference: batch norms become parts of the
convolutions); compiled by torch.compile. Prints one line of JSON.
"""
import argparse
import time

import torch

from torch_networks import add_options, print_figures, resnet


def make_forward(options):
    """Returns a function that runs one batch."""
    torch.manual_seed(0)
    network, usual_side, _ = resnet(options.model)
    side = options.image or usual_side
    kind = torch.bfloat16 if options.precision == 'bf16' else torch.float32
    network = network.to(kind).to(memory_format=torch.channels_last).eval()
    images = torch.randn(options.batch, 3, side, side).to(kind)
    images = images.to(memory_format=torch.channels_last)
    if options.form == 'frozen':
        traced = torch.jit.freeze(torch.jit.trace(network, images))
        network = torch.jit.optimize_for_inference(traced)
    elif options.form == 'compiled':
        network = torch.compile(network)
    return lambda: network(images)


def measure(options):
    """Times of the batches in ms; the warm-up includes what is compiled."""
    with torch.no_grad():
        forward = make_forward(options)
        for _ in range(options.warm_up):
            forward()
        times = []
        for _ in range(options.steps):
            begin = time.perf_counter()
            forward()
            times.append((time.perf_counter() - begin) * 1e3)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument('--form', default='eager', choices=('eager', 'frozen', 'compiled'))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print_figures(options, measure(options), form=options.form)


if __name__ == '__main__':
    main()
