"""Copies between two servers over an emulated wide area: the second file between the same two."""

import json
import subprocess
import sys
import time
from pathlib import Path

import wan
from tpc_servers import CopyingXRootD, give_to_xrootd
from wan_lab import Lab, Place, Shelf
from wan_report import size_name
from wan_rows import Race, Scenario, fractions
from wan_sites import GridlaneServe
from wan_tools import Tool, url

DESTINATION = "destination"
SOURCE = "source"
INITIATOR = Path(__file__).with_name("tpc_copy.py")

# The servers of a copy, and the names of their kinds at the sites.
OURS, PEER = "serve", "xrootd-https"

# Between the files of a row of two: longer than a sender's retransmission timeout, so that it counts as idle.
PAUSE_S = 1.0

# The client is beside the destination.
NETWORK = """\
# The second file between two servers at 100 ms, 1 Gb/s.
sites = ["client", "destination", "source"]
seed = 1
buffers = "bdp"
congestion_control = "bbr"

[[link]]
between = ["client", "destination"]
delay_ms = 0.05

[[link]]
between = ["source", "destination"]
rate = "1Gb/s"
delay_ms = 50
"""


class CopyShelf(Shelf):
    """What is copied arrives in a directory of its own, that both kinds of destinations serve."""

    def __init__(self, work, binary, sites):
        work.mkdir()
        super().__init__(work, binary, sites)
        self.landing = work / "landing"
        self.landing.mkdir()
        give_to_xrootd(self.landing)
        self.target = self.landing / "target"

    def remove_target(self):
        for path in self.landing.glob(f"{self.target.name}*"):
            path.unlink()


class CopyLab(Lab):
    """A client that only asks. `tool.sources` are the servers that send."""

    def server(self, kind, site, directory, addresses):
        shelf = self.shelf
        where = (self.network, site, directory, shelf.landing if site == DESTINATION else shelf.export, shelf.identity)
        if kind == PEER:
            return CopyingXRootD(*where)
        more = ["--ca", shelf.authority, "--server-name", site]
        if site == DESTINATION:
            more += ["--allow-write", "--tpc-allow", "any"]
        return GridlaneServe(*where, shelf.binary, addresses, *more)

    def serving(self, tool):
        return [*super().serving(tool), self.servers[tool.sources[0][0]][DESTINATION]]

    def sent(self, state):
        return {site: sent for site, sent in super().sent(state).items() if site != DESTINATION}

    def run(self, tool, size, hooks=(), keep=False):
        """A destination that has just started: it has no connection to a source, and no shares of them."""
        if tool.sources[0][0] == OURS:
            destination = self.servers[OURS][DESTINATION]
            destination.kill()
            destination.start()
            self.wait_for(destination)
        run = super().run(tool, size, hooks, keep)
        # The time of the copy, without the start of the initiator.
        run.seconds = run.summary["copies"][-1]["seconds"] if run.summary else run.seconds
        return run


def copies(shelf, name, kind, rounds, size, streams):
    """An initiator's run: the file to two names, one after the other."""
    sources = [url(kind, SOURCE, size)]
    wanted = [{"target": url(kind, DESTINATION, name), "sources": sources} for name in ("target-first", "target")]
    listed = shelf.write(f"{kind}-{size}.json", json.dumps(wanted))
    command = [sys.executable, INITIATOR, listed, "--ca", shelf.authority, "--streams", streams, "--pause", PAUSE_S]
    return Tool(name, command, ((kind, SOURCE),), rounds, shelf.file(size), keeps_events=True)


class Second(Race):
    """Judged by what a path can do without handshake and slow start: a round trip, and the file at its rate."""

    def measure(self, lab):
        for site in lab.place.sites:
            set_it = lab.network.at(site, "sh", "-c", "echo 0 >/proc/sys/net/ipv4/tcp_slow_start_after_idle")
            subprocess.run(set_it, check=True)
        return super().measure(lab)

    def look(self, lab, tool):
        look = super().look(lab, tool)
        # In the second file.
        look.due += self.bound_s(lab, tool) + PAUSE_S
        return look

    def bound_s(self, lab, tool, run=None):
        path = lab.path(SOURCE, family(run))
        return path.round_trip_s + self.size / path.payload_bytes_per_s


def family(run):
    return 6 if run and run.families == {6} else 4


class SecondFile(Scenario):
    name, title = "second", "The second file between two servers at 100 ms, 1 Gb/s"
    about = (
        f"Two COPYs one after the other with {PAUSE_S:g} s between them; the time is that of the second one, the bytes `sent` are those",
        "of both. `net.ipv4.tcp_slow_start_after_idle` is 0. The bound is one round trip and the file at the payload rate.",
    )

    def place(self):
        return Place(self.name, NETWORK, (SOURCE, DESTINATION), (OURS, PEER), towards=DESTINATION)

    def rows(self):
        size = self.bench.megabytes(100)
        tools = [
            copies(self.shelf, "gridlane, the second file", OURS, self.rounds, size, 0),
            copies(self.shelf, "XRootD, the second file", PEER, self.few, size, 1),
        ]

        def judge(lab, runs):
            yield fractions("of its bound without handshake and slow start", runs[tools[0]], 0.9)

        yield Second(self, f"the second file, {size_name(size)}, 100 ms", size, tools, judge)


class WideBench(wan.Bench):
    """The scenarios of copies between servers, measured as those of `make bench-wan` are."""

    scenarios, hosts, shelf_type, lab_type = (SecondFile,), (DESTINATION, SOURCE), CopyShelf, CopyLab

    def measure(self):
        """Sections of the page with the rows that are wanted; nothing is started where none are."""
        began, rows = time.monotonic(), {}
        for scenario, row in self.chosen():
            rows.setdefault(scenario, []).append(row)
        for scenario, chosen in rows.items():
            self.section(scenario, chosen)
        if rows:
            print(f"wide areas: {time.monotonic() - began:.0f} s")
        return self.sections
