#!/usr/bin/env python3
"""run_engine.py FILE.onnx: times another program's inference of a network that `lockstep export`
wrote, to compare with `lockstep bench inference`. --weights makes random ones first: an .npz for
lockstep to export. The network takes normalised images, so the other program is spared what
lockstep does to pixels. Prints one line of JSON.

  run_engine.py resnet50.onnx --engine openvino --hint throughput --precision bf16 --batch 8

Hints: latency: one batch at a time on all threads; throughput (openvino): as many batches at a time
as it finds best. onnxruntime optimises all that it can; its CPUs have no bf16 and compute in fp32.
"""
import argparse
import json
import resource
import statistics
import time

import numpy as np


def conv_and_norm(name, outputs, inputs, kernel, random):
    """A convolution's weights, and a batch norm that lets values pass."""
    deviation = (2 / (inputs * kernel * kernel)) ** 0.5
    conv, norm = name
    shape = (outputs, inputs, kernel, kernel)
    yield f'{conv}.weight', random.normal(0, deviation, shape).astype(np.float32)
    for part, value in (('weight', 1), ('bias', 0), ('running_mean', 0), ('running_var', 1)):
        yield f'{norm}.{part}', np.full(outputs, value, np.float32)


def resnet_weights(model):
    """Random weights by torchvision's names, for 1000 classes."""
    random = np.random.default_rng(1)
    deep = model == 'resnet50'
    counts, expansion = ((3, 4, 6, 3), 4) if deep else ((2, 2, 2, 2), 1)
    yield from conv_and_norm(('conv1', 'bn1'), 64, 3, 7, random)
    inputs = 64
    for stage, count in enumerate(counts):
        width = 64 << stage
        for block in range(count):
            name = f'layer{stage + 1}.{block}'
            outputs = width * expansion
            kernels = (1, 3, 1) if deep else (3, 3)
            channels = [inputs, *[width] * (len(kernels) - 1), outputs]
            for i, kernel in enumerate(kernels):
                yield from conv_and_norm((f'{name}.conv{i + 1}', f'{name}.bn{i + 1}'),
                                         channels[i + 1], channels[i], kernel, random)
            if block == 0 and inputs != outputs:
                yield from conv_and_norm((f'{name}.downsample.0', f'{name}.downsample.1'),
                                         outputs, inputs, 1, random)
            inputs = outputs
    yield 'fc.weight', random.normal(0, 0.01, (1000, inputs)).astype(np.float32)
    yield 'fc.bias', np.zeros(1000, np.float32)


def one_at_a_time(run, options):
    """Times of the batches in s."""
    times = []
    for step in range(options.warm_up + options.steps):
        begin = time.perf_counter()
        run()
        if step >= options.warm_up:
            times.append(time.perf_counter() - begin)
    return times


def by_onnxruntime(options, images):
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(options.model, settings,
                                           providers=['CPUExecutionProvider'])
    return one_at_a_time(lambda: session.run(['logits'], {'images': images}), options)


def by_openvino(options, images):
    """Where several batches run at a time, the times are of that many, divided by their number."""
    import openvino

    core = openvino.Core()
    model = core.read_model(options.model)
    model.reshape({'images': images.shape})
    compiled = core.compile_model(model, 'CPU', {
        'INFERENCE_PRECISION_HINT': {'fp32': 'f32', 'bf16': 'bf16'}[options.precision],
        'PERFORMANCE_HINT': options.hint.upper(),
        'INFERENCE_NUM_THREADS': options.threads,
    })
    together = compiled.get_property('OPTIMAL_NUMBER_OF_INFER_REQUESTS')
    if options.hint == 'latency' or together == 1:
        request = compiled.create_infer_request()
        return one_at_a_time(lambda: request.infer({'images': images}, share_inputs=True), options)
    queue = openvino.AsyncInferQueue(compiled, together)

    def some():
        for _ in range(4 * together):
            queue.start_async({'images': images}, share_inputs=True)
        queue.wait_all()

    options.steps = max(3, options.steps // (4 * together))
    options.warm_up = 1
    return [seconds / (4 * together) for seconds in one_at_a_time(some, options)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('model')
    parser.add_argument('--weights', help='make weights of this network: resnet18 or resnet50')
    parser.add_argument('--engine', choices=('onnxruntime', 'openvino'))
    parser.add_argument('--hint', default='latency', choices=('latency', 'throughput'))
    parser.add_argument('--precision', default='fp32', choices=('fp32', 'bf16'))
    for name, default in (('batch', 8), ('image', 224), ('steps', 10), ('warm-up', 3),
                          ('threads', 2)):
        parser.add_argument(f'--{name}', type=int, default=default)
    options = parser.parse_args()
    if options.weights:
        np.savez(options.model, **dict(resnet_weights(options.weights)))
        return
    side = options.image
    random = np.random.default_rng(2)
    images = random.normal(0, 1, (options.batch, 3, side, side)).astype(np.float32)
    engine = {'onnxruntime': by_onnxruntime, 'openvino': by_openvino}[options.engine]
    seconds = statistics.median(engine(options, images))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({'engine': options.engine, 'hint': options.hint, 'step_ms': seconds * 1e3,
                      'images_per_s': options.batch / seconds, 'peak_memory_bytes': peak}))


if __name__ == '__main__':
    main()
