"""What k sources can do at best: a fluid bound for one file, from the figures of the paths. Pure, and of the standard
library only: `bench/` uses it as well, and one bound is the same for every tool.

The formula is that of crates/plan/src/bound.rs, with three things more: several connections to one source, which
shorten slow start; rates that change on the way (the causal bound of a copy with faults); and a limit of what the
sources deliver together, which is the client's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, log2
from pathlib import Path as File

# Bytes a sender may have in flight before the first acknowledgement: ten segments (RFC 6928).
INITIAL_WINDOW_BYTES = 14_600

# Round trips until the first byte of the file. https: TCP, TLS 1.3, the request. root://: TCP, handshake and
# protocol, login, open, read; roots:// has TLS in between; gsiftp: TCP, banner, anonymous login, passive, retrieve.
ROUND_TRIPS = {"http": 2, "https": 3, "root": 5, "roots": 7, "gsiftp": 7}


# In each packet: 20 bytes of IPv4, or 40 of IPv6, and 32 of TCP with timestamps.
IPV4_HEADERS_BYTES, IPV6_HEADERS_BYTES = 52, 72


@dataclass(frozen=True)
class Path:
    """From one source to the client."""

    payload_bytes_per_s: float
    round_trip_s: float
    connections: int = 1
    # (seconds since the beginning, payload rate from then on), in order.
    changes: tuple[tuple[float, float], ...] = ()


def start_loss_s(path: Path, round_trips: float) -> float:
    """How much later new connections move bytes than ones at full rate from the beginning: set-up, then slow
    start, which doubles the windows every round trip and carries about one round trip's worth meanwhile."""
    window = INITIAL_WINDOW_BYTES * path.connections
    product = path.payload_bytes_per_s * path.round_trip_s
    doublings = log2(product / window) if product > 0 else 0.0
    return (round_trips + max(0.0, doublings - 1)) * path.round_trip_s


def bound_s(
    size: float,
    paths: Sequence[Path],
    round_trips: float | Sequence[float],
    client_bytes_per_s: float = inf,
) -> float:
    """The least time in which sources that begin `start_loss_s` late move `size` bytes together. `round_trips` is
    one number, or one for each path. Infinite when their rates end before that. `client_bytes_per_s` limits them
    together: one link that all paths share, a disk, a cipher."""
    if not isinstance(round_trips, (list, tuple)):
        round_trips = [round_trips] * len(paths)  # type: ignore[list-item]
    steps = [
        step for path, trips in zip(paths, round_trips, strict=True) for step in _steps(path, start_loss_s(path, trips))
    ]
    done = rate = time = 0.0
    for at, change in [*sorted(steps), (inf, 0.0)]:
        together = min(rate, client_bytes_per_s)
        if together > 1e-9 and done + together * (at - time) >= size:
            return time + (size - done) / together
        if at == inf:
            break
        done += together * (at - time)
        time, rate = at, rate + change
    return inf


def payload_bytes_per_s(
    rate_bits_per_s: float,
    mtu_bytes: int = 1500,
    framing_bytes: int = 38,
    headers_bytes: int = IPV4_HEADERS_BYTES,
) -> float:
    """What a rate on the wire carries of TCP payload: each packet has headers, and Ethernet's framing around it."""
    return rate_bits_per_s / 8 * (mtu_bytes - headers_bytes) / (mtu_bytes + framing_bytes)


def _steps(path: Path, start: float) -> Iterator[tuple[float, float]]:
    """When the rate of a path changes, and by how much."""
    rate = path.payload_bytes_per_s
    for at, then in path.changes:
        rate = then if at <= start else rate
    yield start, rate
    for at, then in path.changes:
        if at > start:
            yield at, then - rate
            rate = then


def self_test() -> None:
    """The arithmetic on cases that are known by hand, and the constant that the plan has too."""
    near, far = Path(100e6, 0.010), Path(100e6, 0.030)
    assert 0.080 < start_loss_s(near, 3) < 0.082  # 3 + log2(1 MB / 14.6 kB) - 1 = 8.1 round trips
    assert start_loss_s(Path(1e6, 0.001), 3) == 0.003  # the first window fills the path
    assert abs(bound_s(1e9, [near], 3) - (10 + start_loss_s(near, 3))) < 1e-9
    both = bound_s(1e9, [far, near], 3)
    assert abs(both - (1e9 + 1e8 * (start_loss_s(near, 3) + start_loss_s(far, 3))) / 2e8) < 1e-9
    assert bound_s(1e6, [near, far], 3) == bound_s(1e6, [near], 3)  # over before the far one has begun
    assert bound_s(1e9, [near], 5) > bound_s(1e9, [near], 3) > bound_s(1e9, [near] * 2, 3)
    assert bound_s(1e9, [near, far], (3, 5)) > bound_s(1e9, [near, far], 3)
    # Four connections begin with four windows: two round trips less.
    assert abs(start_loss_s(near, 3) - start_loss_s(Path(100e6, 0.010, 4), 3) - 0.020) < 1e-9

    # The cases of bound.rs, by hand there.
    assert abs(start_loss_s(Path(16 * 14_600 / 0.1, 0.1), 3) - 0.6) < 1e-9
    plain = [Path(rate, 1e-6) for rate in (100e6, 50e6, 10e6)]
    assert abs(bound_s(1e9, plain, (0.003e6, 0.09e6, 0.45e6)) - 1_009_300_000 / 160e6) < 1e-9
    assert abs(bound_s(1e7, plain[::2], (0, 0.45e6)) - 0.1) < 1e-9
    assert abs(bound_s(1e8, plain[::2], (0, 0.45e6)) - 0.95) < 1e-9

    # Half of it at 200 MB/s; then one is gone, or has a twentieth.
    pair = [Path(100e6, 1e-6), Path(100e6, 1e-6, 1, ((2.5, 0.0),))]
    assert abs(bound_s(1e9, pair, 0) - 7.5) < 1e-9
    pair[1] = Path(100e6, 1e-6, 1, ((2.5, 5e6),))
    assert abs(bound_s(1e9, pair, 0) - (2.5 + 500 / 105)) < 1e-9
    assert bound_s(1e9, pair[1:], 0) > 100 and bound_s(1e9, [Path(1e6, 1e-6, 1, ((1, 0.0),))], 0) == inf

    # A client that takes 150 MB/s of 200 MB/s: by the rule C · (T - min s) ≥ S.
    assert abs(bound_s(1.5e9, [near, near], 3, 150e6) - (10 + start_loss_s(near, 3))) < 1e-9

    source = File(__file__).resolve().parents[3] / "crates/plan/src/settings.rs"
    window = re.search(r"INITIAL_WINDOW_BYTES: f64 = ([0-9_.]+);", source.read_text())
    assert window and float(window[1]) == INITIAL_WINDOW_BYTES, "the plan has another initial window"
