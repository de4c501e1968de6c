"""Two sources behind one bottleneck that others use too."""

import os
import signal
import time
from math import inf

from wan_lab import Hook, Place, site_of
from wan_rows import Row, Scenario, figure, line
from wan_three import https
from wan_tools import curl, gridlane

SITES = ("one", "two", "rival")
SOURCES = SITES[:2]

SCENARIO = """\
# All sites are behind one link of 400 Mb/s; the rival is for the copy of another program.
sites = ["client", "one", "two", "rival"]
routers = ["exchange"]
congestion_control = "cubic"
seed = 1
buffers = "bdp"

[[link]]
between = ["exchange", "client"]
name = "bottleneck"
rate = "400Mb/s"
delay_ms = 5

[[link]]
between = ["one", "exchange"]
rate = "1Gb/s"
delay_ms = 5

[[link]]
between = ["two", "exchange"]
rate = "1Gb/s"
delay_ms = 5

[[link]]
between = ["rival", "exchange"]
rate = "1Gb/s"
delay_ms = 5
"""


class At(Hook):
    """Does something once."""

    def __init__(self, due, what):
        self.due, self.what = due, what

    def act(self, lab, elapsed_s):
        self.due = inf
        self.what()


class Against(Row):
    """Beside one curl from a site of its own, for some time: what each of them gets."""

    def __init__(self, scenario, name, size, rounds, duration_s):
        super().__init__(scenario, name)
        self.size, self.rounds, self.duration_s = size, rounds, duration_s

    def measure(self, lab):
        shelf = self.bench.shelf
        shelf.need(self.size)
        other = lab.another_client()
        rival = curl(shelf, self.size, "rival", self.rounds)
        rival.command[rival.command.index("-o") + 1] = "/dev/null"
        ours = gridlane(shelf, self.size, https(SOURCES), self.rounds)
        runs, shares, totals = [], [], []
        whole = lab.path("rival").payload_bytes_per_s * self.duration_s
        for _ in range(self.rounds):
            theirs = other.begin(rival.command, self.duration_s + 30)
            stop = At(self.duration_s, lambda: os.kill(lab.pid, signal.SIGTERM))
            run = lab.run(ours, self.size, [stop])
            os.kill(theirs["pid"], signal.SIGTERM)
            other.has_ended(10)
            other.end()
            sent = {site: run.sent[site] / lab.overhead(site, 6) for site in SITES}
            run.bound_s, run.bytes = run.seconds, sent["one"] + sent["two"]
            for source in run.summary.get("sources", []):
                run.connections[site_of(source["url"])] = source["connections"]
            runs.append(run)
            shares.append(sent["rival"] / max(1.0, sum(sent.values())))
            totals.append(sum(sent.values()) / whole)
            # What curl's server still sends is on its way for a moment.
            time.sleep(0.2)
        return {
            "name": self.name,
            "size": self.size,
            "lines": [line(ours, runs, runs) | {"fraction": None}],
            "figures": [
                figure("curl's share of the bytes", shares, least=0.3),
                figure("both together, of the bottleneck", totals),
            ],
        }


class Shared(Scenario):
    name, title = "shared", "Two sources behind one bottleneck of 400 Mb/s"
    about = (
        "For 30 s beside one curl from a third site behind the same link; CUBIC everywhere. Nothing but the rates tells a client that",
        "the sources share a link. Alone: lab/scenarios/own/wan-shared.toml.",
    )

    def place(self):
        return Place(self.name, SCENARIO, SITES)

    def rows(self):
        duration_s = 5 if self.bench.quick else 30
        yield Against(self, "shared bottleneck, against one curl", 2 * 10**9, self.rounds, duration_s)
