"""Units: texts to numbers and back. Decimal prefixes; rates in bits per second, sizes in bytes, times in seconds."""

from __future__ import annotations

import re

_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BYTES = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?)\s*([kMGT]?)B")
_RATE = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?)\s*([kMGT]?)b/s")


def parse_bytes(text: str) -> int:
    """`"1GB"`, `"500 MB"` or `"1500B"` in bytes."""
    found = _BYTES.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no size; write it like 500MB, 1GB or 1500B")
    return round(float(found[1].replace("_", "")) * _PREFIXES[found[2]])


def parse_rate(text: str) -> float:
    """`"800Mb/s"` in bits per second."""
    found = _RATE.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no rate; write it like 800Mb/s or 1.5Gb/s")
    return float(found[1].replace("_", "")) * _PREFIXES[found[2]]


def bytes_text(size_bytes: float) -> str:
    """A size for people: `1 GB`, `1.5 MB`."""
    return _scaled(size_bytes, "B")


def rate_text(rate_bits_per_s: float) -> str:
    """A rate for people: `800 Mb/s`."""
    return _scaled(rate_bits_per_s, "b/s")


def seconds_text(seconds: float) -> str:
    """A time for people: `350 ms`, `4.2 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    if seconds < 0:
        return f"-{seconds_text(-seconds)}"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def _scaled(value: float, unit: str) -> str:
    for prefix in ("T", "G", "M", "k"):
        if abs(value) >= _PREFIXES[prefix]:
            return f"{value / _PREFIXES[prefix]:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"
