"""What the emulated paths of a scenario allow: routes, rates, round trips, and the bound of one run. Pure.

Packets take the path with the shortest round trip, as `gridlane wan` routes them.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from gridlane_lab import bound, reading
from gridlane_lab.scenario import Link, Scenario, Topology


@dataclass(frozen=True)
class Paths:
    """From the sources of a run to its target."""

    # One for each source, in their order, with one connection.
    single: tuple[bound.Path, ...]
    # What they carry together of payload: less than their sum where they share a link.
    together_bytes_per_s: float

    @property
    def round_trip_s(self) -> float:
        """Of the nearest source."""
        return min((path.round_trip_s for path in self.single), default=0.0)


def paths(scenario: Scenario, headers_bytes: int = bound.IPV4_HEADERS_BYTES) -> Paths | None:
    """The paths of a resolved scenario; None where nothing is known of them. Their rates are of payload, with so many
    bytes of headers in each packet: IPv4 has the fewest."""
    work = scenario.work
    sources, target = work.chosen_sources(), work.target_site
    if work.kind == "memory_copy":
        return None
    if scenario.topology is None:
        known = {endpoint.name: endpoint for endpoint in scenario.endpoint}
        found = []
        for name in sources:
            endpoint = known[name]
            if endpoint.rate_bits_per_s is None or endpoint.round_trip_ms is None:
                return None
            rate = bound.payload_bytes_per_s(endpoint.rate_bits_per_s, headers_bytes=headers_bytes)
            found.append(bound.Path(rate, endpoint.round_trip_ms / 1e3))
        return Paths(tuple(found), sum(path.payload_bytes_per_s for path in found))
    if scenario.topology.backend == "loopback":
        return None
    topology = scenario.topology
    # Uploads go the other way, over links whose ends may send at different rates.
    if work.kind == "upload":
        sources, target = [target], sources[0]
    nearest = _routes(topology, _node(topology, target))
    found = []
    for source in sources:
        node = _node(topology, source)
        # Not joined, or hosts of one site, between which no path is emulated.
        if node not in nearest or node == _node(topology, target):
            return None
        rate, at = inf, node
        while (link := nearest[at][1]) is not None:
            rate = min(rate, _rate(topology, link, at, headers_bytes))
            at = _other(link, at)
        found.append(bound.Path(rate, 2 * nearest[node][0] / 1e3))
    nodes = [_node(topology, source) for source in sources]
    together = _tree_rate(topology, nearest, _node(topology, target), nodes, headers_bytes)
    return Paths(tuple(found), together)


def bound_s(
    scenario: Scenario, connections: Sequence[int] = (), headers_bytes: int = bound.IPV4_HEADERS_BYTES
) -> float | None:
    """bound(k) of one run of a resolved scenario; None where it is not known.

    The bytes are those that the work needs: the whole file, or what is read of it. Each transfer has the connections
    that it asks for, or those to each source that were seen, where they are more: some tools choose their number.
    """
    known = paths(scenario, headers_bytes)
    size = run_bytes(scenario)
    if known is None or not known.single or size is None:
        return None
    work = scenario.work
    rates = min(known.together_bytes_per_s, sum(path.payload_bytes_per_s for path in known.single))
    if rates == inf:
        return None
    at_once = work.concurrency * work.clients
    seen = [*connections, *[1] * (len(known.single) - len(connections))]
    each = [
        bound.Path(path.payload_bytes_per_s, path.round_trip_s, max(work.streams, count) * at_once)
        for path, count in zip(known.single, seen, strict=True)
    ]
    return bound.bound_s(size, each, bound.ROUND_TRIPS.get(work.protocol, 3), known.together_bytes_per_s)


def capacity_bits_per_s(scenario: Scenario) -> float | None:
    """The payload rate of the paths together; None where it is not known or not limited."""
    known = paths(scenario)
    if known is None or known.together_bytes_per_s == inf:
        return None
    return known.together_bytes_per_s * 8


def run_bytes(scenario: Scenario) -> float | None:
    """The payload that one run of a resolved scenario has to move in one direction; None where only time says."""
    work, file = scenario.work, scenario.file_of()
    if work.duration_s > 0 or work.kind == "raw_network":
        return None
    size = float(file.size_bytes)
    if work.kind == "remote_read" and work.read is not None:
        size = float(reading.asked_bytes(scenario, work.read, file.size_bytes))
    files = file.count if work.kind not in ("remote_read", "copy_then_read") else 1
    return size * max(files, work.concurrency) * work.clients


def _routes(topology: Topology, target: str) -> dict[str, tuple[float, Link | None]]:
    """Node → delay to the target, and the link that leads there."""
    found: dict[str, tuple[float, Link | None]] = {}
    queue: list[tuple[float, int, str, Link | None]] = [(0.0, 0, target, None)]
    order = 0
    while queue:
        delay, _, node, by = heapq.heappop(queue)
        if node in found:
            continue
        found[node] = (delay, by)
        for link in topology.link:
            if node in link.between:
                order += 1
                heapq.heappush(queue, (delay + link.one_way_ms, order, _other(link, node), link))
    return found


def _tree_rate(
    topology: Topology,
    nearest: dict[str, tuple[float, Link | None]],
    target: str,
    sources: list[str],
    headers_bytes: int,
) -> float:
    """What the sources bring to the target together, where every link carries the sum of what lies behind it."""
    behind: dict[str, set[str]] = {}
    for source in sources:
        at = source
        while (link := nearest[at][1]) is not None:
            behind.setdefault(_other(link, at), set()).add(at)
            at = _other(link, at)

    def brings(node: str) -> float:
        return sum(
            min(_rate(topology, nearest[child][1], child, headers_bytes), inf if child in sources else brings(child))
            for child in sorted(behind.get(node, ()))
        )

    return brings(target)


def _rate(topology: Topology, link: Link | None, sender: str, headers_bytes: int) -> float:
    """Payload in bytes per second that a link takes from one end."""
    if link is None:
        return inf
    own = link.sending.get(sender, {}).get("rate_bits_per_s", link.rate_bits_per_s)
    return inf if own is None else bound.payload_bytes_per_s(own, topology.mtu_bytes, headers_bytes=headers_bytes)


def _other(link: Link, node: str) -> str:
    return link.between[1] if link.between[0] == node else link.between[0]


def _node(topology: Topology, place: str) -> str:
    """The site of a host: sites with several hosts have one link."""
    site = topology.site_of(place)
    return place if site is None else site.name
