"""kserve_model.py FILE.onnx PORT WORKERS THREADS: a network in KServe's own server, computed by
onnxruntime as the documentation of kserve.Model shows it: each request is one run of the network.
WORKERS processes, each with THREADS threads; only REST, and no log of requests. It takes and gives
what `lockstep serve` does, under the name "m"."""
import logging
import sys

import kserve
import onnxruntime

OUTPUTS = ['logits', 'probabilities']
logging.disable(logging.INFO)


class Network(kserve.Model):
    def __init__(self, path, threads):
        super().__init__('m')
        self.path, self.threads, self.session = path, threads, None
        self.load()

    def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(self.path, options,
                                                    providers=['CPUExecutionProvider'])
        self.ready = True
        return self.ready

    # It travels to the processes, but not its session.
    def __getstate__(self):
        return {**self.__dict__, 'session': None}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.load()

    async def predict(self, payload, headers=None, response_headers=None):
        values = self.session.run(OUTPUTS, {'images': payload.inputs[0].as_numpy()})
        outputs = []
        for name, array in zip(OUTPUTS, values):
            outputs.append(kserve.InferOutput(name, list(array.shape), 'FP32'))
            outputs[-1].set_data_from_numpy(array, binary_data=True)
        return kserve.InferResponse(payload.id or '1', self.name, outputs)


if __name__ == '__main__':
    FILE, PORT, WORKERS, THREADS = sys.argv[1], *map(int, sys.argv[2:])
    server = kserve.ModelServer(http_port=PORT, workers=WORKERS, enable_grpc=False,
                                enable_latency_logging=False)
    server.start([Network(FILE, THREADS)])
