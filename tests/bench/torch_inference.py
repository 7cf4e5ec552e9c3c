#!/usr/bin/python3
"""Times PyTorch's inference on the CPU, to compare with `lockstep bench inference`.

  OMP_NUM_THREADS=2 tests/bench/torch_inference.py --model resnet20 --precision fp32 --form frozen

Channels last; in bf16 the whole network and the images are bf16, which is faster than autocast.
Forms: eager; frozen (traced, frozen and optimized for inference: batch norms become parts of the
convolutions); compiled by torch.compile. Prints one line of JSON.
"""
import argparse
import json
import os
import resource
import statistics
import time

import torch

from torch_networks import resnet


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
    parser.add_argument('--model', default='resnet20')
    parser.add_argument('--precision', default='fp32', choices=('fp32', 'bf16'))
    parser.add_argument('--form', default='eager', choices=('eager', 'frozen', 'compiled'))
    parser.add_argument('--image', type=int, default=0, help="side of the images (0: the model's usual)")
    parser.add_argument('--batch', type=int, default=128)
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--steps', type=int, default=10, help='measured batches')
    parser.add_argument('--warm-up', type=int, default=4, help='batches before the measured ones')
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    times = measure(options)
    step_ms = statistics.median(times)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({
        'model': options.model,
        'precision': options.precision,
        'form': options.form,
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
