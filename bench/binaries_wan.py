"""Copies over emulated wide areas for two binaries in turns: networks, files and clients, without peers and targets. The
networks are those of lab/scenarios/own, where the same copies are measured beside other programs and against their bounds."""

from dataclasses import dataclass

from wan_lab import Place
from wan_three import SITES, THREE, https, star
from wan_tools import gridlane

# Megabits per second of the wire, and round trips in milliseconds.
UNEQUAL = {"near": (80, 5), "middle": (400, 50), "far": (800, 150)}
FIVE = {"near": (1600, 0.5), "middle": (800, 20), "far": (480, 50), "farther": (320, 100), "farthest": (160, 300)}
HOSTS = tuple(FIVE)


@dataclass(frozen=True)
class Row:
    name: str
    place: Place
    size: int
    tools: tuple


def rows(shelf):
    """As they were called when bench/wan.py measured them: tables in docs/performance/README.md have these names."""
    megabyte, gigabyte = 10**6, 10**9

    def row(name, network, sites, servers, size, *sources):
        tools = tuple(gridlane(shelf, size, *each) for each in sources)
        return Row(name, Place(name.partition(":")[0], network, sites, servers), size, tools)

    both = ("nginx", "serve")
    yield row("three: 1 GB from 3", THREE, SITES, both, gigabyte, *((https(SITES, kind), 1) for kind in both))
    firsts = [(https(SITES[:k]), 1, f"gridlane cp from {k} nginx") for k in (1, 2, 3)]
    firsts.append((https(SITES, "serve"), 1, "gridlane cp from 3 gridlane serve"))
    yield row("1mb: 1 MB, the first file", THREE, SITES, both, megabyte, *firsts)
    for name, figures, size in (
        ("slow-near: 100 MB, 3 unequal sites, slow-near", UNEQUAL, 100 * megabyte),
        ("five: 2 GB, 5 unequal sites, five", FIVE, 2 * gigabyte),
    ):
        network = star(
            "Sites that differ.", {site: f"{rate}Mb/s" for site, (rate, _) in figures.items()},
            {site: round_trip_ms for site, (_, round_trip_ms) in figures.items()},
        )
        yield row(name, network, tuple(figures), ("nginx",), size, (https(figures), 1))
    mixed = (("nginx", SITES[0]), *https(SITES[1:], "xrootd"))
    yield row(
        "root: root://, 500 MB from 3", THREE, SITES, ("nginx", "xrootd"), 500 * megabyte, (https(SITES, "xrootd"), 1), (mixed, 1),
    )
