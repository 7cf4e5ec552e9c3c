"""What a long measurement keeps of each part that ended, so that it continues after an
interruption: a line of JSON for each, in $BUILD/bench/NAME.jsonl."""
import json
import os

import contenders


class Finished:
    """The parts that ended, in this start of the benchmark or in an earlier one. A part is told
    from others by what it has under `keys`."""

    def __init__(self, name, keys):
        self.path = contenders.build() / 'bench' / f'{name}.jsonl'
        self.keys = keys
        self.parts = {}
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        for line in lines:
            try:
                one = json.loads(line)
            except json.JSONDecodeError:
                continue  # the end of an interrupted write
            self.parts[self.key(one)] = one
        self.before = len(self.parts)

    def key(self, one):
        return json.dumps([one[key] for key in self.keys])

    def find(self, **wanted):
        return self.parts.get(self.key(wanted))

    def add(self, **one):
        self.parts[self.key(one)] = one
        with self.path.open('a+b') as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b'\n':
                    file.write(b'\n')
            file.write(json.dumps(one).encode() + b'\n')
            file.flush()
            os.fsync(file.fileno())
        return one

    def note(self, report):
        if self.before > 0:
            report['notes'].append(f'{self.before} parts ended in earlier starts: {self.path}')
