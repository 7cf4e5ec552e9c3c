#!/usr/bin/env python3
"""Compares the tables of JUBE and ReFrame with what lockstep wrote:

    benchmark.py jube TABLE.csv STUDY RANKS     of a study's folder; RANKS: of
                                                   the rows with figures, 1,2,4
    benchmark.py reframe REPORT.json STAGE RANKS
"""
import csv
import json
import re
import sys
from pathlib import Path


def derived(figures):
    """What the tables add: as by hand."""
    more = {"epochs_90_s": 90 * 1281167 / figures["images_per_s"]}
    if figures["energy_joules"] is not None:
        images = figures["steps"] * figures["batch"]
        more["wh_1000_images"] = figures["energy_joules"] / 3600 / images * 1000
    return more


def near(got, want):
    assert abs(got - want) <= 1e-12 * want, (got, want)


def jube(table, study, ranks):
    with open(table) as file:
        rows = list(csv.DictReader(line for line in file if line.strip()))
    # A row of what failed has its parameters only.
    assert all(len(set(row.values()) - {""}) <= 4 for row in rows if not row["images_per_s"]), rows
    rows = [row for row in rows if row["images_per_s"]]
    assert [int(row["ranks"]) for row in rows] == ranks, rows
    shown = Path(table).with_name("pretty.dat").read_text()
    files = sorted(Path(study).glob("*_train/work/figures.json"))
    assert len(files) == len(rows), files
    for row, file in zip(rows, files):
        figures = json.loads(file.read_text())
        for name in ("model", "precision"):
            assert row[name] == figures[name], (name, row, figures)
        for name in ("ranks", "nodes", "batch", "images_per_s", "step_ms", "peak_memory_bytes"):
            assert float(row[name]) == figures[name], (name, row, figures)
        more = derived(figures)
        near(float(row["epochs_90_s"]), more["epochs_90_s"])
        if figures["energy_joules"] is None:
            assert {row[name] for name in ("energy_joules", "wh_1000_images", "energy_of")} == {"-"}
        else:
            assert float(row["energy_joules"]) == figures["energy_joules"] > 0, row
            near(float(row["wh_1000_images"]), more["wh_1000_images"])
            assert row["energy_of"] == figures["energy_of"], (row, figures)
        said = "".join(one.read_text() for one in file.parent.glob("*out"))
        line = re.search(r"([\d.]+) images/s, step ([\d.]+) ms", said)
        assert f"| {line[1]} |" in re.sub(" +", " ", shown), (line[1], shown)
        assert f"| {line[2]} |" in re.sub(" +", " ", shown), (line[2], shown)


def reframe(report, stage, ranks):
    cases = json.loads(Path(report).read_text())["runs"][0]["testcases"]
    seen = []
    for case in cases:
        assert case["result"] == "pass", case
        folder = Path(case["stagedir"])
        figures = json.loads((folder / "figures.json").read_text())
        want = {name: figures[name] for name in ("images_per_s", "step_ms", "peak_memory_bytes")}
        want |= derived(figures)
        got = {name.split(":")[-1]: value[0] for name, value in case["perfvalues"].items()}
        assert set(got) == set(want), (got, want)
        for name, value in want.items():
            near(float(got[name]), value)
        seen.append(figures["ranks"])
    assert sorted(seen) == ranks, seen


if __name__ == "__main__":
    kind, table, folder, ranks = sys.argv[1:]
    {"jube": jube, "reframe": reframe}[kind](table, folder, [int(one) for one in ranks.split(",")])
