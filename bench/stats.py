"""Medians and what can be said about them from few, noisy, paired runs."""

from math import comb, sqrt
from statistics import median


def interval_ranks(n):
    """Ranks (from 1) of the order statistics that enclose the median with at least 95 %.

    Distribution-free: the number of values below the true median is binomial(n, 1/2). `None` below six
    values, where no interval reaches 95 %.
    """
    tail, rank = 0.0, 0
    while rank < n // 2:
        tail += comb(n, rank) / 2**n
        if tail > 0.025:
            break
        rank += 1
    return (rank, n + 1 - rank) if rank > 0 else None


def summarize(values):
    """Median and 95 % interval of the median; with too few values, the extremes and `exact: False`."""
    ordered = sorted(values)
    ranks = interval_ranks(len(ordered))
    low, high = (ordered[ranks[0] - 1], ordered[ranks[1] - 1]) if ranks else (ordered[0], ordered[-1])
    return {"n": len(ordered), "median": median(ordered), "low": low, "high": high, "exact": ranks is not None}


def without_order(ratios):
    """Ratios of pairs that were measured in turns in one order and in the other, without the effect of the order.

    Where the second of a pair is faster whatever it is, half of the ratios lie below and half above, and the median of an
    odd number of them is on one of the sides. The effect is the ratio of both halves' medians.
    """
    forward, backward = ratios[::2], ratios[1::2]
    if not backward:
        return list(ratios)
    effect = sqrt(median(forward) / median(backward))
    return [ratio * (1 / effect if number % 2 == 0 else effect) for number, ratio in enumerate(ratios)]
