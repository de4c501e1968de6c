"""What can be said from few, noisy, paired runs: the lab's medians with intervals, and what only pairs in turns need."""

from math import sqrt
from statistics import median

from gridlane_lab.ranks import summarize

__all__ = ["summarize", "without_order"]


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
