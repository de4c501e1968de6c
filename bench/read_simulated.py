"""Rows in simulated time: the planner of `gridlane read` itself, on paths and servers of the simulator that its tests have."""

import re
import subprocess
from dataclasses import dataclass

from read_judge import quantile
from read_runs import Row
from wan_rows import figure

BUDGET = 4.0
# By set of jobs: what a part of them has to be within.
TARGETS = {
    "traces": [(0.9, 1.3), (1.0, 1.6)],
    "harness": [(1.0, 1.3)],
    "lot": [(0.5, 1.3), (1.0, 2.0)],
}
TITLES = {
    "traces": "the recorded traces, at 26 and 150 ms",
    "harness": "events with offsets that are not known, at 0.5, 26 and 300 ms",
    "lot": "jobs by lot: fraction, size of events, round trip, file",
}
_EVENTS = re.compile(r"(?P<part>[\d.]+) % of \d+ MB in (?P<kb>\d+) kB, random, (?P<ms>[\d.]+) ms")


@dataclass(frozen=True)
class Cell:
    """A job under all policies, in seconds; of those that were stopped early, `None`."""

    job: str
    round_trip_s: float
    size_bytes: int
    adaptive_s: float
    wanted_bytes: int
    moved_bytes: int
    speculation: float
    forced: dict

    @property
    def best(self):
        return min((policy for policy in self.forced if self.forced[policy] is not None), key=self.forced.get)

    @property
    def best_s(self):
        return self.forced[self.best]

    @property
    def ratio(self):
        return self.adaptive_s / self.best_s

    def key(self):
        """Of events in random order: round trip in ms, fraction, bytes of an event."""
        found = _EVENTS.fullmatch(self.job)
        return found and (float(found["ms"]), float(found["part"]) / 100, int(found["kb"]) * 1000)


def parse(text):
    """What the example `hindsight` prints."""
    cells = []
    for line in text.splitlines():
        job, round_trip_s, size, adaptive_s, wanted, moved, speculation, *forced = line.split("\t")
        times = dict(each.split("=") for each in forced)
        cells.append(Cell(
            job, float(round_trip_s), int(size), float(adaptive_s), int(wanted), int(moved), float(speculation),
            {policy: float(took) if took else None for policy, took in times.items()},
        ))
    return cells


def run(simulator, jobs, size_bytes):
    return parse(subprocess.run([simulator, jobs, str(size_bytes)], check=True, stdout=subprocess.PIPE, text=True).stdout)


def rows(_bench):
    for jobs in TARGETS:
        yield Row(f"simulated {jobs}", "Simulated", lambda bench, jobs=jobs: measure(bench, jobs), 2)


def measure(bench, jobs):
    cells = bench.simulated(jobs)
    ratios = [cell.ratio for cell in cells]
    figures = [figure(f"{said(part)} within, of the best in hindsight", [quantile(ratios, part)], most=most) for part, most in TARGETS[jobs]]
    figures.append(figure("speculation, the most", [max(cell.speculation for cell in cells)], most=BUDGET))
    return {"sides": [], "figures": figures, "cells": [table_row(cell) for cell in cells], "note": f"{len(cells)} {TITLES[jobs]}"}


def said(part):
    return {0.5: "median: half", 1.0: "all"}.get(part, f"{100 * part:g} %")


def table_row(cell):
    """As the page has it."""
    return {
        "job": cell.job, "adaptive_s": cell.adaptive_s, "best": cell.best, "best_s": cell.best_s, "ratio": cell.ratio,
        "speculation": cell.speculation, "moved": cell.moved_bytes / max(1, cell.wanted_bytes), "forced": cell.forced,
    }


def self_test():
    """Fails where the arithmetic is wrong."""
    line = "10 % of 50 MB in 1 kB, random, 0.5 ms\t0.0005\t50000000\t1.300000\t5000000\t10000000\t2.0000\tcopy=1.000000\tlazy="
    other = line.replace("random", "ascending")
    one, two = parse(f"{line}\n{other}\n")
    assert (one.best, one.best_s, round(one.ratio, 9), one.forced["lazy"]) == ("copy", 1.0, 1.3, None)
    assert one.key() == (0.5, 0.1, 1000) and two.key() is None
    assert table_row(one)["moved"] == 2.0
