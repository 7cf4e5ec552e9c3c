#!/usr/bin/env python3
"""Times PyTorch's training steps on a GPU, to compare with `lockstep bench train --backend cuda`.

  tests/bench/torch_gpu.py --model resnet50 --precision fp16 --batch 256 [--compile] [--graph]

Channels last, SGD with momentum and weight decay, fp16 (with loss scaling) and bf16 by autocast,
cuDNN's benchmark mode. The images are already on the device. --graph: a step is one CUDA graph, or
where PyTorch cannot record its update, forward and backward are. Prints one line of JSON.
"""
import argparse
import json
import os
import statistics
import sys

import torch
from torch.nn import functional as F

from torch_networks import resnet

AUTOCAST = {'fp16': torch.float16, 'bf16': torch.bfloat16}


def make_parts(options):
    """Returns two functions that do not wait for the device: forward with backward, and update."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    allow_tf32 = options.precision != 'fp32'
    torch.backends.cudnn.allow_tf32 = allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allow_tf32
    network, side, classes = resnet(options.model)
    network = network.cuda().to(memory_format=torch.channels_last).train()
    run = torch.compile(network) if options.compile else network
    images = torch.randn(options.batch, 3, side, side, device='cuda')
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (options.batch,), device='cuda')
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4,
                                fused=True)
    scaler = torch.amp.GradScaler('cuda', enabled=options.precision == 'fp16')
    kind = AUTOCAST.get(options.precision)

    def differentiate():
        # A graph's gradients keep their places, and in it new ones are written there.
        optimizer.zero_grad(set_to_none=True)
        # Without autocast's cache, which must not outlive a recording.
        with torch.autocast('cuda', kind, enabled=kind is not None,
                            cache_enabled=not options.graph):
            loss = F.cross_entropy(run(images), labels)
        scaler.scale(loss).backward()

    def update():
        scaler.step(optimizer)
        scaler.update()

    return differentiate, update


def record(work, stream):
    """Returns a CUDA graph of what work() does."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()
    return graph


def make_step(options):
    """Returns a function that runs one whole training step."""
    differentiate, update = make_parts(options)

    def step():
        differentiate()
        update()

    if not options.graph:
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(options.warm_up):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    if not options.without_update:
        return record(step, stream).replay
    graph = record(differentiate, stream)

    def replay():
        graph.replay()
        update()

    return replay


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
    parser.add_argument('--model', default='resnet50')
    parser.add_argument('--precision', default='fp16', choices=('fp32', 'tf32', 'bf16', 'fp16'))
    parser.add_argument('--batch', type=int, default=256)
    parser.add_argument('--compile', action='store_true', help='torch.compile the network')
    parser.add_argument('--graph', action='store_true', help='repeat a CUDA graph of the step')
    parser.add_argument('--without-update', action='store_true',
                        help='the update is not in the graph')
    parser.add_argument('--steps', type=int, default=30, help='measured steps')
    parser.add_argument('--warm-up', type=int, default=10, help='steps before the measured ones')
    options = parser.parse_args()
    try:
        times = measure(make_step(options), options)
    except RuntimeError:
        if not options.graph or options.without_update:
            raise
        # A recording that failed leaves its process unusable.
        os.execv(sys.executable, [sys.executable, *sys.argv, '--without-update'])
    step_ms = statistics.median(times)
    print(json.dumps({
        'model': options.model,
        'precision': options.precision,
        'batch': options.batch,
        'compile': options.compile,
        'graph': options.graph and not options.without_update,
        'graph_without_update': options.graph and options.without_update,
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
