"""Copies between two servers over emulated wide areas: one source, three at once, and the second file between the same two."""

import json
import subprocess
import sys
import time
from pathlib import Path

from gridlane_lab import bound
import wan
from tpc_servers import CopyingXRootD, give_to_xrootd
from wan_lab import Lab, Place, Shelf
from wan_report import size_name
from wan_rows import Race, Scenario, figure, fractions
from wan_sites import GridlaneServe
from wan_three import DELAYS_MS
from wan_tools import Tool, url

DESTINATION = "destination"
SOURCE = "source"
HOSTS = (DESTINATION, SOURCE, *DELAYS_MS)
INITIATOR = Path(__file__).with_name("tpc_copy.py")

# The servers of a copy, and the names of their kinds at the sites.
OURS, PEER = "serve", "xrootd-https"

# Between the files of a row of two: longer than a sender's retransmission timeout, so that it counts as idle.
PAUSE_S = 1.0

HEAD = """\
# {about}
sites = ["client", "destination", {sites}]
seed = 1
buffers = "bdp"
congestion_control = "bbr"

[[link]]
between = ["client", "destination"]
delay_ms = 0.05
"""

LINK = """
[[link]]
between = ["{site}", "destination"]
rate = "{rate}"
delay_ms = {delay_ms:g}
"""


def network(about, rate, round_trips_ms):
    """Sources with a link each to the destination; the client is beside that."""
    text = HEAD.format(about=about, sites=", ".join(f'"{site}"' for site in round_trips_ms))
    for site, round_trip_ms in round_trips_ms.items():
        text += LINK.format(site=site, rate=rate, delay_ms=round_trip_ms / 2)
    return text


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


def copies(shelf, name, kind, sites, rounds, size, streams, names=("target",)):
    """An initiator's run: the file from all sites to each of the names, one after the other."""
    sources = [url(kind, site, size) for site in sites]
    wanted = [{"target": url(kind, DESTINATION, name), "sources": sources} for name in names]
    listed = shelf.write(f"{kind}-{size}-{len(sites)}-{len(names)}.json", json.dumps(wanted))
    command = [sys.executable, INITIATOR, listed, "--ca", shelf.authority, "--streams", streams, "--pause", PAUSE_S]
    return Tool(name, command, tuple((kind, site) for site in sites), rounds, shelf.file(size), keeps_events=True)


class Copy(Race):
    """Judged by bound(k) of connections to each source that are not counted but given."""

    def __init__(self, scenario, name, size, tools, judge, connections=1):
        super().__init__(scenario, name, size, tools, judge)
        self.connections = connections

    def bound_s(self, lab, tool, run=None):
        paths = [lab.path(site, family(run), connections=self.connections) for _, site in tool.sources]
        return bound.bound_s(self.size, paths, bound.ROUND_TRIPS["https"])


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


class Copies(Scenario):
    """Over one network."""

    round_trips_ms, rate = {}, "1Gb/s"

    def place(self):
        about = self.title + "."
        sites = (*self.round_trips_ms, DESTINATION)
        return Place(self.name, network(about, self.rate, self.round_trips_ms), sites, (OURS, PEER), towards=DESTINATION)


class Far(Copies):
    round_trip_ms, connections = 0.0, 1

    def rows(self):
        size = self.bench.megabytes(2000)
        tools = [
            copies(self.shelf, "gridlane, X-Number-Of-Streams: 0", OURS, [SOURCE], self.rounds, size, 0),
            copies(self.shelf, "XRootD, 1 stream", PEER, [SOURCE], self.rounds, size, 1),
            copies(self.shelf, "XRootD, 8 streams", PEER, [SOURCE], self.rounds, size, 8),
        ]
        ours, *peers = tools

        def judge(lab, runs):
            yield fractions(f"of bound({self.connections})", runs[ours], 0.95)
            best = [
                max((run for run in those if run), key=lambda run: run.rate, default=None)
                for those in zip(*(runs[peer] for peer in peers if peer in runs))
            ]
            over = [run.rate / peer.rate if run else None for run, peer in zip(runs[ours], best) if peer]
            if over:
                yield figure("rate over XRootD's best of 1 and 8 streams", over, least=1.0)

        name = f"HTTPS pull of {size_name(size)}, 1 Gb/s, {self.round_trip_ms:g} ms"
        yield Copy(self, name, size, tools, judge, self.connections)


def far(milliseconds, connections):
    return type("Far", (Far,), {
        "name": f"pull-{milliseconds:g}ms", "title": f"HTTPS pull over 1 Gb/s, {milliseconds:g} ms",
        "round_trip_ms": milliseconds, "round_trips_ms": {SOURCE: milliseconds}, "connections": connections,
    })


class Replicas(Copies):
    name, title = "replicas", "Three replicas of 800 Mb/s at 10, 20 and 30 ms to one destination"
    round_trips_ms, rate = DELAYS_MS, "800Mb/s"
    about = ("One COPY with three `Source` fields. XRootD takes one of them: there is no peer.",)

    def rows(self):
        size = self.bench.megabytes(2000)
        ours = copies(self.shelf, "gridlane, three Source fields", OURS, tuple(DELAYS_MS), self.rounds, size, 0)

        def judge(lab, runs):
            yield fractions("of bound(3)", runs[ours], 0.95)

        yield Copy(self, f"three replicas, {size_name(size)}", size, [ours], judge)


class SecondFile(Copies):
    name, title = "second", "The second file between two servers at 100 ms, 1 Gb/s"
    round_trips_ms = {SOURCE: 100}
    about = (
        f"Two COPYs one after the other with {PAUSE_S:g} s between them; the time is that of the second one, the bytes `sent` are those",
        "of both. `net.ipv4.tcp_slow_start_after_idle` is 0. The bound is one round trip and the file at the payload rate.",
    )

    def rows(self):
        size = self.bench.megabytes(100)
        both = ("target-first", "target")
        tools = [
            copies(self.shelf, "gridlane, the second file", OURS, [SOURCE], self.rounds, size, 0, both),
            copies(self.shelf, "XRootD, the second file", PEER, [SOURCE], self.few, size, 1, both),
        ]

        def judge(lab, runs):
            yield fractions("of its bound without handshake and slow start", runs[tools[0]], 0.9)

        yield Second(self, f"the second file, {size_name(size)}, 100 ms", size, tools, judge)


SCENARIOS = [far(0.5, 1), far(26, 1), far(100, 16), far(300, 16), Replicas, SecondFile]


class WideBench(wan.Bench):
    """The scenarios of copies between servers, measured as those of `make bench-wan` are."""

    scenarios, hosts, shelf_type, lab_type = SCENARIOS, HOSTS, CopyShelf, CopyLab

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
