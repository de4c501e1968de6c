"""What k sources can do at best: a fluid bound for one file, from the figures of the paths. Pure."""

from dataclasses import dataclass
from math import log2

# Linux's initial window: ten segments, their payload with timestamps at an MTU of 1500.
INITIAL_WINDOW_BYTES = 10 * 1448

# Round trips until the first byte of the file. https: TCP, TLS 1.3, the request. root://: TCP, handshake and
# protocol, login, open, read.
ROUND_TRIPS = {"https": 3, "root": 5}


@dataclass(frozen=True)
class Path:
    """From one source to the client."""

    payload_bytes_per_s: float
    round_trip_s: float


def start_loss_s(path, round_trips):
    """How much later a new connection moves bytes than one at full rate from the beginning: set-up, then slow
    start, which doubles the window every round trip and carries about one round trip's worth meanwhile."""
    doublings = log2(path.payload_bytes_per_s * path.round_trip_s / INITIAL_WINDOW_BYTES)
    return (round_trips + max(0.0, doublings - 1)) * path.round_trip_s


def bound_s(size, paths, round_trips):
    """The least time T in which sources that begin `start_loss_s` late move `size` bytes together."""
    starts = sorted((start_loss_s(path, round_trips), path.payload_bytes_per_s) for path in paths)
    rates = losses = time = 0.0
    for start, rate in starts:
        if rates and time <= start:
            break  # it would come too late to carry anything
        rates += rate
        losses += rate * start
        time = (size + losses) / rates
    return time


def self_test():
    near, far = Path(100e6, 0.010), Path(100e6, 0.030)
    assert 0.080 < start_loss_s(near, 3) < 0.082  # 3 + log2(1 MB / 14.48 kB) - 1 = 8.1 round trips
    assert start_loss_s(Path(1e6, 0.001), 3) == 0.003  # the first window fills the path
    assert abs(bound_s(1e9, [near], 3) - (10 + start_loss_s(near, 3))) < 1e-9
    both = bound_s(1e9, [far, near], 3)
    assert abs(both - (1e9 + 1e8 * (start_loss_s(near, 3) + start_loss_s(far, 3))) / 2e8) < 1e-9
    assert bound_s(1e6, [near, far], 3) == bound_s(1e6, [near], 3)  # over before the far one has begun
    assert bound_s(1e9, [near], 5) > bound_s(1e9, [near], 3) > bound_s(1e9, [near] * 2, 3)
