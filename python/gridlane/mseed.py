"""MiniSEED files: the records of a time window, without the rest of the file.

    records = gridlane.mseed.read_window(url, start, end)
    stream = obspy.read(io.BytesIO(records))

Records of a file have one length, and headers of 48 bytes with their times in front (SEED 2.4, chapter 8). Of a file with few
records all headers are read in one call, and so they are of one in which records of several channels take turns: a long record
of one channel may reach into a window from far before it. Of a larger file of one channel, whose records are taken to be in
the order of their times, 64 headers are read at a time, each time of a smaller part. The first 256 records, and 256 from all
parts of the file, say whether it has one channel: one that begins later and is rarer is not seen, and a record of it that
reaches into the window from before is left out.
"""

from __future__ import annotations

import calendar
import struct
from typing import Any, NamedTuple, Optional

from ._client import Url, split
from .file import File, Range

__all__ = ["read_window", "window"]

_HEADER_BYTES = 64
# All headers are read of a file with so many records, which costs what the bisection of a larger one does.
_RECORDS_SCANNED_MAX = 4096
_PROBES = 64
# Records that show whether a file has several channels.
_CHANNEL_PROBES = 256
# The lengths that records may have, by their binary logarithm.
_LENGTH_EXPONENTS = range(7, 17)


class _Record(NamedTuple):
    # Station, location, channel and network (SEED 2.4, chapter 8: fields 4 to 7).
    channel: bytes
    start_s: float
    end_s: float


def read_window(url: Url, start: Any, end: Any, **options: Any) -> bytes:
    """The records that have a sample from `start` up to, not including, `end`.

    Times are seconds since 1970, `datetime`s (of UTC where they have no time zone) or obspy's `UTCDateTime`s. Options are those
    of `gridlane.open`.
    """
    client, opening = split(options)
    with client.open(url, **opening) as file:
        ranges = window(file, start, end)
        return b"".join(bytes(part) for part in file.readv(ranges))


def window(file: File, start: Any, end: Any) -> list[Range]:
    """Where in an open file these records are: `(offset, length)` each, in the order of the file."""
    first_s, last_s = _seconds(start), _seconds(end)
    if file.size == 0:
        return []
    length = _record_length(file.pread(0, 1 << 12), file._shown)
    count = file.size // length
    from_record, to_record = 0, count
    if count > _RECORDS_SCANNED_MAX and _is_of_one_channel(file, length, count):
        # One more on each side: a record that begins before the window may reach into it.
        from_record = max(0, _first_from(file, length, count, first_s) - 1)
        to_record = min(count, _first_from(file, length, count, last_s) + 1)
    records = _headers(file, length, range(from_record, to_record))
    found: list[Range] = []
    for number, record in zip(range(from_record, to_record), records):
        if record is None or record.end_s < first_s or record.start_s >= last_s:
            continue
        offset = number * length
        if found and found[-1][0] + found[-1][1] == offset:
            found[-1] = (found[-1][0], found[-1][1] + length)
        else:
            found.append((offset, length))
    return found


def _is_of_one_channel(file: File, length: int, count: int) -> bool:
    """True if all records that are looked at are of one channel: those in front, where channels begin, and some of all parts."""
    numbers = {*range(min(count, _CHANNEL_PROBES)), *range(0, count, max(1, count // _CHANNEL_PROBES))}
    looked_at = _headers(file, length, sorted(numbers))
    return len({record.channel for record in looked_at if record is not None}) <= 1


def _first_from(file: File, length: int, count: int, time_s: float) -> int:
    """The first record that begins at a time or later."""
    low, high = 0, count
    while high > low:
        step = max(1, (high - low) // _PROBES)
        numbers = list(range(low, high, step))
        starts = [record.start_s for record in _headers(file, length, numbers) if record is not None]
        if len(starts) < len(numbers) or any(after < before for before, after in zip(starts, starts[1:])):
            raise ValueError(
                f"the records of {file._shown} are not in the order of their times: read all of it"
            )
        before = sum(1 for start_s in starts if start_s < time_s)
        if before == 0:
            return low
        if step == 1:
            return numbers[before - 1] + 1
        low, high = numbers[before - 1] + 1, numbers[before] if before < len(numbers) else high
    return low


def _headers(file: File, length: int, numbers: Any) -> list[Optional[_Record]]:
    """The times of records; `None` of what has none."""
    ranges = [(number * length, _HEADER_BYTES) for number in numbers]
    return [_times(bytes(header)) for header in file.readv(ranges)]


def _order(header: bytes) -> Optional[str]:
    """The order of the bytes of a header, by which its year and day can be: as libmseed tells it."""
    for order in (">", "<"):
        year, day = struct.unpack_from(order + "HH", header, 20)
        if 1900 <= year <= 2100 and 1 <= day <= 366:
            return order
    return None


def _times(header: bytes) -> Optional[_Record]:
    """The times of a record's first and last sample."""
    order = _order(header) if len(header) >= 48 else None
    if order is None:
        return None
    year, day, hour, minute, second, _, fraction = struct.unpack_from(order + "HHBBBBH", header, 20)
    samples, factor, multiplier = struct.unpack_from(order + "Hhh", header, 30)
    start_s = calendar.timegm((year, 1, 1, hour, minute, second)) + (day - 1) * 86400 + fraction / 1e4
    flags = header[36]
    (correction,) = struct.unpack_from(order + "i", header, 40)
    # Bit 1: the correction is in the time already.
    if not flags & 2:
        start_s += correction / 1e4
    rate = _rate(factor, multiplier)
    end_s = start_s + (max(samples, 1) - 1) / rate if rate > 0 else start_s
    return _Record(header[8:20], start_s, end_s)


def _rate(factor: int, multiplier: int) -> float:
    """Samples per second (SEED 2.4, chapter 8: fixed section of the data header, fields 10 and 11)."""
    if factor == 0 or multiplier == 0:
        return 0.0
    rate = float(factor) if factor > 0 else -1.0 / factor
    return float(rate * multiplier if multiplier > 0 else rate / -multiplier)


def _record_length(head: bytes, name: str) -> int:
    """The length of records: what blockette 1000 of the first one says, else where the second one begins."""
    order = (
        _order(head)
        if len(head) >= 48 and head[:6].strip(b" \0").isdigit() and head[6:7] in b"DRQM"
        else None
    )
    if order is None:
        raise ValueError(f"{name} does not begin with a record of MiniSEED 2")
    (at,) = struct.unpack_from(order + "H", head, 46)
    while 48 <= at <= len(head) - 8:
        kind, following = struct.unpack_from(order + "HH", head, at)
        if kind == 1000 and head[at + 6] in _LENGTH_EXPONENTS:
            return 1 << int(head[at + 6])
        if following <= at:
            break
        at = following
    for exponent in _LENGTH_EXPONENTS:
        following_head = head[1 << exponent : (1 << exponent) + 48]
        if (
            len(following_head) == 48
            and following_head[6:7] in b"DRQM"
            and _order(following_head) is not None
        ):
            return 1 << exponent
    raise ValueError(f"nothing tells how long the records of {name} are")


def _seconds(time: Any) -> float:
    """A time as seconds since 1970."""
    if isinstance(time, (int, float)):
        return float(time)
    found = getattr(time, "timestamp", None)
    if callable(found):
        if getattr(time, "tzinfo", None) is None:
            return float(calendar.timegm(time.timetuple()) + time.microsecond / 1e6)
        return float(found())
    if found is not None:
        return float(found)
    raise TypeError(f"{time!r} is no time")
