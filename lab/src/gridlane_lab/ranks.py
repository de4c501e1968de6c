"""Intervals of quantiles from order statistics: nothing is assumed of the distribution. Standard library only, so that
`bench/` uses the same."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import median
from typing import Any


def interval_ranks(n: int, quantile: float = 0.5, confidence: float = 0.95) -> tuple[int, int] | None:
    """Ranks (from 1) of the order statistics that enclose a quantile with at least this confidence, with equal tails.

    The number of values below the true quantile is binomial(n, quantile). `None` where no interval reaches the
    confidence: of the median with 95 %, below six values.
    """
    tail_max = (1 - confidence) / 2
    low = _largest_rank(n, quantile, tail_max)
    high = _largest_rank(n, 1 - quantile, tail_max)
    return (low, n + 1 - high) if low > 0 and high > 0 else None


def summarize(values: Sequence[float]) -> dict[str, Any]:
    """Median and 95 % interval of the median; with too few values, the extremes and `exact: False`."""
    ordered = sorted(values)
    ranks = interval_ranks(len(ordered))
    low, high = (ordered[ranks[0] - 1], ordered[ranks[1] - 1]) if ranks else (ordered[0], ordered[-1])
    return {"n": len(ordered), "median": median(ordered), "low": low, "high": high, "exact": ranks is not None}


def _largest_rank(n: int, quantile: float, tail_max: float) -> int:
    """The largest rank r with P(binomial(n, quantile) < r) at most `tail_max`; 0 if there is none."""
    tail, rank = 0.0, 0
    while rank < n:
        tail += comb(n, rank) * quantile**rank * (1 - quantile) ** (n - rank)
        if tail > tail_max:
            break
        rank += 1
    return rank
