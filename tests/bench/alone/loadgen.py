"""loadgen.py PORT SIDE SCENARIO RATE SECONDS FOLDER: MLPerf's LoadGen asks a server of the Open
Inference Protocol for predictions of the model "m", whose images have SIDE x SIDE pixels of three
colours. SCENARIO is SingleStream, Server (queries of one image come at RATE a second, at random
times) or Offline (as many images as RATE x SECONDS at once, sent in requests of 64). Prints what
LoadGen measured as JSON: images/s and the latencies of half and of 99 % of the queries, in ms.

One thread sends and one receives, over connections that stay.
"""
import collections
import json
import pathlib
import random
import select
import socket
import sys
import threading

import mlperf_loadgen as loadgen

OFFLINE_ROWS = 64
CONNECTIONS = {'SingleStream': 1, 'Server': 64, 'Offline': 8}  # a server's queue has an end


def request(side, rows):
    """The bytes of a request for `rows` images of noise."""
    size = rows * side * side * 3
    tensor = {'name': 'images', 'datatype': 'UINT8', 'shape': [rows, side, side, 3],
              'parameters': {'binary_data_size': size}}
    text = json.dumps({'inputs': [tensor], 'outputs': [{'name': 'logits'}],
                       'parameters': {'binary_data_output': True}}).encode()
    head = (f'POST /v2/models/m/infer HTTP/1.1\r\nHost: here\r\nInference-Header-Content-Length: '
            f'{len(text)}\r\nContent-Length: {len(text) + size}\r\n\r\n')
    return head.encode() + text + random.Random(1).randbytes(size)


class Client:
    """Connections, each with one request at a time. `single` and `many`: requests of one image and
    of OFFLINE_ROWS."""

    def __init__(self, port, side, connections):
        self.requests = {rows: request(side, rows) for rows in (1, OFFLINE_ROWS)}
        self.ready = select.epoll()
        self.links = {}
        for _ in range(connections):
            link = socket.create_connection(('127.0.0.1', port))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.links[link.fileno()] = link
            self.ready.register(link, select.EPOLLIN)
        self.free = collections.deque(self.links)
        self.asked, self.waiting = {}, collections.deque()  # identities of samples
        self.lock = threading.Lock()
        threading.Thread(target=self.receive, daemon=True).start()

    def ask(self, samples):
        """Sends as many images as connections are free, and the others later."""
        ids = [one.id for one in samples]
        with self.lock:
            if len(ids) == 1:
                self.waiting.append(ids)
            else:
                self.waiting.extend([one] for one in ids[:len(ids) % OFFLINE_ROWS])
                self.waiting.extend(ids[first:first + OFFLINE_ROWS] for first in
                                    range(len(ids) % OFFLINE_ROWS, len(ids), OFFLINE_ROWS))
            self.send()

    def send(self):
        while self.free and self.waiting:
            number, ids = self.free.popleft(), self.waiting.popleft()
            self.asked[number] = ids
            self.links[number].sendall(self.requests[len(ids)])

    def receive(self):
        heard = collections.defaultdict(bytes)
        while True:
            for number, _ in self.ready.poll():
                heard[number] += self.links[number].recv(1 << 16)
                head, end, body = heard[number].partition(b'\r\n\r\n')
                if not end:
                    continue
                if not head.startswith(b'HTTP/1.1 200'):
                    print(heard[number][:300], file=sys.stderr, flush=True)
                    raise SystemExit(1)
                if len(body) < int(head.lower().split(b'\ncontent-length:')[1].split(b'\r')[0]):
                    continue
                heard[number] = b''
                with self.lock:
                    ids = self.asked.pop(number)
                    self.free.append(number)
                    self.send()
                loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(one, 0, 0)
                                              for one in ids])


def settings(scenario, rate, seconds):
    asked = loadgen.TestSettings()
    asked.scenario = getattr(loadgen.TestScenario, scenario)
    asked.mode = loadgen.TestMode.PerformanceOnly
    asked.min_duration_ms = asked.max_duration_ms = int(1e3 * seconds)
    asked.min_query_count = 1
    asked.server_target_qps = asked.offline_expected_qps = rate
    asked.server_target_latency_ns = 1_000_000_000  # it is judged here, and not by LoadGen
    return asked


def run(client, scenario, rate, seconds, folder):
    where = loadgen.LogOutputSettings()
    where.outdir = folder
    log = loadgen.LogSettings()
    log.log_output = where
    log.enable_trace = False
    system = loadgen.ConstructSUT(client.ask, lambda: None)
    library = loadgen.ConstructQSL(1024, 1024, lambda _: None, lambda _: None)
    loadgen.StartTestWithLogSettings(system, library, settings(scenario, rate, seconds), log)
    loadgen.DestroyQSL(library)
    loadgen.DestroySUT(system)
    figures = {}
    for line in (pathlib.Path(folder) / 'mlperf_log_detail.txt').read_text().splitlines():
        if line.startswith(':::MLLOG'):
            told = json.loads(line.split(' ', 1)[1])
            figures[told['key']] = told['value']
    return figures


def main(port, side, scenario, rate, seconds, folder):
    sys.setswitchinterval(1e-4)  # the two threads take turns soon
    client = Client(int(port), int(side), CONNECTIONS[scenario])
    figures = run(client, scenario, float(rate), float(seconds), folder)
    rates = {'Offline': 'result_samples_per_second', 'Server': 'result_completed_samples_per_sec',
             'SingleStream': 'result_qps_without_loadgen_overhead'}
    print(json.dumps({'images_per_s': figures[rates[scenario]],
                      'p50_ms': figures['result_50.00_percentile_latency_ns'] / 1e6,
                      'p99_ms': figures['result_99.00_percentile_latency_ns'] / 1e6}))


if __name__ == '__main__':
    main(*sys.argv[1:])
