"""Statistics against values that others published or that are known by hand, and properties that hold for any data."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridlane_lab import ranks, statistics

# Shapiro and Wilk (1965): weights of 11 men. R: W = 0.79, p = 0.006704.
WEIGHTS = [148, 154, 158, 160, 161, 162, 166, 170, 182, 195, 236]
# Hollander and Wolfe, as R's wilcox.test has them.
DEPRESSION = (
    [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30],
    [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29],
)
# Efron and Tibshirani, An Introduction to the Bootstrap, table 14.1, test A: the BCa interval of the variance.
SPATIAL = [48, 36, 20, 29, 42, 42, 20, 42, 22, 41, 45, 14, 6, 0, 33, 28, 34, 4, 32, 24, 47, 41, 24, 26, 30, 41]

values = st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=30)


def test_shapiro_published():
    found = statistics.shapiro(WEIGHTS)
    assert found.w == pytest.approx(0.78881, abs=2e-5)
    assert found.p == pytest.approx(0.006704, abs=2e-6)


def test_shapiro_keeps_digits_of_large_numbers():
    shifted = statistics.shapiro([1e12 + value for value in WEIGHTS])
    assert shifted.w == pytest.approx(statistics.shapiro(WEIGHTS).w, abs=1e-3)


def test_shapiro_of_what_cannot_be_tested():
    assert statistics.shapiro([1, 2]).note == "fewer than 3 values"
    assert statistics.shapiro([5, 5, 5, 5]).note == "all values are equal"
    family = statistics.shapiro_family({"a": WEIGHTS, "b": [1, 1, 1], "c": [1.0, 2.0, 3.1, 4.0, 5.2]})
    assert family["a"].p_holm == pytest.approx(2 * family["a"].p)
    assert family["a"].is_rejected
    assert family["b"].is_rejected is None and not family["b"].leads_with_mean
    assert family["c"].leads_with_mean


def test_t_interval_published():
    """Student's sleep data, as R's t.test prints them: 95 % from -2.4598858 to -0.7001142."""
    found = statistics.t_interval([-1.2, -2.4, -1.3, -1.3, 0.0, -1.0, -1.8, -0.8, -4.6, -1.4])
    assert (found.low, found.high) == pytest.approx((-2.4598858, -0.7001142), abs=1e-7)
    assert statistics.t_interval([1.0]) is None


def test_trend_published():
    """Kendall's test of Hollander and Wolfe's tuna, in the order of lightness: R's cor.test has p = 0.1194."""
    found = statistics.trend([2.5, 4.0, 2.6, 3.6, 2.8, 3.1, 5.2, 5.0, 3.8])
    assert found.p == pytest.approx(0.1194, abs=5e-5)
    # Slopes of all pairs by hand, and R's acf(1:5).
    assert statistics.trend([1, 2, 4, 7]).slope == pytest.approx(2)
    assert statistics.trend([1, 2, 3, 4, 5]).autocorrelation == pytest.approx(0.4)
    for nothing in ([1, 2], [3, 3, 3, 3]):
        assert statistics.trend(nothing).slope is None and not statistics.trend(nothing).is_found


def test_trends_are_a_family_of_cells_with_blocks_enough():
    rising = [1.0, 2.1, 2.9, 4.2, 5.0, 6.1]
    found = statistics.trend_family({"a": rising, "b": [3, 1, 2, 3.5, 1.5, 2.5], "c": rising[:5]})
    # All in order: 2 / 6!, twice.
    assert found["a"].p_holm == pytest.approx(2 * 2 / 720) and found["a"].is_found
    assert not found["b"].is_found
    assert found["c"].slope is None and found["c"].p_holm is None


def test_holm_by_hand():
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([None, 0.5, None]) == [None, 0.5, None]
    assert statistics.holm([]) == []


def test_wilcoxon_published():
    differences = [a - b for a, b in zip(*DEPRESSION, strict=True)]
    assert statistics.wilcoxon(differences) == pytest.approx(0.0390625)
    assert statistics.wilcoxon([0, 0, 0]) == 1.0
    assert statistics.wilcoxon([]) is None
    # All six of one sign: 2 / 2^6.
    assert statistics.wilcoxon([1, 2, 3, 4, 5, 6]) == pytest.approx(2 / 64)


def test_bca_published():
    found = statistics.bootstrap(SPATIAL, np.var, seed=7, confidence=0.9)
    assert found.method == "bca"
    assert (found.low, found.high) == pytest.approx((115.8, 259.6), rel=0.02)


def test_bootstrap_is_repeatable_and_never_fails():
    once = statistics.bootstrap(WEIGHTS, seed=3, resamples=999)
    assert once == statistics.bootstrap(WEIGHTS, seed=3, resamples=999)
    assert statistics.bootstrap([4.0], seed=1) is None
    assert statistics.bootstrap([], seed=1) is None
    same = statistics.bootstrap([4.0, 4.0, 4.0], seed=1)
    assert (same.low, same.high, same.method) == (4, 4, "constant")
    # All but one equal: the jackknife of the median does not vary, so there is no acceleration.
    found = statistics.bootstrap([1, 1, 1, 1, 1, 1, 9], seed=1, resamples=999)
    assert found is not None and found.low == 1


def test_ranks_of_published_tables():
    # Conover, and any table of binomial intervals of the median.
    assert [ranks.interval_ranks(n) for n in (5, 6, 8, 9, 10, 20, 100)] == [
        None, (1, 6), (1, 8), (2, 8), (2, 9), (6, 15), (40, 61),
    ]  # fmt: skip


def test_wilson_published():
    # Newcombe (1998): 81 of 263, and 0 of 20.
    found = statistics.wilson(81, 263)
    assert (found.low, found.high) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    found = statistics.wilson(0, 20)
    assert (found.low, found.high) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert statistics.wilson(0, 0) is None


def test_cliffs_delta_by_hand():
    assert statistics.cliffs_delta([2, 3], [1, 1]) == 1
    assert statistics.cliffs_delta([1, 2], [1, 2]) == 0
    assert statistics.cliffs_delta([1, 2, 3], [2]) == 0
    assert statistics.cliffs_delta([1], [2, 2, 0, 1]) == pytest.approx(-0.25)


def test_paired_by_block():
    first = {block: 110.0 * (1 + block / 100) for block in range(8)}
    second = {block: 100.0 * (1 + block / 100) for block in range(7)}
    found = statistics.paired(first, second, seed=1, resamples=999)
    assert found.blocks == 7 and found.is_claimable
    assert found.geometric_mean == pytest.approx(1.1)
    assert found.median == pytest.approx(1.1)
    assert found.exact_interval.low == pytest.approx(1.1)
    assert found.wilcoxon_p == pytest.approx(2 / 2**7)


def test_paired_of_degenerate_data():
    none = statistics.paired({1: 1.0}, {2: 1.0}, seed=1)
    assert none.blocks == 0 and none.note == "no block has both"
    some = statistics.paired({1: 1.0, 2: 0.0}, {1: 1.0, 2: 2.0}, seed=1)
    assert some.blocks == 1 and "left out" in some.note and some.interval is None and not some.is_claimable


def test_equivalence():
    ratios = {block: 1.0 + 0.01 * (-1) ** block for block in range(10)}
    one = dict.fromkeys(range(10), 1.0)
    near = statistics.paired(ratios, one, seed=1, resamples=999)
    assert statistics.equivalence(near, 1.05, seed=1)[0] == "equivalent"
    far = statistics.paired({block: 2 * ratio for block, ratio in ratios.items()}, one, seed=1, resamples=999)
    assert statistics.equivalence(far, 1.05, seed=1)[0] == "different"
    wide = statistics.paired({block: 1.0 + 0.3 * (-1) ** block for block in range(10)}, one, seed=1, resamples=999)
    assert statistics.equivalence(wide, 1.05, seed=1)[0] == "undecided"
    few = statistics.paired({1: 1.0}, {1: 1.0}, seed=1)
    assert statistics.equivalence(few, 1.05, seed=1)[0] == "points only"


def test_gates_have_the_false_alarm_rate_that_they_claim():
    draw = np.random.default_rng(5)
    one, other = (dict(enumerate(np.exp(draw.normal(0, 0.1, 40)))) for _ in range(2))

    def gate(a, b):
        interval = statistics.order_interval([log(a[block] / b[block]) for block in a])
        return interval.low > 0 or interval.high < 0

    found = statistics.false_alarms(one, other, gate, seed=1, blocks=12, trials=300)
    assert found.interval.low < 0.06 and found.rate < 0.12
    always = statistics.false_alarms(one, other, lambda a, b: True, seed=1, trials=50)
    assert always.rate == 1 and always.alarms == 50
    assert statistics.false_alarms({}, {}, gate, seed=1) is None


def test_curves():
    assert statistics.ecdf([3, 1, 2]) == ([1, 2, 3], pytest.approx([1 / 3, 2 / 3, 1]))
    theory, ordered = statistics.normal_quantiles([3, 1, 2])
    assert ordered == [1, 2, 3] and theory[1] == pytest.approx(0, abs=1e-9) and theory[0] == pytest.approx(-theory[2])
    assert statistics.crossing([0, 1, 2], [0, 1, 2], [1, 1.5, 1]) == pytest.approx(1 + 0.5 / 1.5)
    assert statistics.crossing([0, 1], [0, 1], [2, 3]) is None


@given(values)
@settings(max_examples=60, deadline=None)
def test_description_is_ordered(data):
    found = statistics.describe(data)
    tiny = 1e-9 * found.maximum
    assert (
        found.minimum <= found.q1 + tiny <= found.median + 2 * tiny <= found.q3 + 3 * tiny <= found.maximum + 4 * tiny
    )
    assert found.n == len(data)


@given(values, st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_intervals_are_within_the_data(data, seed):
    for statistic in (np.median, np.mean):
        found = statistics.bootstrap(data, statistic, seed=seed, resamples=99)
        if found is not None:
            assert min(data) * (1 - 1e-9) <= found.low <= found.high <= max(data) * (1 + 1e-9)


@given(st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=1, max_size=7), st.floats(0.1, 10))
@settings(max_examples=12, deadline=None)
def test_paired_is_symmetric_and_free_of_scale(pairs, scale):
    first = {block: a for block, (a, _) in enumerate(pairs)}
    second = {block: b for block, (_, b) in enumerate(pairs)}
    forward = statistics.paired(first, second, seed=1, resamples=49)
    backward = statistics.paired(second, first, seed=1, resamples=49)
    assert forward.geometric_mean == pytest.approx(1 / backward.geometric_mean)
    assert forward.cliffs_delta == pytest.approx(-backward.cliffs_delta)
    scaled = statistics.paired({b: scale * v for b, v in first.items()}, second, seed=1, resamples=49)
    assert scaled.geometric_mean == pytest.approx(scale * forward.geometric_mean)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=12))
def test_holm_is_no_smaller_and_keeps_order(p_values):
    adjusted = statistics.holm(p_values)
    pairs = [(p, a) for p, a in zip(p_values, adjusted, strict=True) if p is not None]
    assert all(p <= a <= 1 for p, a in pairs)
    ordered = [a for _, a in sorted(pairs)]
    assert ordered == sorted(ordered)


@given(st.integers(1, 200), st.floats(0.05, 0.95))
def test_ranks_keep_their_confidence(n, quantile):
    found = ranks.interval_ranks(n, quantile)
    if found:
        low, high = found
        assert 1 <= low < high <= n
        from scipy.stats import binom

        assert binom.cdf(low - 1, n, quantile) <= 0.025 + 1e-12
        assert 1 - binom.cdf(high - 1, n, quantile) <= 0.025 + 1e-12


def test_coverage_of_the_bootstrap():
    """A 95 % interval of the mean of 12 values holds the mean in about 95 of 100 samples."""
    draw = np.random.default_rng(11)
    hits = 0
    for trial in range(150):
        data = draw.normal(5, 1, 12)
        found = statistics.bootstrap(data, np.mean, seed=trial, resamples=299)
        hits += found.low <= 5 <= found.high
    assert 0.84 <= hits / 150 <= 1.0
