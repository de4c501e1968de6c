"""Rows of runs in turns: two or more ways to do the same work, and what can be said of them."""

import subprocess
import sys
from dataclasses import dataclass
from statistics import median

from gridlane_lab.processes import ticks_now

from stats import summarize

# What is compared, as rows call it. All but the first are CPU time, of which less is better.
MEASURES = {"rate": "rate", "client_cpu_s": "client CPU", "server_cpu_s": "server CPU", "cpu_s": "CPU of both"}


@dataclass(frozen=True)
class Claim:
    """What one side has to reach beside another, or beside the best of several. Without a target: shown only."""

    peers: tuple
    target: float | None
    measure: str = "rate"


class Pairs:
    """Collects rows. `check` is called after a run that is not counted: a fast wrong copy is worth nothing."""

    def __init__(self, pairs, check):
        self.pairs = pairs
        self.check = check
        self.rows = []

    def compare(self, name, unit, target, ours, peer, cpu=None):
        """One row of rates. With `cpu`, of which side ("client" or "server") and the most of the peer's, another one of
        CPU time from the same runs."""
        ours, peer = self.in_turns([ours, peer])
        self.add(rate_row(name, unit, target, ours, peer))
        if cpu:
            of, most = cpu
            self.add(cpu_row(f"{name}: {of} CPU", f"{of}_cpu_s", most, ours, peer))

    def claims(self, name, unit, sides, claims):
        """Several rows from the same runs: `sides` are named works, of which the first is ours."""
        samples = dict(zip(sides, self.in_turns(list(sides.values()))))
        ours = samples[next(iter(sides))]
        for claim in claims:
            less = claim.measure != "rate"
            peers = sorted(claim.peers, key=lambda peer: _median(samples[peer], claim.measure), reverse=not less)
            row_name = f"{name} vs {peers[0]}" + (" (the better)" if len(peers) > 1 else "")
            if less:
                row_name += f": {MEASURES[claim.measure]}"
                self.add(cpu_row(row_name, claim.measure, claim.target, ours, samples[peers[0]], unit != "MB/s"))
            else:
                self.add(rate_row(row_name, unit, claim.target, ours, samples[peers[0]]))
                for other in peers[1:]:
                    self.add(rate_row(f"{name} vs {other}", unit, None, ours, samples[other]))

    def in_turns(self, works):
        """Samples of each work: A B C A B C. What disturbs one disturbs the others as well."""
        for work in works:
            work()  # not counted
            self.check()
        rounds = [[work() for work in works] for _ in range(self.pairs)]
        return [list(samples) for samples in zip(*rounds)]

    def bounded(self, name, target, bound, work):
        """A row without a peer: the fraction of a bound in bytes per second."""
        [samples] = self.in_turns([work])
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

    def without_figures(self, name, target, status, passed=None):
        """A row that could not be measured, and why."""
        self.add({"name": name, "unit": "MB/s", "target": target, "ratio": None, "status": status, "passed": passed})

    def add(self, row):
        self.rows.append(row)
        ratio = row["ratio"]
        if not ratio:
            print(f"{row['name']:72} {row['status']}", flush=True)
            return
        verdict = {True: "pass", False: "FAIL", None: ""}[row["passed"]]
        print(f"{row['name']:72} {ratio['median']:5.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}] {verdict:4} {values(row)} {row.get('note', '')}".rstrip(), flush=True)


def values(row):
    """The medians of both sides in usual units, for the terminal."""
    scale, unit = {"MB/s": (1e-6, "MB/s"), "CPU-s/GB": (1, "s/GB"), "CPU-µs": (1, "µs")}.get(row["unit"], (1, row["unit"]))
    sides = [row[name]["rate"] for name in ("gridlane", "peer") if name in row]
    return " and ".join(f"{scale * value:.4g}" for value in sides) + f" {unit}"


def rate_row(name, unit, target, ours, peer):
    """The target counts for the lower end of the interval."""
    ratio = summarize([a.rate / b.rate for a, b in zip(ours, peer)])
    return {
        "name": name,
        "unit": unit,
        "target": target,
        "gridlane": side(ours),
        "peer": side(peer),
        "ratio": ratio,
        "passed": ratio["low"] >= target if target else None,
    }


def cpu_row(name, measure, at_most, ours, peer, each=False):
    """The target counts for the higher end of the interval. `each`: of what is counted, not of a GB."""
    scale, unit = (1e6, "CPU-µs") if each else (1e9, "CPU-s/GB")
    ratio = summarize([_value(a, measure) / _value(b, measure) for a, b in zip(ours, peer)])
    return {
        "name": name,
        "unit": unit,
        "at_most": at_most,
        "target": None,
        "gridlane": side(ours) | {"rate": scale * _median(ours, measure)},
        "peer": side(peer) | {"rate": scale * _median(peer, measure)},
        "ratio": ratio,
        "passed": ratio["high"] <= at_most if at_most else None,
    }


def _value(sample, measure):
    # A server whose work is over before its clock is read has not done it for nothing.
    return sample.rate if measure == "rate" else max(getattr(sample, measure), 1e-6) / sample.bytes


def _median(samples, measure):
    return median(_value(sample, measure) for sample in samples)


def side(samples):
    """Medians of one side of a row, and every sample for a closer look."""
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
