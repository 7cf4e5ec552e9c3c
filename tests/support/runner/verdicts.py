"""Reads the output of a part of the tests: `PASS name`, `FAIL name` or `SKIP name: reason`.

Catch2's cases print `TEST name` before they begin, and `SKIPPED: reason` when they pass without a
check. `RETRIED name` reports a failed try that is repeated.
"""

import re
from dataclasses import dataclass, field


@dataclass
class Verdicts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    retries: dict = field(default_factory=dict)  # name of each retried test: how often
    shown: str = ""  # what a reader needs: failures in full, skipped tests, warnings


class Reader:
    """Reads line by line; end() gives the verdicts."""

    def __init__(self, part):
        self.part = part
        self.verdicts = Verdicts()
        self.running = ""  # the case that has begun
        self.said = ""  # since the last verdict
        self.reason = ""  # why the running case checks nothing
        self.after_failure = False  # a rank's output may arrive after the verdict

    def begin(self, name):
        self.running, self.said, self.reason, self.after_failure = name, "", "", False

    def show(self, text):
        self.verdicts.shown += text + "\n"

    def fail(self, name):
        self.show(f"FAIL {name}\n{self.said}".rstrip("\n"))
        self.verdicts.failed += 1
        self.begin("")
        self.after_failure = True

    def skip(self, words):
        self.show(f"SKIP {words}")
        self.verdicts.skipped += 1
        self.begin("")

    def read(self, line):
        word, _, rest = line.partition(" ")
        if word == "TEST":
            self.begin(rest)
        elif word == "PASS" and self.reason:
            self.skip(f"{rest}: {self.reason}")
        elif word == "PASS":
            self.verdicts.passed += 1
            self.begin("")
        elif word == "FAIL":
            self.fail(rest)
        elif word == "SKIP":
            self.skip(rest)
        elif word == "SKIPPED:":
            self.reason = rest
        elif word == "RETRIED":
            self.verdicts.retries[rest] = self.verdicts.retries.get(rest, 0) + 1
        else:
            if self.after_failure or re.match(r"warning: (src|include)/", line):
                self.show(line)
            self.said += line + "\n"

    def end(self, status, may_be_empty):
        how = "ran out of time" if status == 124 else f"ended with status {status}"
        found = self.verdicts
        if self.running:
            self.fail(f"{self.running} ({self.part} {how} in it; the tests after it did not run)")
        elif status != 0 and not found.failed:
            self.fail(f"{self.part}: {how}")
        elif not (found.passed or found.failed or found.skipped or may_be_empty):
            self.fail(f"{self.part}: reported no result")
        return found


def judge(part, log, status, may_be_empty):
    """The verdicts of `part`, which wrote `log` and ended with `status`."""
    reader = Reader(part)
    for line in log.split("\n")[:-1] if log.endswith("\n") else log.split("\n"):
        reader.read(line)
    return reader.end(status, may_be_empty)
