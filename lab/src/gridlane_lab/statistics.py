"""All statistics of the lab. No other module calls SciPy.

Everything is deterministic: whatever draws by lot takes a seed. Nothing raises for degenerate data (too few,
all equal, ties): the answer then says so in words and has no number.

The unit is one value for each block. Values of one block are never pooled with those of another before they are
compared (`paired`), because what disturbs a machine disturbs a whole block.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite, log, nan, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from gridlane_lab.ranks import interval_ranks

# From fewer blocks no interval of a median has 95 %: points are shown, and nothing is claimed.
CLAIM_BLOCKS_MIN = 6
RESAMPLES = 9999
# Of each of the two one-sided tests of an equivalence.
EQUIVALENCE_ALPHA = 0.05
# SciPy's p of Shapiro–Wilk is not reliable above.
SHAPIRO_MAX = 5000
# Resamples are drawn in parts of at most so many numbers.
BATCH_NUMBERS_MAX = 4_000_000

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An interval, and how it was made: `bca`, `percentile`, `order statistics`, `t`, `wilson`, `constant`."""

    low: float
    high: float
    confidence: float
    method: str


@dataclass(frozen=True)
class Description:
    """A sample in numbers. Quartiles are those of NumPy's default (linear between order statistics)."""

    n: int
    failures: int
    minimum: float
    q1: float
    median: float
    q3: float
    maximum: float
    mean: float
    # Of the sample (n - 1); None for one value.
    sd: float | None


@dataclass(frozen=True)
class Normality:
    """Shapiro–Wilk of one cell. `is_rejected` is by the p after Holm, and None where nothing could be tested."""

    n: int
    w: float | None
    p: float | None
    p_holm: float | None
    is_rejected: bool | None
    note: str = ""

    @property
    def leads_with_mean(self) -> bool:
        """Whether mean ± SD is printed beside the median."""
        return self.is_rejected is False


@dataclass(frozen=True)
class Trend:
    """Values in their order: whether they drift, and whether neighbours are alike. None where nothing can be said."""

    n: int
    # Of Theil and Sen, in the unit of the values for each step.
    slope: float | None
    # Of Kendall's test against the order; after Holm over a family in `p_holm`.
    p: float | None
    p_holm: float | None
    # Of neighbours, at a lag of one.
    autocorrelation: float | None

    @property
    def is_found(self) -> bool:
        """Whether there is a trend, by the p after Holm."""
        return self.p_holm is not None and self.p_holm <= 0.05


@dataclass(frozen=True)
class Paired:
    """Two variants in the same blocks: the first over the second."""

    # Block → ratio.
    ratios: dict[Hashable, float]
    geometric_mean: float | None
    median: float | None
    # Of the geometric mean, by resampling blocks; and of the median, by order statistics.
    interval: Interval | None
    exact_interval: Interval | None
    wilcoxon_p: float | None
    cliffs_delta: float | None
    note: str = ""

    @property
    def blocks(self) -> int:
        """Blocks in which both have a value."""
        return len(self.ratios)

    @property
    def is_claimable(self) -> bool:
        """Whether there are blocks enough for a claim."""
        return self.blocks >= CLAIM_BLOCKS_MIN


@dataclass(frozen=True)
class FalseAlarms:
    """How often a gate finds a difference between a variant and itself."""

    trials: int
    alarms: int
    rate: float
    interval: Interval


# --- One sample -------------------------------------------------------------------------------------------


def describe(values: Sequence[float], failures: int = 0) -> Description | None:
    """A sample in numbers; None without values."""
    data = _finite(values)
    if not data.size:
        return None
    q1, middle, q3 = (float(q) for q in np.quantile(data, [0.25, 0.5, 0.75]))
    sd = float(np.std(data, ddof=1)) if data.size > 1 else None
    return Description(
        n=int(data.size),
        failures=failures,
        minimum=float(data.min()),
        q1=q1,
        median=middle,
        q3=q3,
        maximum=float(data.max()),
        mean=float(data.mean()),
        sd=sd,
    )


def order_interval(values: Sequence[float], quantile: float = 0.5, confidence: float = 0.95) -> Interval | None:
    """Of a quantile, by order statistics; None where there are too few values for it."""
    data = np.sort(_finite(values))
    ranks = interval_ranks(int(data.size), quantile, confidence)
    if ranks is None:
        return None
    return Interval(float(data[ranks[0] - 1]), float(data[ranks[1] - 1]), confidence, "order statistics")


def t_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Of a mean, by Student's t: for values that are not far from normal. None below two values."""
    data = _finite(values)
    if data.size < 2:
        return None
    half = float(stats.t.ppf((1 + confidence) / 2, data.size - 1) * np.std(data, ddof=1) / sqrt(data.size))
    return Interval(float(data.mean()) - half, float(data.mean()) + half, confidence, "t")


def bootstrap(
    values: Sequence[float],
    statistic: Callable[..., Any] = np.median,
    *,
    seed: int,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """A bias-corrected and accelerated bootstrap interval. `statistic` is a function of NumPy's kind, with `axis`.

    None below two values. Values that are all equal have an interval without width. Where acceleration is not defined
    (it is not for medians of some small samples) the interval is that of percentiles, and says so.
    """
    data = _finite(values)
    if data.size < 2:
        return None
    if np.ptp(data) == 0:
        point = float(statistic(data, axis=-1))
        return Interval(point, point, confidence, "constant")
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            # Degenerate data are warned of and give NaN: that is looked at below.
            warnings.simplefilter("ignore")
            found = stats.bootstrap(
                (data,),
                statistic,
                n_resamples=resamples,
                batch=max(1, BATCH_NUMBERS_MAX // data.size),
                vectorized=True,
                axis=-1,
                confidence_level=confidence,
                method=method,
                rng=np.random.default_rng(seed),
            ).confidence_interval
        if isfinite(found.low) and isfinite(found.high):
            return Interval(float(found.low), float(found.high), confidence, method.lower())
    return None


# --- Normality and families of tests ----------------------------------------------------------------------------


def shapiro(values: Sequence[float]) -> Normality:
    """Shapiro–Wilk of one sample. Holm over a family is `shapiro_family`."""
    data = _finite(values)
    n = int(data.size)
    if n < 3:
        return Normality(n, None, None, None, None, "fewer than 3 values")
    if np.ptp(data) == 0:
        return Normality(n, None, None, None, None, "all values are equal")
    # Centred and scaled: W does not change, and large numbers with little spread keep their digits.
    found = stats.shapiro((data - data.mean()) / np.ptp(data))
    note = f"p is not reliable above {SHAPIRO_MAX} values" if n > SHAPIRO_MAX else ""
    return Normality(n, float(found.statistic), float(found.pvalue), None, None, note)


def shapiro_family(cells: Mapping[str, Sequence[float]], alpha: float = 0.05) -> dict[str, Normality]:
    """Shapiro–Wilk of all cells of a report, with Holm over those that could be tested."""
    single = {name: shapiro(values) for name, values in cells.items()}
    adjusted = holm([test.p for test in single.values()])
    return {
        name: replace(test, p_holm=p, is_rejected=None if p is None else p <= alpha)
        for (name, test), p in zip(single.items(), adjusted, strict=True)
    }


def trend(values: Sequence[float]) -> Trend:
    """Drift over the order of the values. Holm over a family is `trend_family`."""
    data = _finite(values)
    n = int(data.size)
    if n < 3 or np.ptp(data) == 0:
        return Trend(n, None, None, None, None)
    order = np.arange(n)
    centred = data - data.mean()
    return Trend(
        n=n,
        slope=float(stats.theilslopes(data, order).slope),
        p=float(stats.kendalltau(order, data).pvalue),
        p_holm=None,
        autocorrelation=float(np.sum(centred[1:] * centred[:-1]) / np.sum(centred**2)),
    )


def trend_family(cells: Mapping[str, Sequence[float]]) -> dict[str, Trend]:
    """The trends of all cells that have blocks enough for a claim, with Holm over them; of the others, nothing."""
    single = {
        name: trend(values) if len(values) >= CLAIM_BLOCKS_MIN else Trend(len(values), None, None, None, None)
        for name, values in cells.items()
    }
    adjusted = holm([one.p for one in single.values()])
    return {name: replace(one, p_holm=p) for (name, one), p in zip(single.items(), adjusted, strict=True)}


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p values in the order of the given ones. None is no test, and not counted."""
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None and isfinite(p))
    adjusted: list[float | None] = [None] * len(p_values)
    so_far = 0.0
    for rank, (p, index) in enumerate(tested):
        so_far = max(so_far, min(1.0, (len(tested) - rank) * p))
        adjusted[index] = so_far
    return adjusted


# --- Comparisons ------------------------------------------------------------------------------------------------


def paired(
    first: Mapping[Any, float],
    second: Mapping[Any, float],
    *,
    seed: int,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Paired:
    """Ratios of the values that both have in the same block, on the log scale. Values have to be above 0: others are
    left out and told of."""
    shared = [block for block in first if block in second]
    usable = [block for block in shared if _is_positive(first[block]) and _is_positive(second[block])]
    note = "" if len(usable) == len(shared) else f"{len(shared) - len(usable)} blocks without positive values left out"
    if not usable:
        return Paired({}, None, None, None, None, None, None, note or "no block has both")
    logs = [log(first[block]) - log(second[block]) for block in usable]
    return Paired(
        ratios={block: exp(value) for block, value in zip(usable, logs, strict=True)},
        geometric_mean=exp(float(np.mean(logs))),
        median=exp(float(np.median(logs))),
        interval=_exponential(bootstrap(logs, np.mean, seed=seed, confidence=confidence, resamples=resamples)),
        exact_interval=_exponential(order_interval(logs, confidence=confidence)),
        wilcoxon_p=wilcoxon(logs),
        cliffs_delta=cliffs_delta([first[block] for block in usable], [second[block] for block in usable]),
        note=note,
    )


def wilcoxon(differences: Sequence[float]) -> float | None:
    """Two-sided p of the signed-rank test; 1 when no difference is left, None without values.

    Exact up to 50 values without ties, and up to 13 with ties (all signs are tried); else the normal approximation.
    """
    data = _finite(differences)
    if not data.size:
        return None
    if not np.any(data):
        return 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(stats.wilcoxon(data, zero_method="wilcox", alternative="two-sided").pvalue)


def cliffs_delta(first: Sequence[float], second: Sequence[float]) -> float | None:
    """P(first > second) - P(first < second): 1 when all of the first are above, 0 when neither is."""
    one, other = _finite(first), np.sort(_finite(second))
    if not one.size or not other.size:
        return None
    below = np.searchsorted(other, one, side="left").sum()
    above = (other.size - np.searchsorted(other, one, side="right")).sum()
    return float((int(below) - int(above)) / (one.size * other.size))


def equivalence(
    comparison: Paired, most: float, *, seed: int, alpha: float = EQUIVALENCE_ALPHA
) -> tuple[str, Interval | None]:
    """`equivalent` when the interval of the geometric mean ratio with confidence 1 - 2·alpha lies within 1/most … most
    (two one-sided tests), `different` when it lies outside, else `undecided`."""
    if not comparison.is_claimable:
        return "points only", None
    logs = [log(ratio) for ratio in comparison.ratios.values()]
    interval = _exponential(bootstrap(logs, np.mean, seed=seed, confidence=1 - 2 * alpha))
    if interval is None:
        return "undecided", None
    if 1 / most <= interval.low and interval.high <= most:
        return "equivalent", interval
    if interval.high < 1 / most or interval.low > most:
        return "different", interval
    return "undecided", interval


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Interval | None:
    """Of a proportion; None without trials."""
    if trials == 0:
        return None
    z = float(stats.norm.ppf((1 + confidence) / 2))
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / (1 + z * z / trials)
    return Interval(max(0.0, centre - half), min(1.0, centre + half), confidence, "wilson")


# --- Calibration ------------------------------------------------------------------------------------------------


def false_alarms(
    first: Mapping[Any, float],
    second: Mapping[Any, float],
    gate: Callable[[Mapping[Any, float], Mapping[Any, float]], bool],
    *,
    seed: int,
    blocks: int | None = None,
    trials: int = 200,
) -> FalseAlarms | None:
    """The rate at which a gate says `different` of the same variant run twice (A/A).

    Each trial draws blocks with replacement and swaps the two sides of each by lot, as the order within a block was by
    lot: whatever the gate finds then is a false alarm. None without blocks.
    """
    shared = [block for block in first if block in second]
    if not shared:
        return None
    draw = np.random.default_rng(seed)
    alarms = 0
    for _ in range(trials):
        chosen = draw.integers(0, len(shared), blocks or len(shared))
        one: dict[int, float] = {}
        other: dict[int, float] = {}
        for number, index in enumerate(chosen):
            pair = (first[shared[index]], second[shared[index]])
            one[number], other[number] = pair if draw.random() < 0.5 else pair[::-1]
        alarms += bool(gate(one, other))
    interval = wilson(alarms, trials)
    assert interval is not None
    return FalseAlarms(trials, alarms, alarms / trials, interval)


# --- Curves for figures ---------------------------------------------------------------------------------------------


def ecdf(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Sorted values, and the part of all values that is at most as large."""
    data = np.sort(_finite(values))
    return [float(x) for x in data], [float(y) for y in np.arange(1, data.size + 1) / max(1, data.size)]


def normal_quantiles(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """For a Q–Q plot: quantiles of the normal distribution (Filliben's positions), and the sorted values."""
    data = np.sort(_finite(values))
    if data.size < 2:
        return [], []
    theory, ordered = stats.probplot(data, fit=False)
    return [float(x) for x in theory], [float(y) for y in ordered]


def crossing(x: Sequence[float], first: Sequence[float], second: Sequence[float]) -> float | None:
    """Where two curves through the same x cross for the first time, linearly between points; None if they do not."""
    for index in range(len(x)):
        here = first[index] - second[index]
        if here == 0:
            return float(x[index])
        if index and here * (before := first[index - 1] - second[index - 1]) < 0:
            return float(x[index - 1] + (x[index] - x[index - 1]) * before / (before - here))
    return None


def _finite(values: Sequence[float]) -> Floats:
    data = np.asarray([nan if value is None else value for value in values], dtype=np.float64)
    return data[np.isfinite(data)]


def _is_positive(value: float | None) -> bool:
    return value is not None and isfinite(value) and value > 0


def _exponential(interval: Interval | None) -> Interval | None:
    if interval is None:
        return None
    return Interval(exp(interval.low), exp(interval.high), interval.confidence, interval.method)
