"""Rows of paired runs: two ways to do the same work in turns, and what can be said of them."""

import subprocess
import sys
from pathlib import Path
from statistics import median

from stats import summarize


class Pairs:
    """Collects rows. `check` is called after a run that is not counted: a fast wrong copy is worth nothing."""

    def __init__(self, pairs, check):
        self.pairs = pairs
        self.check = check
        self.rows = []

    def compare(self, name, unit, target, ours, peer, cpu=None):
        """One row of rates. With `cpu`, of which side ("client" or "server") and the most of the peer's, another one of
        CPU time from the same runs."""
        for work in (ours, peer):
            work()  # not counted
            self.check()
        pairs = [(ours(), peer()) for _ in range(self.pairs)]
        ratio = summarize([a.rate / b.rate for a, b in pairs])
        self.add({
            "name": name,
            "unit": unit,
            "target": target,
            "gridlane": side([a for a, _ in pairs]),
            "peer": side([b for _, b in pairs]),
            "ratio": ratio,
            "passed": ratio["low"] >= target if target else None,
        })
        if cpu:
            of, most = cpu
            # A clock tick is 10 ms: never nothing.
            spent = [[max(getattr(sample, f"{of}_cpu_s"), 0.01) / sample.bytes for sample in pair] for pair in pairs]
            ratio = summarize([a / b for a, b in spent])
            self.add({
                "name": f"{name}: {of} CPU",
                "unit": "CPU-s/GB",
                "at_most": most,
                "target": None,
                "gridlane": side([a for a, _ in pairs]) | {"rate": 1e9 * median(a for a, _ in spent)},
                "peer": side([b for _, b in pairs]) | {"rate": 1e9 * median(b for _, b in spent)},
                "ratio": ratio,
                "passed": ratio["high"] <= most,
            })

    def bounded(self, name, target, bound, work):
        """A row without a peer: the fraction of a bound in bytes per second."""
        work()
        self.check()
        samples = [work() for _ in range(self.pairs)]
        ratio = summarize([sample.rate / bound for sample in samples])
        self.add({
            "name": name,
            "unit": "MB/s",
            "target": target,
            "gridlane": side(samples),
            "bound": bound,
            "ratio": ratio,
            "passed": ratio["low"] >= target,
        })

    def add(self, row):
        self.rows.append(row)
        ratio = row["ratio"]
        verdict = {True: "pass", False: "FAIL", None: ""}[row["passed"]]
        print(f"{row['name']:72} {ratio['median']:5.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}] {verdict}", flush=True)


def side(samples):
    """Medians of one side of a row, and every sample for whoever wants to look closer."""
    return {
        "rate": median(sample.rate for sample in samples),
        "client_cpu": median(sample.client_cpu_s / sample.bytes * 1e9 for sample in samples),
        "server_cpu": median(sample.server_cpu_s / sample.bytes * 1e9 for sample in samples),
        "samples": [[sample.seconds, sample.client_cpu_s, sample.server_cpu_s] for sample in samples],
    }


def must_be_same(written, original):
    """Ends the program when a file is not what was sent."""
    if subprocess.run(["cmp", "-s", str(written), str(original)], check=False).returncode:
        sys.exit(f"{written} is not what was sent")


def stolen_and_all():
    """Clock ticks that the hypervisor took, and all ticks, since the machine started."""
    _, stolen, total = ticks_now()
    return stolen, total


def ticks_now():
    """Clock ticks idle, stolen by the hypervisor, and all, since the machine started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[3] + ticks[4], ticks[7], sum(ticks)


def ticks_since(ticks):
    return [now - then for then, now in zip(ticks, ticks_now())]
