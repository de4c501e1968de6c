"""Rows: clients in turns over one network, what is said of each, and what is judged."""

from math import inf, isfinite
from statistics import median, pstdev

from gridlane_lab import bound
from pairs import side
from stats import summarize
from wan_lab import EachSecond, Look, site_of

# Rows of fewer bytes than that are about set-up, and are given in milliseconds.
SMALL_BYTES = 10**7


class Scenario:
    """Rows over one network."""

    name = title = ""
    about = ()  # paragraphs for the page

    def __init__(self, bench):
        self.bench, self.shelf = bench, bench.shelf
        # Rounds of what has a target, and of what is there to compare with.
        self.rounds, self.few = bench.rounds, min(2, bench.rounds)

    def place(self):
        raise NotImplementedError

    def rows(self):
        raise NotImplementedError


class Row:
    """One thing that is measured. `measure` returns lines (one for each client) and figures (what is judged)."""

    def __init__(self, scenario, name):
        self.scenario, self.bench, self.name = scenario, scenario.bench, name

    def measure(self, lab):
        raise NotImplementedError

    def chosen(self, tools):
        """The clients to run: with `--ours` no peers but curl, whose rates are in targets."""
        keeps_all = not self.bench.options.ours
        return [tool for tool in tools if keeps_all or tool.name.startswith(("gridlane", "curl"))]

    def fail(self, who, why):
        self.bench.failures.append(f"{self.name}, {who}: {why}")
        # A peer's failure is a result.
        self.bench.has_failed |= who.startswith("gridlane")
        print(f"FAILED {self.bench.failures[-1]}", flush=True)


class Race(Row):
    """The same file by several clients in turns. `judge(lab, runs)` gives the figures, where `runs` are those of each
    tool in order of rounds, `None` where one failed."""

    def __init__(self, scenario, name, size, tools, judge=None, each_second=False):
        super().__init__(scenario, name)
        self.size, self.tools, self.judge, self.each_second = size, tools, judge, each_second

    def measure(self, lab):
        self.bench.shelf.need(self.size)
        self.tools = self.chosen(self.tools)
        runs = {tool: [] for tool in self.tools}
        for turn in range(max(tool.rounds for tool in self.tools)):
            taking = [tool for tool in self.tools if turn < tool.rounds]
            # No tool is always the first.
            first = turn % len(taking)
            for tool in taking[first:] + taking[:first]:
                runs[tool].append(self.one(lab, tool))
        return {
            "name": self.name,
            "size": self.size,
            "lines": [self.line(lab, tool, runs) for tool in self.tools],
            "figures": self.judge(lab, runs) if self.judge else [],
        }

    def one(self, lab, tool):
        look = self.look(lab, tool)
        seconds = EachSecond()
        run = lab.run(tool, self.size, [look, *([seconds] if self.each_second else [])])
        self.describe(lab, tool, run, look.found)
        run.per_second = seconds.rates()
        if run.failure:
            self.fail(tool.name, run.failure)
            return None
        return run

    def look(self, lab, tool):
        servers = [lab.servers[kind][site] for kind, site in tool.sources]
        return Look(min(2.0, 0.4 * self.bound_s(lab, tool)), servers)

    def describe(self, lab, tool, run, found):
        """What was seen of its connections by the servers; in the place of their numbers the client's own words, where it has any:
        they leave out the one on which a checksum was asked, which carries nothing of the file and shortens no slow start."""
        run.connections = {site: len(seen) for site, seen in found.items()}
        run.families = {one["family"] for seen in found.values() for one in seen}
        run.controls = {one["congestion_control"] for seen in found.values() for one in seen}
        for source in run.summary.get("sources", []):
            run.connections[site_of(source["url"])] = source["connections"]
        run.bound_s = self.bound_s(lab, tool, run)

    def bound_s(self, lab, tool, run=None):
        """bound(k) with the connections that were opened, before the run with one to each."""
        family = 6 if run and run.families == {6} else 4
        paths = [
            lab.path(site, family, connections=max(1, run.connections.get(site, 1) if run else 1), **self.changes(run, site))
            for _, site in tool.sources
        ]
        return bound.bound_s(self.size, paths, [bound.ROUND_TRIPS[name] for name in tool.protocols])

    def changes(self, run, site):
        """How the rate of a path changed during a run."""
        return {}

    def line(self, lab, tool, runs):
        return line(tool, runs[tool], runs[self.tools[0]])


def line(tool, runs, first):
    """What the page says of one client in a row, all of it from its good runs."""
    good = [run for run in runs if run]
    facts = {
        "name": tool.name,
        "command": list(map(str, tool.command)),
        "protocols": tool.protocols,
        "failed": len(runs) - len(good),
        "rounds": len(runs),
    }
    if not good:
        return facts
    ratios = [a.rate / b.rate for a, b in zip(first, runs) if a and b and a is not b]
    sites = good[0].sent
    return {
        **facts,
        **side(good),
        "seconds": summarize([run.seconds for run in good]),
        "rates": summarize([run.rate for run in good]),
        "fraction": summarize([run.bound_s / run.seconds for run in good]),
        # The first client's rate over this one's in the same round.
        "ratio": summarize(ratios) if ratios else None,
        "sent": {site: median(run.sent[site] / run.bytes for run in good) for site in sites},
        "connections": {site: median(run.connections.get(site, 0) for run in good) for site in sites},
        "families": sorted(set().union(*(run.families for run in good))),
        "congestion_control": sorted(set().union(*(run.controls for run in good))),
        "dropped": median(run.dropped for run in good),
        "busy": median(run.busy for run in good),
        "forwarder_cpu": median(run.forwarder_cpu_s / run.bytes * 1e9 for run in good),
        "memory_bytes": max(run.memory_bytes for run in good),
    }


# --- What is judged ---------------------------------------------------------------------------------


def figure(what, values, least=None, most=None, unit="", digits=2):
    """A figure with a target, or with none to be shown. Values that are missing or infinite fail it."""
    missing = sum(value is None or not isfinite(value) for value in values)
    values = [value for value in values if value is not None and isfinite(value)]
    facts = {"what": what, "least": least, "most": most, "unit": unit, "digits": digits, "missing": missing}
    if not values:
        return {**facts, "summary": None, "passed": None if least is most is None else False}
    summary = summarize(values)
    passed = None
    if least is not None or most is not None:
        passed = missing == 0
        passed &= least is None or summary["low"] >= least
        passed &= most is None or summary["high"] <= most
    return {**facts, "values": values, "summary": summary, "passed": passed}


def fractions(what, runs, least):
    """Of the bound, a run that failed counted as nothing."""
    return figure(what, [run.bound_s / run.seconds if run else None for run in runs], least=least, digits=3)


def extra_share(lab, tool, run, family=None):
    """Bytes beyond the file that the sites sent, by the links' counters, over what is allowed: twice what is on the
    way, or 2 % of the size. Headers and TLS (0.5 %) are no extra."""
    if run is None:
        return None
    family = family or (6 if run.families == {6} else 4)
    sites = {site for _, site in tool.sources}
    sent = sum(run.sent[site] / lab.overhead(site, family) for site in sites)
    paths = [lab.path(site, family) for site in sites]
    allowed = max(2 * sum(path.payload_bytes_per_s * path.round_trip_s for path in paths), 0.02 * run.bytes)
    return max(0.0, sent - 1.005 * run.bytes) / allowed


def extra(lab, tool, runs, most=1.0):
    values = [extra_share(lab, tool, run) for run in runs]
    return figure("extra bytes over what is allowed", values, most=most)


def variation(runs, ramp_s=2.0):
    """How much the rate varies from second to second after the ramp-up: standard deviation over mean."""
    values = []
    for run in runs:
        rates = run.per_second[int(ramp_s) - 1 :] if run else []
        values.append(pstdev(rates) / (sum(rates) / len(rates)) if len(rates) >= 3 else None)
    return values


def within(event_s, began_s):
    return inf if event_s is None else event_s - began_s
