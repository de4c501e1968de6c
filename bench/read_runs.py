"""Runs of readers in turns, on loopback or over an emulated network, and rows made of them."""

import json
from dataclasses import dataclass, field
from statistics import median

from processes import run_client
from stats import summarize
from wan_tools import Tool


@dataclass
class Outcome:
    """One run: what it says of itself, and what it cost."""

    seconds: float
    client_cpu_s: float
    server_cpu_s: float
    line: dict = field(default_factory=dict)
    dropped: int = 0  # packets that found a queue of the emulated network full


@dataclass(frozen=True)
class Row:
    """One thing that is measured: `measure(bench)` gives sides and figures. `round_trip_ms` says over which network."""

    name: str
    section: str
    measure: object
    minutes: float
    round_trip_ms: float | None = None
    # Measured in a full run; else only by its name.
    is_usual: bool = True


class Failed(Exception):
    """A run that is worth nothing, and why."""


class CutOff(Failed):
    """It was not done in time."""


def outcome_of(lines, sample):
    """What a client has printed, as an outcome: its own clocks where it has them, which leave out the start of the program."""
    line = next((line for line in lines if line.get("type") == "run"), None)
    if line is None:
        raise Failed("it says nothing of its run")
    return Outcome(line["seconds"], line.get("cpu_s", sample.client_cpu_s), sample.server_cpu_s, line)


def on_loopback(command, servers):
    """Runs a client that says in JSON how long it took."""
    lines = []

    def read(printed):
        lines.extend(json.loads(line) for line in printed.splitlines() if line.startswith("{"))
        run = next((line for line in lines if line["type"] == "run"), {"bytes": 0, "seconds": 0.0})
        return run["bytes"], run["seconds"]

    try:
        sample = run_client(list(map(str, command)), 1, servers, read)
    except SystemExit as ended:
        # A peer's failure is a result.
        raise Failed(str(ended.code)[-600:]) from None
    return outcome_of(lines, sample)


def over(lab, command, source, limit_s):
    """The same at the client's site of a network, reading from a `source`: (kind of server, site)."""
    tool = Tool(str(command[0]), list(map(str, command)), (source,), 1, keeps_events=True, limit_s=limit_s)
    run = lab.run(tool, 1)
    if run.timed_out:
        raise CutOff(f"not done after {limit_s:.0f} s")
    if run.failure:
        raise Failed(run.failure)
    outcome = outcome_of([event for _, event in run.events], run)
    outcome.dropped = run.dropped
    return outcome


def must_have_read(outcome, adler32, who):
    """A fast wrong answer is worth nothing."""
    if outcome.line.get("adler32") != adler32:
        raise Failed(f"{who} has read {outcome.line.get('adler32')}, and the original has {adler32}")


def in_turns(bench, works, rounds, checked=None, unchecked=()):
    """Outcomes of each work, by name, in order of rounds: A B C A B C, no work always the first. The first run of each
    is not counted; its Adler-32 must be `checked`, if that is given. A peer that fails is left out, and noted."""
    works = dict(works)
    for name in list(works):
        try:
            first = works[name](check=checked is not None)
            if checked is not None and name not in unchecked:
                must_have_read(first, checked, name)
        except Failed as failure:
            bench.fail(name, failure)
            del works[name]
    runs = {name: [] for name in works}
    for number in range(rounds):
        names = list(works)
        turn = number % max(1, len(names))
        for name in names[turn:] + names[:turn]:
            try:
                runs[name].append(works[name](check=False))
            except Failed as failure:
                bench.fail(name, failure)
                runs[name].append(None)
    return runs


def seconds(outcomes):
    """Of each round; `None` where it failed."""
    return [each and each.seconds for each in outcomes]


def side(name, outcomes, elements=None, note=""):
    """What the page says of one side."""
    good = [each for each in outcomes if each]
    facts = {"name": name, "runs": len(outcomes), "failed": len(outcomes) - len(good), "note": note}
    if not good:
        return facts
    facts |= {
        "seconds": summarize([each.seconds for each in good]),
        "client_cpu_s": median(each.client_cpu_s for each in good),
        "server_cpu_s": median(each.server_cpu_s for each in good),
        "dropped": median(each.dropped for each in good),
        "samples": [[each.seconds, each.client_cpu_s, each.server_cpu_s] for each in good],
    }
    if moved := [each.line["moved_bytes"] for each in good if "moved_bytes" in each.line]:
        facts["moved_bytes"] = median(moved)
        facts["speculation"] = max(each.line["speculation"] for each in good)
        facts["requests"] = median(each.line["requests"] for each in good)
    if elements:
        facts["elements"] = elements
    return facts
