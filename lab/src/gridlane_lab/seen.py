"""What is seen of a run from beside it: the connections that carry its bytes, as servers have them while it lasts and
when it is over, and the packets that the emulator counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from gridlane_lab.bound import IPV4_HEADERS_BYTES, IPV6_HEADERS_BYTES

# A connection on which a server has sent less than this part of a file carries nothing of it: on some a checksum is
# asked for, others have stayed open.
CARRIES = 1 / 1000
# When it is looked for the first time, as part of the bound: late enough that connections from far away have left slow
# start, early enough that none has ended.
LOOK_OF_BOUND = 0.6
# Where no bound is known: on loopback.
LOOK_UNKNOWN_S = 0.1


@dataclass(frozen=True)
class Seen:
    """Connections that carried a run's bytes. Nothing: nobody looked, or the run was over before."""

    # By place of the server.
    connections: Mapping[str, int] | None = None
    ip_versions: frozenset[int] = frozenset()

    @property
    def together(self) -> int | None:
        """Of all places; None where none was seen."""
        return sum(self.connections.values()) or None if self.connections is not None else None

    @property
    def ip_version(self) -> int | None:
        """The one that all have."""
        return next(iter(self.ip_versions)) if len(self.ip_versions) == 1 else None

    @property
    def headers_bytes(self) -> int:
        """Of each packet. The fewest, where nothing is known."""
        return IPV6_HEADERS_BYTES if self.ip_version == 6 else IPV4_HEADERS_BYTES


NOTHING_SEEN = Seen()


class Watch:
    """Looks from the servers' side. `ports` are those of the servers by place, `look` is `Sites.connections`."""

    def __init__(
        self, look: Callable[[str, int], Sequence[Mapping[str, Any]]], ports: Mapping[str, int], size_bytes: float
    ) -> None:
        self._look, self._ports, self._least = look, ports, CARRIES * size_bytes
        # Some connections stay open from run to run.
        self._before = {place: sent_by_peer(look(place, port)) for place, port in ports.items()}
        self._found: dict[str, dict[str, Mapping[str, Any]]] = {}

    def look(self) -> None:
        """While the run lasts; and once more when it is over, for those that stay open."""
        for place, port in self._ports.items():
            found = self._found.setdefault(place, {})
            for one in carrying(self._look(place, port), self._before[place], self._least):
                found[str(one["peer"])] = one

    @property
    def seen(self) -> Seen:
        """What was found."""
        if not self._found:
            return NOTHING_SEEN
        versions = frozenset(int(one["family"]) for those in self._found.values() for one in those.values())
        return Seen({place: len(those) for place, those in self._found.items()}, versions)


def sent_by_peer(connections: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """What a server has sent to each other end."""
    return {str(one["peer"]): int(one["sent_bytes"]) for one in connections}


def carrying(
    connections: Iterable[Mapping[str, Any]], before: Mapping[str, int], least_bytes: float
) -> list[Mapping[str, Any]]:
    """The connections on which so much or more was sent since."""
    return [one for one in connections if one["sent_bytes"] - before.get(one["peer"], 0) >= least_bytes]


def look_s(bound_s: float | None) -> float:
    """How long after its beginning a run is looked at."""
    return LOOK_UNKNOWN_S if bound_s is None else LOOK_OF_BOUND * bound_s


def port_of(url: str) -> int:
    """Of a server's URL."""
    port = urlsplit(url).port
    assert port is not None, url
    return port


def grown(
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    counter: str,
    places: Iterable[str] | None = None,
) -> int | None:
    """What a counter of the emulator has grown by over all links, or over those that these places send on; None where
    nothing counts. `before` and `after` are what `Sites.state` tells."""
    if before is None or after is None:
        return None
    wanted = None if places is None else set(places)
    return _sum(after, counter, wanted) - _sum(before, counter, wanted)


def _sum(state: Mapping[str, Any], counter: str, places: set[str] | None) -> int:
    return sum(int(link["counters"][counter]) for link in state["links"] if places is None or link["from"] in places)
