"""What is said of reads: the best policy in hindsight, parts of jobs within a ratio, the cost of an element. No I/O."""

from math import ceil
from statistics import median

# A policy that takes so many times as long as the best is not run to its end.
HOPELESS = 2.0
# Start and end of a process, which a limit for it must leave room for.
SPARE_S = 2.0


def limit_s(seconds, most_s):
    """How long a policy may take when others have taken `seconds`."""
    return min([most_s, *(HOPELESS * each + SPARE_S for each in seconds)])


def hindsight(times):
    """The best of forced policies: `times` has the seconds of each round by policy, `None` for a run that was cut off. One that
    was cut off in any round is not the best. `None` if all were."""
    whole = {policy: seconds for policy, seconds in times.items() if seconds and None not in seconds}
    return min(whole, key=lambda policy: median(whole[policy]), default=None)


def ratios(ours, others):
    """Of each round whose other one came to an end; `None` where ours did not."""
    return [None if a is None else a / b for a, b in zip(ours, others) if b is not None]


def quantile(values, part):
    """The smallest value within which such a part of them lies."""
    ordered = sorted(values)
    return ordered[max(0, ceil(part * len(ordered)) - 1)]


def element_us(total_s, start_s, elements):
    """Microseconds of CPU time for an element, without those of a run of one element."""
    return max(0.0, total_s - start_s) / elements * 1e6


def net(seconds, in_memory_s):
    """What a read from afar takes beyond the same work in memory; never nothing, because it is divided by."""
    return max(seconds - in_memory_s, 1e-3)


def self_test():
    """Fails where the arithmetic is wrong."""
    assert limit_s([], 60) == 60 and limit_s([3.0, 10.0], 60) == 8.0 and limit_s([100.0], 60) == 60
    times = {"copy": [9.0, 9.2, 9.1], "direct": [1.0, None, 1.0], "vector": [8.0, 30.0, 8.5], "lazy": []}
    assert hindsight(times) == "vector"  # by the median; what was cut off once is no candidate
    assert hindsight({"copy": [None]}) is None and hindsight({}) is None
    assert ratios([2.0, None, 3.0, 1.0], [1.0, 1.0, 2.0, None]) == [2.0, None, 1.5]
    ten = [float(number) for number in range(10, 0, -1)]
    assert (quantile(ten, 0.9), quantile(ten, 1.0), quantile(ten, 0.5), quantile([7.0], 0.0)) == (9.0, 10.0, 5.0, 7.0)
    # 22 traces: 90 % of them are at least 20.
    assert quantile([1.0] * 19 + [2.0] * 3, 0.9) == 2.0 and quantile([1.0] * 20 + [2.0] * 2, 0.9) == 1.0
    assert abs(element_us(0.3, 0.1, 100_000) - 2.0) < 1e-9 and element_us(0.1, 0.2, 10) == 0.0
    assert net(1.5, 1.0) == 0.5 and net(1.0, 1.5) == 1e-3
